//! What the console keeps: switched-off tools and signed-in browsers.

use super::{Cause, Error, Row, Statement, Store};

/// A browser that is signed in.
#[derive(Debug)]
pub struct SessionRow {
    /// SHA-256 of what its cookie holds.
    pub hash: [u8; 32],
    /// SHA-256 of the token it stands for.
    pub token_hash: [u8; 32],
    /// When it ends, in milliseconds since 1970.
    pub expires_at: i64,
}

/// A tool that is switched off.
struct OffRow(String, String);

const LIST_OFF: Statement = Statement {
    attempted: "list the switched-off tools",
    sql: "SELECT server, tool FROM tool_off",
};
const PUT_OFF: Statement = Statement {
    attempted: "switch the tool off",
    sql: "INSERT INTO tool_off (server, tool) VALUES ($1, $2)
          ON CONFLICT DO NOTHING RETURNING tool",
};
const DELETE_OFF: Statement = Statement {
    attempted: "switch the tool on",
    sql: "DELETE FROM tool_off WHERE server = $1 AND tool = $2 RETURNING tool",
};
const LIST_SESSIONS: Statement = Statement {
    attempted: "list the sessions of the console",
    sql: "SELECT hash, token_hash, expires_at FROM console_session",
};
const PUT_SESSION: Statement = Statement {
    attempted: "keep the session",
    sql: "INSERT INTO console_session (hash, token_hash, expires_at) VALUES ($1, $2, $3)
          ON CONFLICT DO NOTHING RETURNING expires_at",
};
const DELETE_SESSION: Statement = Statement {
    attempted: "end the session",
    sql: "DELETE FROM console_session WHERE hash = $1 RETURNING expires_at",
};
/// Every statement of this file that both back ends run.
pub(super) const ALL: &[Statement] = &[
    LIST_OFF,
    PUT_OFF,
    DELETE_OFF,
    LIST_SESSIONS,
    PUT_SESSION,
    DELETE_SESSION,
];

impl Store {
    /// Every tool that is switched off: its server and its name there.
    pub async fn tools_off(&self) -> Result<Vec<(String, String)>, Error> {
        let rows: Vec<OffRow> = self.rows(LIST_OFF, Vec::new()).await?;
        Ok(rows
            .into_iter()
            .map(|OffRow(server, tool)| (server, tool))
            .collect())
    }

    /// Switches tools, each given by its server and its name there, on or off: all of
    /// them, or none.
    pub async fn set_tools(&self, tools: Vec<(String, String)>, on: bool) -> Result<(), Error> {
        let statement = if on { DELETE_OFF } else { PUT_OFF };
        let values = |(server, tool): (String, String)| vec![server.into(), tool.into()];
        let work = tools.into_iter().map(move |it| (statement, values(it)));
        self.run_all(statement, work).await
    }

    /// Every signed-in browser.
    pub async fn sessions(&self) -> Result<Vec<SessionRow>, Error> {
        self.rows(LIST_SESSIONS, Vec::new()).await
    }

    /// Keeps a signed-in browser.
    pub async fn put_session(&self, row: &SessionRow) -> Result<(), Error> {
        let values = vec![
            row.hash.as_slice().into(),
            row.token_hash.as_slice().into(),
            row.expires_at.into(),
        ];
        self.wrote(PUT_SESSION, values).await?;
        Ok(())
    }

    /// Forgets a signed-in browser.
    pub async fn delete_session(&self, hash: &[u8; 32]) -> Result<(), Error> {
        self.wrote(DELETE_SESSION, vec![hash.as_slice().into()])
            .await?;
        Ok(())
    }
}

impl TryFrom<Row> for OffRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self(row.take()?, row.take()?))
    }
}

impl TryFrom<Row> for SessionRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            hash: row.take()?,
            token_hash: row.take()?,
            expires_at: row.take()?,
        })
    }
}
