//! The table of call usage: sums of calls by time slot, tool, caller and duration.

use super::{CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store};

/// The calls of one tool by one caller in one slot whose durations are in one bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallUsageRow {
    /// When the slot begins, in minutes since 1970.
    pub slot: i64,
    /// The tool; empty for tools that are unknown.
    pub tool: String,
    /// Its server.
    pub server: String,
    /// The principal.
    pub caller: String,
    /// The bucket of the duration.
    pub bucket: i64,
    /// How many calls ended.
    pub calls: i64,
    /// How many of them failed.
    pub failures: i64,
    /// The sum of their durations, in microseconds.
    pub micros: i64,
}

/// Selects usage; an absent field matches everything.
#[derive(Clone, Debug, Default)]
pub struct CallUsageFilter {
    /// The first slot, in minutes since 1970.
    pub from: i64,
    /// The slot after the last one.
    pub until: Option<i64>,
    /// The tool.
    pub tool: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The principal.
    pub caller: Option<String>,
}

const ADD: PortableStatement = PortableStatement {
    attempted: "count the calls",
    sql: "INSERT INTO call_usage (slot, tool, server, caller, bucket, calls, failures, micros)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
          ON CONFLICT (slot, tool, server, caller, bucket) DO UPDATE SET
            calls = call_usage.calls + excluded.calls,
            failures = call_usage.failures + excluded.failures,
            micros = call_usage.micros + excluded.micros",
};
const SUM_BY_NAME: PortableStatement = PortableStatement {
    attempted: "read the usage of tools",
    sql: "SELECT CAST(0 AS BIGINT), tool, server, caller, bucket, CAST(sum(calls) AS BIGINT),
            CAST(sum(failures) AS BIGINT), CAST(sum(micros) AS BIGINT)
          FROM call_usage
          WHERE slot >= $1 AND ($2 = '' OR tool = $2) AND ($3 = '' OR server = $3)
            AND ($4 = '' OR caller = $4) AND slot < $5
          GROUP BY tool, server, caller, bucket",
};
const SUM_BY_SLOT: PortableStatement = PortableStatement {
    attempted: "read the usage over time",
    sql: "SELECT slot - slot % $1, '', '', '', bucket, CAST(sum(calls) AS BIGINT),
            CAST(sum(failures) AS BIGINT), CAST(sum(micros) AS BIGINT)
          FROM call_usage
          WHERE slot >= $2 AND ($3 = '' OR tool = $3) AND ($4 = '' OR server = $4)
            AND ($5 = '' OR caller = $5) AND slot < $6
          GROUP BY slot - slot % $1, bucket ORDER BY 1",
};
const MERGE_OLD: PortableStatement = PortableStatement {
    attempted: "merge old usage into hours",
    sql: "INSERT INTO call_usage (slot, tool, server, caller, bucket, calls, failures, micros)
          SELECT slot - slot % 60, tool, server, caller, bucket, sum(calls), sum(failures),
            sum(micros)
          FROM call_usage WHERE slot < $1 AND slot % 60 <> 0
          GROUP BY slot - slot % 60, tool, server, caller, bucket
          ON CONFLICT (slot, tool, server, caller, bucket) DO UPDATE SET
            calls = call_usage.calls + excluded.calls,
            failures = call_usage.failures + excluded.failures,
            micros = call_usage.micros + excluded.micros",
};
const DELETE_MERGED: PortableStatement = PortableStatement {
    attempted: "merge old usage into hours",
    sql: "DELETE FROM call_usage WHERE slot < $1 AND slot % 60 <> 0",
};
const DELETE_OLD: PortableStatement = PortableStatement {
    attempted: "delete old usage",
    sql: "DELETE FROM call_usage WHERE slot < $1",
};
/// The statements of this table.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    ADD,
    SUM_BY_NAME,
    SUM_BY_SLOT,
    MERGE_OLD,
    DELETE_MERGED,
    DELETE_OLD,
];

impl Store {
    /// The sums of each tool, caller and bucket.
    pub async fn usage_by_name(
        &self,
        filter: &CallUsageFilter,
    ) -> Result<Vec<CallUsageRow>, Error> {
        let mut values = vec![filter.from.into()];
        values.extend(filter.names_and_end());
        self.query_as(SUM_BY_NAME, values).await
    }

    /// The sums of each `span` minutes and bucket, in order of time.
    pub async fn usage_by_slot(
        &self,
        filter: &CallUsageFilter,
        span: i64,
    ) -> Result<Vec<CallUsageRow>, Error> {
        let mut values = vec![span.into(), filter.from.into()];
        values.extend(filter.names_and_end());
        self.query_as(SUM_BY_SLOT, values).await
    }

    /// Merges slots before `merge_before` into hours and deletes those before `oldest`.
    pub async fn trim_usage(&self, merge_before: i64, oldest: i64) -> Result<(), Error> {
        let work = vec![
            (MERGE_OLD, vec![merge_before.into()]),
            (DELETE_MERGED, vec![merge_before.into()]),
            (DELETE_OLD, vec![oldest.into()]),
        ];
        self.execute_in_transaction(MERGE_OLD, work).await
    }
}

impl CallUsageFilter {
    fn names_and_end(&self) -> [CellValue; 4] {
        let name = |it: &Option<String>| CellValue::from(it.as_deref().unwrap_or_default());
        let end = self.until.unwrap_or(i64::MAX).into();
        [
            name(&self.tool),
            name(&self.server),
            name(&self.caller),
            end,
        ]
    }
}

impl CallUsageRow {
    /// The statement that adds these calls to the sums.
    pub(super) fn into_statement(self) -> (PortableStatement, Vec<CellValue>) {
        let values = vec![
            self.slot.into(),
            self.tool.into(),
            self.server.into(),
            self.caller.into(),
            self.bucket.into(),
            self.calls.into(),
            self.failures.into(),
            self.micros.into(),
        ];
        (ADD, values)
    }
}

impl TryFrom<ResultRow> for CallUsageRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            slot: row.next_cell()?,
            tool: row.next_cell()?,
            server: row.next_cell()?,
            caller: row.next_cell()?,
            bucket: row.next_cell()?,
            calls: row.next_cell()?,
            failures: row.next_cell()?,
            micros: row.next_cell()?,
        })
    }
}
