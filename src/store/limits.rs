//! How often a day tools may be called, and how often they were.

use super::{Cause, Error, Row, Statement, Store};

/// A daily limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// `USER` or `TOOL`.
    pub target_type: String,
    /// The name of the principal or of the tool.
    pub target_id: String,
    /// Calls a day.
    pub max_count: Option<i64>,
    /// Calls a minute.
    pub max_per_minute: Option<i64>,
    /// Calls of the day that was asked for.
    pub used: i64,
}

const LIST: Statement = Statement {
    attempted: "list the daily limits",
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
const PUT: Statement = Statement {
    attempted: "save the daily limit",
    sql: "INSERT INTO h_mcp_tool_limit (target_type, target_id, max_count) VALUES ($1, $2, $3)
          ON CONFLICT (target_type, target_id) DO UPDATE SET max_count = excluded.max_count
          RETURNING target_id",
};
const PUT_RATE: Statement = Statement {
    attempted: "save the limit",
    sql: "INSERT INTO tool_rate (target_type, target_id, per_minute) VALUES ($1, $2, $3)
          ON CONFLICT (target_type, target_id) DO UPDATE SET per_minute = excluded.per_minute
          RETURNING target_id",
};
const REMOVE_RATE: Statement = Statement {
    attempted: "remove the limit",
    sql: "DELETE FROM tool_rate WHERE target_type = $1 AND target_id = $2
          RETURNING target_id",
};
const REMOVE: Statement = Statement {
    attempted: "remove the daily limit",
    sql: "DELETE FROM h_mcp_tool_limit WHERE target_type = $1 AND target_id = $2
          RETURNING target_id",
};
const COUNT: Statement = Statement {
    attempted: "count the call",
    sql: "INSERT INTO h_mcp_tool_usage (target_type, target_id, day, used) VALUES ($1, $2, $3, 1)
          ON CONFLICT (target_type, target_id) DO UPDATE SET
            used = CASE WHEN h_mcp_tool_usage.day = excluded.day
                        THEN h_mcp_tool_usage.used + 1 ELSE 1 END,
            day = excluded.day
          WHERE h_mcp_tool_usage.day <> excluded.day OR h_mcp_tool_usage.used < $4
          RETURNING used",
};
/// Every statement of this file that both back ends run.
pub(super) const ALL: &[Statement] = &[LIST, PUT, PUT_RATE, REMOVE_RATE, REMOVE, COUNT];

impl Store {
    /// Every limit, with what was used of it on `day`, counted from 1970.
    pub async fn limits(&self, day: i64) -> Result<Vec<LimitRow>, Error> {
        self.rows(LIST, vec![day.into()]).await
    }

    /// Sets how often a day, and how often a minute; what is absent stays. Both, or
    /// neither.
    pub async fn put_limits(
        &self,
        (target_type, target_id): (&str, &str),
        day: Option<i64>,
        minute: Option<i64>,
    ) -> Result<(), Error> {
        let work = [(PUT, day), (PUT_RATE, minute)];
        let work: Vec<_> = work
            .into_iter()
            .filter_map(|(statement, most)| {
                let values = vec![target_type.into(), target_id.into(), most?.into()];
                Some((statement, values))
            })
            .collect();
        self.run_all(PUT, work).await
    }

    /// Removes both limits of a target; false when there is none.
    pub async fn remove_limit(&self, target_type: &str, target_id: &str) -> Result<bool, Error> {
        let limits = self.limits(0).await?;
        let known = limits
            .iter()
            .any(|it| it.target_type == target_type && it.target_id == target_id);
        let values = || vec![target_type.into(), target_id.into()];
        let work = vec![(REMOVE_RATE, values()), (REMOVE, values())];
        self.run_all(REMOVE, work).await?;
        Ok(known)
    }

    /// Counts one use on `day`, unless `max_count` were counted already; says
    /// whether it did.
    pub async fn count_use(
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
        self.wrote(COUNT, values).await
    }
}

impl TryFrom<Row> for LimitRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            target_type: row.take()?,
            target_id: row.take()?,
            max_count: row.take()?,
            max_per_minute: row.take()?,
            used: row.take()?,
        })
    }
}
