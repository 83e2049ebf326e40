//! The tables of the console: disabled tools and browser sessions.

use super::{CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store};

/// A browser session of the console.
#[derive(Debug)]
pub struct ConsoleSessionRow {
    /// SHA-256 of its cookie.
    pub hash: [u8; 32],
    /// SHA-256 of the token that it was opened with.
    pub token_hash: [u8; 32],
    /// When it expires, in milliseconds since the Unix epoch.
    pub expires_at: i64,
}

/// Server and name of a disabled tool.
struct DisabledToolRow(String, String);

const LIST_DISABLED: PortableStatement = PortableStatement {
    attempted: "list the disabled tools",
    sql: "SELECT server, tool FROM tool_off",
};
const PUT_DISABLED: PortableStatement = PortableStatement {
    attempted: "disable the tool",
    sql: "INSERT INTO tool_off (server, tool) VALUES ($1, $2)
          ON CONFLICT DO NOTHING RETURNING tool",
};
const DELETE_DISABLED: PortableStatement = PortableStatement {
    attempted: "enable the tool",
    sql: "DELETE FROM tool_off WHERE server = $1 AND tool = $2 RETURNING tool",
};
const LIST_SESSIONS: PortableStatement = PortableStatement {
    attempted: "list the sessions of the console",
    sql: "SELECT hash, token_hash, expires_at FROM console_session",
};
const PUT_SESSION: PortableStatement = PortableStatement {
    attempted: "save the session",
    sql: "INSERT INTO console_session (hash, token_hash, expires_at) VALUES ($1, $2, $3)
          ON CONFLICT DO NOTHING RETURNING expires_at",
};
const DELETE_SESSION: PortableStatement = PortableStatement {
    attempted: "end the session",
    sql: "DELETE FROM console_session WHERE hash = $1 RETURNING hash, token_hash, expires_at",
};
/// Deletes the sessions of the token with this name.
pub(super) const DELETE_SESSIONS_OF_TOKEN: PortableStatement = PortableStatement {
    attempted: "end the sessions of the token",
    sql: "DELETE FROM console_session WHERE token_hash IN
            (SELECT hash FROM token WHERE name = $1) RETURNING expires_at",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST_DISABLED,
    PUT_DISABLED,
    DELETE_DISABLED,
    LIST_SESSIONS,
    PUT_SESSION,
    DELETE_SESSION,
    DELETE_SESSIONS_OF_TOKEN,
];

impl Store {
    /// Lists the disabled tools as pairs of server and tool name.
    pub async fn disabled_tools(&self) -> Result<Vec<(String, String)>, Error> {
        let rows: Vec<DisabledToolRow> = self.query_as(LIST_DISABLED, Vec::new()).await?;
        Ok(rows
            .into_iter()
            .map(|DisabledToolRow(server, tool)| (server, tool))
            .collect())
    }

    /// Lists the browser sessions.
    pub async fn console_sessions(&self) -> Result<Vec<ConsoleSessionRow>, Error> {
        self.query_as(LIST_SESSIONS, Vec::new()).await
    }

    /// Saves a browser session.
    pub async fn put_console_session(&self, row: &ConsoleSessionRow) -> Result<(), Error> {
        let values = vec![
            row.hash.as_slice().into(),
            row.token_hash.as_slice().into(),
            row.expires_at.into(),
        ];
        self.execute(PUT_SESSION, values).await?;
        Ok(())
    }

    /// Deletes a browser session and returns it; `None` if there is none.
    pub async fn delete_console_session(
        &self,
        hash: &[u8; 32],
    ) -> Result<Option<ConsoleSessionRow>, Error> {
        let rows = self.query_as(DELETE_SESSION, vec![hash.as_slice().into()]);
        Ok(rows.await?.into_iter().next())
    }
}

/// The statement that switches a tool, given by its server and its name there.
pub(super) fn switch_statement(
    (server, tool): (String, String),
    on: bool,
) -> (PortableStatement, Vec<CellValue>) {
    let statement = if on { DELETE_DISABLED } else { PUT_DISABLED };
    (statement, vec![server.into(), tool.into()])
}

impl TryFrom<ResultRow> for DisabledToolRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?, row.next_cell()?))
    }
}

impl TryFrom<ResultRow> for ConsoleSessionRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            hash: row.next_cell()?,
            token_hash: row.next_cell()?,
            expires_at: row.next_cell()?,
        })
    }
}
