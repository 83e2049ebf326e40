//! The table of finished agent runs.

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store};

/// A finished agent run.
#[derive(Clone, Debug)]
pub struct AgentRunRow {
    /// The id; ids sort by time.
    pub id: String,
    /// The principal who started it.
    pub user: String,
    /// When it started, in milliseconds since the Unix epoch.
    pub started_at: i64,
    /// The whole run as JSON.
    pub record: String,
}

const PUT: PortableStatement = PortableStatement {
    attempted: "save the run",
    sql: "INSERT INTO agent_run (id, user_name, started_at, record) VALUES ($1, $2, $3, $4)
          ON CONFLICT (id) DO UPDATE SET record = excluded.record RETURNING id",
};
const DELETE_OLD: PortableStatement = PortableStatement {
    attempted: "delete old runs",
    sql: "DELETE FROM agent_run WHERE started_at < $1 RETURNING id",
};
const LIST: PortableStatement = PortableStatement {
    attempted: "list the runs",
    sql: "SELECT id, user_name, started_at, record FROM agent_run
          ORDER BY started_at DESC, id DESC LIMIT $1",
};
const LIST_BY_USER: PortableStatement = PortableStatement {
    attempted: "list the runs",
    sql: "SELECT id, user_name, started_at, record FROM agent_run WHERE user_name = $1
          ORDER BY started_at DESC, id DESC LIMIT $2",
};
const GET: PortableStatement = PortableStatement {
    attempted: "find the run",
    sql: "SELECT id, user_name, started_at, record FROM agent_run WHERE id = $1",
};
/// The statements of this table.
pub(super) const STATEMENTS: &[PortableStatement] = &[PUT, DELETE_OLD, LIST, LIST_BY_USER, GET];

impl Store {
    /// Saves a run and deletes those that started before `oldest`.
    pub async fn put_run(&self, row: &AgentRunRow, oldest: i64) -> Result<(), Error> {
        let values = vec![
            row.id.as_str().into(),
            row.user.as_str().into(),
            row.started_at.into(),
            row.record.as_str().into(),
        ];
        self.execute_in_transaction(PUT, vec![(PUT, values), (DELETE_OLD, vec![oldest.into()])])
            .await
    }

    /// Lists the newest runs, of `user` or of everyone, newest first.
    pub async fn runs(&self, user: Option<&str>, limit: i64) -> Result<Vec<AgentRunRow>, Error> {
        match user {
            Some(user) => {
                self.query_as(LIST_BY_USER, vec![user.into(), limit.into()])
                    .await
            }
            None => self.query_as(LIST, vec![limit.into()]).await,
        }
    }

    /// Finds a run by its id.
    pub async fn find_run(&self, id: &str) -> Result<Option<AgentRunRow>, Error> {
        let rows: Vec<AgentRunRow> = self.query_as(GET, vec![id.into()]).await?;
        Ok(rows.into_iter().next())
    }
}

impl TryFrom<ResultRow> for AgentRunRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.next_cell()?,
            user: row.next_cell()?,
            started_at: row.next_cell()?,
            record: row.next_cell()?,
        })
    }
}
