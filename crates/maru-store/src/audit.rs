//! The audit log: rows are appended and the oldest deleted, none is changed.

use std::{iter, sync::LazyLock};

use super::{CallUsageRow, CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store};

/// A record of the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRow {
    /// The number of the record, assigned by the store.
    pub id: i64,
    /// The time in milliseconds since the Unix epoch.
    pub at: i64,
    /// The name of the principal.
    pub principal: String,
    /// The IP address of the client; `local` for this machine without one.
    pub origin: String,
    /// The reported name of the client program.
    pub client: Option<String>,
    /// `tools/call`, or the HTTP method and route of a change.
    pub action: String,
    /// The tool, or the request path.
    pub target: String,
    /// The arguments, masked and truncated.
    pub arguments: String,
    /// The outcome.
    pub outcome: String,
    /// The duration in microseconds.
    pub took_micros: i64,
    /// The request id.
    pub request: String,
    /// The name of the hub that wrote it; empty if no other hub can share the store.
    pub hub: String,
    /// What else is kept of a call; absent for a change.
    pub call: Option<AuditedCall>,
}

/// What the record of a call has beyond that of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditedCall {
    /// The number of the call in the journal of its hub.
    pub number: i64,
    /// The server of the tool; empty if the tool is unknown.
    pub server: String,
    /// Why it failed, masked and truncated.
    pub error: Option<String>,
    /// Whether the outcome counts as an error.
    pub failed: bool,
    /// Bytes of the arguments.
    pub argument_bytes: i64,
    /// Bytes of the result.
    pub result_bytes: i64,
    /// The part of the duration that the handler took, in microseconds.
    pub server_micros: i64,
}

/// Selects audit records; an absent field matches everything.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Records before this number.
    pub before: Option<i64>,
    /// Records from this time on.
    pub since: Option<i64>,
    /// Records before this time.
    pub until: Option<i64>,
    /// Whether only failed calls, and changes that were refused or failed, are wanted.
    pub failed: bool,
    /// Records of this principal.
    pub principal: Option<String>,
    /// Records of this action.
    pub action: Option<String>,
    /// Records with this target.
    pub target: Option<String>,
    /// Records with this outcome.
    pub outcome: Option<String>,
    /// Records of this request id.
    pub request: Option<String>,
    /// Maximum number of records.
    pub limit: i64,
}

/// Rows per INSERT when many are pending, which saves round trips.
const ROWS_PER_INSERT: usize = 50;
const COLUMNS_PER_ROW: usize = 18;
static INSERT_SQL: LazyLock<[String; 2]> = LazyLock::new(|| [1, ROWS_PER_INSERT].map(insert_sql));
/// An absent filter is the smallest number or an empty text, so that one statement serves
/// every filter. PostgreSQL infers `int4` for a parameter that is compared with a
/// literal, hence the cast. The outcome of a change is an HTTP status or `unknown`; old calls
/// have no number.
const LIST: PortableStatement = PortableStatement {
    attempted: "read the audit records",
    sql:
        "SELECT id, at, principal, origin, client, action, target, arguments, outcome, took, request,
            hub, call_number, server, error, failed, argument_bytes, result_bytes, server_took
          FROM audit
          WHERE (CAST($1 AS BIGINT) < 0 OR id < $1) AND at >= $2 AND ($3 = '' OR principal = $3)
            AND ($4 = '' OR action = $4) AND ($5 = '' OR target = $5)
            AND ($6 = '' OR outcome = $6) AND ($7 = '' OR request = $7)
            AND at < $8 AND ($9 = '' OR failed = 1 OR (call_number IS NULL
              AND outcome NOT IN ('ok', 'cancelled') AND outcome >= '4'))
          ORDER BY id DESC LIMIT $10",
};
const DELETE_OLDER: PortableStatement = PortableStatement {
    attempted: "remove old audit records",
    // Ids ascend with time: deletes the rows before the first that stays.
    sql: "DELETE FROM audit WHERE id < coalesce(
            (SELECT id FROM audit WHERE at >= $1 ORDER BY id LIMIT 1),
            (SELECT max(id) + 1 FROM audit))
          RETURNING id",
};
const DELETE_BEYOND_LIMIT: PortableStatement = PortableStatement {
    attempted: "remove old audit records",
    sql: "DELETE FROM audit WHERE id <= (SELECT max(id) FROM audit) - $1 RETURNING id",
};
const INSERT_PENDING: PortableStatement = PortableStatement {
    attempted: "record the pending change",
    sql: "INSERT INTO audit_pending (request, at, principal, origin, action, target, arguments)
          VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING request",
};
const DELETE_PENDING: PortableStatement = PortableStatement {
    attempted: "remove the pending change",
    sql: "DELETE FROM audit_pending WHERE request = $1 RETURNING request",
};
const RECORD_UNFINISHED: PortableStatement = PortableStatement {
    attempted: "record unfinished changes",
    sql: "INSERT INTO audit (at, principal, origin, client, action, target, arguments,
                             outcome, took, request)
          SELECT p.at, p.principal, p.origin, NULL, p.action, p.target, p.arguments,
                 'unknown', 0, p.request
          FROM audit_pending p
          WHERE p.at < $1 AND NOT EXISTS (SELECT 1 FROM audit a WHERE a.request = p.request)",
};
const DELETE_UNFINISHED: PortableStatement = PortableStatement {
    attempted: "record unfinished changes",
    sql: "DELETE FROM audit_pending WHERE at < $1 RETURNING request",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST,
    DELETE_OLDER,
    DELETE_BEYOND_LIMIT,
    INSERT_PENDING,
    DELETE_PENDING,
    RECORD_UNFINISHED,
    DELETE_UNFINISHED,
];

impl Store {
    /// Inserts `rows` in one transaction. On SQLite the iterator runs on a blocking
    /// thread.
    pub async fn insert_audit_rows(
        &self,
        rows: impl IntoIterator<Item = AuditRow, IntoIter: Send + 'static>,
    ) -> Result<(), Error> {
        self.insert_calls(rows, Vec::new()).await
    }

    /// Inserts `rows` and adds `usage` to the sums, in one transaction.
    pub async fn insert_calls(
        &self,
        rows: impl IntoIterator<Item = AuditRow, IntoIter: Send + 'static>,
        usage: Vec<CallUsageRow>,
    ) -> Result<(), Error> {
        let label = insert_statement(&INSERT_SQL[0]);
        let usage = usage.into_iter().map(CallUsageRow::into_statement);
        let work = group_inserts(rows.into_iter()).chain(usage);
        self.execute_in_transaction(label, work).await
    }

    /// Records that a change has started. It is on disk when this returns.
    pub async fn begin_change(&self, row: &AuditRow) -> Result<(), Error> {
        let values = vec![
            row.request.as_str().into(),
            row.at.into(),
            row.principal.as_str().into(),
            row.origin.as_str().into(),
            row.action.as_str().into(),
            row.target.as_str().into(),
            row.arguments.as_str().into(),
        ];
        self.execute(INSERT_PENDING, values).await?;
        Ok(())
    }

    /// Records the outcome of a change that was started.
    pub async fn end_change(&self, row: AuditRow) -> Result<(), Error> {
        let [insert, _] = INSERT_SQL.each_ref().map(|sql| insert_statement(sql));
        let request = vec![row.request.as_str().into()];
        let work = vec![
            (insert, row.into_values().to_vec()),
            (DELETE_PENDING, request),
        ];
        self.execute_in_transaction(insert, work).await
    }

    /// Records changes that started before `before` and never ended, because the hub was
    /// killed, with the outcome `unknown`.
    pub async fn record_unfinished_changes(&self, before: i64) -> Result<(), Error> {
        let values = || vec![before.into()];
        let work = vec![(RECORD_UNFINISHED, values()), (DELETE_UNFINISHED, values())];
        self.execute_in_transaction(RECORD_UNFINISHED, work).await
    }

    /// Lists the newest matching records, newest first.
    pub async fn audit_rows(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, Error> {
        let text = |it: &Option<String>| it.as_deref().unwrap_or_default().into();
        let values = vec![
            filter.before.unwrap_or(-1).into(),
            filter.since.unwrap_or(0).into(),
            text(&filter.principal),
            text(&filter.action),
            text(&filter.target),
            text(&filter.outcome),
            text(&filter.request),
            filter.until.unwrap_or(i64::MAX).into(),
            if filter.failed { "1" } else { "" }.into(),
            filter.limit.into(),
        ];
        self.query_as(LIST, values).await
    }

    /// Deletes records older than `before`, and all but the newest `max_rows`.
    pub async fn trim_audit(&self, before: i64, max_rows: i64) -> Result<(), Error> {
        self.query(DELETE_OLDER, vec![before.into()]).await?;
        self.query(DELETE_BEYOND_LIMIT, vec![max_rows.into()])
            .await?;
        Ok(())
    }
}

impl AuditRow {
    fn into_values(self) -> [CellValue; COLUMNS_PER_ROW] {
        let number = self.call.as_ref().map(|it| it.number);
        let call = self.call.unwrap_or_default();
        [
            self.at.into(),
            self.principal.into(),
            self.origin.into(),
            self.client.into(),
            self.action.into(),
            self.target.into(),
            self.arguments.into(),
            self.outcome.into(),
            self.took_micros.into(),
            self.request.into(),
            self.hub.into(),
            number.into(),
            call.server.into(),
            call.error.into(),
            i64::from(call.failed).into(),
            call.argument_bytes.into(),
            call.result_bytes.into(),
            call.server_micros.into(),
        ]
    }
}

/// Groups rows into inserts of [`ROWS_PER_INSERT`]; the remaining rows are inserted one
/// by one.
fn group_inserts(
    rows: impl Iterator<Item = AuditRow>,
) -> impl Iterator<Item = (PortableStatement, Vec<CellValue>)> {
    let [one, group] = INSERT_SQL.each_ref().map(|sql| insert_statement(sql));
    let mut rows = rows.flat_map(AuditRow::into_values).fuse();
    let mut rest = Vec::new().into_iter();
    iter::from_fn(move || {
        if rest.len() == 0 {
            let values: Vec<CellValue> = rows
                .by_ref()
                .take(ROWS_PER_INSERT * COLUMNS_PER_ROW)
                .collect();
            if values.len() == ROWS_PER_INSERT * COLUMNS_PER_ROW {
                return Some((group, values));
            }
            rest = values.into_iter();
        }
        let row: Vec<CellValue> = rest.by_ref().take(COLUMNS_PER_ROW).collect();
        (!row.is_empty()).then_some((one, row))
    })
}

fn insert_statement(sql: &'static str) -> PortableStatement {
    let attempted = "write the audit records";
    PortableStatement { attempted, sql }
}

/// The generated INSERT statements.
pub(super) fn insert_statements() -> impl Iterator<Item = PortableStatement> {
    INSERT_SQL.iter().map(|sql| insert_statement(sql))
}

/// Builds an INSERT of `rows` rows.
fn insert_sql(rows: usize) -> String {
    let placeholders = |row: usize| {
        let numbers =
            (1..=COLUMNS_PER_ROW).map(|column| format!("${}", row * COLUMNS_PER_ROW + column));
        format!("({})", numbers.collect::<Vec<_>>().join(", "))
    };
    let placeholders: Vec<String> = (0..rows).map(placeholders).collect();
    format!(
        "INSERT INTO audit (at, principal, origin, client, action, target, arguments,
                            outcome, took, request, hub, call_number, server, error, failed,
                            argument_bytes, result_bytes, server_took)
         VALUES {}",
        placeholders.join(", ")
    )
}

impl TryFrom<ResultRow> for AuditRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        let mut record = Self {
            id: row.next_cell()?,
            at: row.next_cell()?,
            principal: row.next_cell()?,
            origin: row.next_cell()?,
            client: row.next_cell()?,
            action: row.next_cell()?,
            target: row.next_cell()?,
            arguments: row.next_cell()?,
            outcome: row.next_cell()?,
            took_micros: row.next_cell()?,
            request: row.next_cell()?,
            hub: row.next_cell()?,
            call: None,
        };
        if let Some(number) = row.next_cell()? {
            record.call = Some(AuditedCall {
                number,
                server: row.next_cell()?,
                error: row.next_cell()?,
                failed: row.next_cell::<i64>()? != 0,
                argument_bytes: row.next_cell()?,
                result_bytes: row.next_cell()?,
                server_micros: row.next_cell()?,
            });
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_every_row_in_order() {
        for count in [
            0,
            1,
            ROWS_PER_INSERT - 1,
            ROWS_PER_INSERT,
            ROWS_PER_INSERT + 1,
            3 * ROWS_PER_INSERT + 2,
        ] {
            let rows = (0..).take(count).map(|at| AuditRow {
                at,
                ..AuditRow::default()
            });
            let work: Vec<_> = group_inserts(rows).collect();
            let values = work.iter().flat_map(|(_, values)| values);
            let times: Vec<_> = values.step_by(COLUMNS_PER_ROW).cloned().collect();
            let expected: Vec<_> = (0..).take(count).map(CellValue::Integer).collect();
            assert!(times == expected, "{count} rows");
            assert_eq!(
                work.len(),
                count / ROWS_PER_INSERT + count % ROWS_PER_INSERT
            );
        }
    }
}
