//! Runs of the agent that have ended.

use super::{Cause, Error, Row, Statement, Store};

/// A run as stored.
#[derive(Clone, Debug)]
pub struct RunRow {
    /// Its id; ids sort by time.
    pub id: String,
    /// Who asked.
    pub user: String,
    /// When it began, in milliseconds since 1970.
    pub started_at: i64,
    /// All of it, as JSON.
    pub record: String,
}

const PUT: Statement = Statement {
    attempted: "keep the run",
    sql: "INSERT INTO agent_run (id, user_name, started_at, record) VALUES ($1, $2, $3, $4)
          ON CONFLICT (id) DO UPDATE SET record = excluded.record RETURNING id",
};
const FORGET: Statement = Statement {
    attempted: "forget old runs",
    sql: "DELETE FROM agent_run WHERE started_at < $1 RETURNING id",
};
const LIST: Statement = Statement {
    attempted: "list the runs",
    sql: "SELECT id, user_name, started_at, record FROM agent_run
          ORDER BY started_at DESC, id DESC LIMIT $1",
};
const LIST_OF: Statement = Statement {
    attempted: "list the runs",
    sql: "SELECT id, user_name, started_at, record FROM agent_run WHERE user_name = $1
          ORDER BY started_at DESC, id DESC LIMIT $2",
};
const GET: Statement = Statement {
    attempted: "find the run",
    sql: "SELECT id, user_name, started_at, record FROM agent_run WHERE id = $1",
};
/// Every statement of this file that both back ends run.
pub(super) const ALL: &[Statement] = &[PUT, FORGET, LIST, LIST_OF, GET];

impl Store {
    /// Keeps a run, and forgets those that began before `oldest`.
    pub async fn put_run(&self, row: &RunRow, oldest: i64) -> Result<(), Error> {
        let values = vec![
            row.id.as_str().into(),
            row.user.as_str().into(),
            row.started_at.into(),
            row.record.as_str().into(),
        ];
        self.run_all(PUT, vec![(PUT, values), (FORGET, vec![oldest.into()])])
            .await
    }

    /// The newest runs, of `user` or of everyone, newest first.
    pub async fn runs(&self, user: Option<&str>, most: i64) -> Result<Vec<RunRow>, Error> {
        match user {
            Some(user) => self.rows(LIST_OF, vec![user.into(), most.into()]).await,
            None => self.rows(LIST, vec![most.into()]).await,
        }
    }

    /// One run.
    pub async fn run_of(&self, id: &str) -> Result<Option<RunRow>, Error> {
        let rows: Vec<RunRow> = self.rows(GET, vec![id.into()]).await?;
        Ok(rows.into_iter().next())
    }
}

impl TryFrom<Row> for RunRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            id: row.take()?,
            user: row.take()?,
            started_at: row.take()?,
            record: row.take()?,
        })
    }
}
