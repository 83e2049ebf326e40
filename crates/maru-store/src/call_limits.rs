//! The tables of call limits and daily usage.

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store};

/// The call limits of a user or a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallLimitRow {
    /// `USER` or `TOOL`.
    pub target_type: String,
    /// The name of the principal or of the tool.
    pub target_id: String,
    /// Maximum calls per day.
    pub max_count: Option<i64>,
    /// Maximum calls per minute.
    pub max_per_minute: Option<i64>,
    /// Calls on the requested day.
    pub used: i64,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the call limits",
    sql: "SELECT l.target_type, l.target_id, l.max_count, l.per_minute,
            CASE WHEN u.day = $1 THEN u.used ELSE 0 END
          FROM (SELECT a.target_type, a.target_id, a.max_count, b.per_minute
                FROM h_mcp_tool_limit a LEFT JOIN tool_rate b
                  ON b.target_type = a.target_type AND b.target_id = a.target_id
                UNION ALL
                SELECT b.target_type, b.target_id, NULL, b.per_minute FROM tool_rate b
                WHERE NOT EXISTS (SELECT 1 FROM h_mcp_tool_limit a
                  WHERE a.target_type = b.target_type AND a.target_id = b.target_id)) l
            LEFT JOIN h_mcp_tool_usage u
            ON u.target_type = l.target_type AND u.target_id = l.target_id
          ORDER BY l.target_type, l.target_id",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the daily limit",
    sql: "INSERT INTO h_mcp_tool_limit (target_type, target_id, max_count) VALUES ($1, $2, $3)
          ON CONFLICT (target_type, target_id) DO UPDATE SET max_count = excluded.max_count
          RETURNING target_id",
};
const PUT_RATE: PortableStatement = PortableStatement {
    attempted: "save the rate limit",
    sql: "INSERT INTO tool_rate (target_type, target_id, per_minute) VALUES ($1, $2, $3)
          ON CONFLICT (target_type, target_id) DO UPDATE SET per_minute = excluded.per_minute
          RETURNING target_id",
};
const DELETE_RATE: PortableStatement = PortableStatement {
    attempted: "remove the rate limit",
    sql: "DELETE FROM tool_rate WHERE target_type = $1 AND target_id = $2
          RETURNING target_id",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "remove the daily limit",
    sql: "DELETE FROM h_mcp_tool_limit WHERE target_type = $1 AND target_id = $2
          RETURNING target_id",
};
const COUNT_CALL: PortableStatement = PortableStatement {
    attempted: "count the call",
    sql: "INSERT INTO h_mcp_tool_usage (target_type, target_id, day, used) VALUES ($1, $2, $3, 1)
          ON CONFLICT (target_type, target_id) DO UPDATE SET
            used = CASE WHEN h_mcp_tool_usage.day = excluded.day
                        THEN h_mcp_tool_usage.used + 1 ELSE 1 END,
            day = excluded.day
          WHERE h_mcp_tool_usage.day <> excluded.day OR h_mcp_tool_usage.used < $4
          RETURNING used",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] =
    &[LIST, PUT, PUT_RATE, DELETE_RATE, DELETE, COUNT_CALL];

impl Store {
    /// Lists the limits with their usage on `day`, counted from the Unix epoch.
    pub async fn call_limits(&self, day: i64) -> Result<Vec<CallLimitRow>, Error> {
        self.query_as(LIST, vec![day.into()]).await
    }

    /// Sets the limits per day and per minute in one transaction; an absent one stays as
    /// it is.
    pub async fn put_limits(
        &self,
        target_type: &str,
        target_id: &str,
        per_day: Option<i64>,
        per_minute: Option<i64>,
    ) -> Result<(), Error> {
        let work = [(PUT, per_day), (PUT_RATE, per_minute)];
        let work: Vec<_> = work
            .into_iter()
            .filter_map(|(statement, limit)| {
                let values = vec![target_type.into(), target_id.into(), limit?.into()];
                Some((statement, values))
            })
            .collect();
        self.execute_in_transaction(PUT, work).await
    }

    /// Removes the limits of a target; returns false if it has none.
    pub async fn delete_limits(&self, target_type: &str, target_id: &str) -> Result<bool, Error> {
        let limits = self.call_limits(0).await?;
        let exists = limits
            .iter()
            .any(|it| it.target_type == target_type && it.target_id == target_id);
        let values = || vec![target_type.into(), target_id.into()];
        let work = vec![(DELETE_RATE, values()), (DELETE, values())];
        self.execute_in_transaction(DELETE, work).await?;
        Ok(exists)
    }

    /// Counts one call on `day`; false, without counting, if `max_count` is reached.
    pub async fn count_call(
        &self,
        target_type: &str,
        target_id: &str,
        day: i64,
        max_count: i64,
    ) -> Result<bool, Error> {
        let values = vec![
            target_type.into(),
            target_id.into(),
            day.into(),
            max_count.into(),
        ];
        self.execute(COUNT_CALL, values).await
    }
}

impl TryFrom<ResultRow> for CallLimitRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            target_type: row.next_cell()?,
            target_id: row.next_cell()?,
            max_count: row.next_cell()?,
            max_per_minute: row.next_cell()?,
            used: row.next_cell()?,
        })
    }
}
