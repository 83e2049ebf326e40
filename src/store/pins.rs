//! Definitions of tools that were accepted.

use super::{Cause, Error, Row, Statement, Store, Value};
use crate::clock;

/// An accepted definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinRow {
    /// The tool's name on its server.
    pub tool: String,
    /// SHA-256 of the definition.
    pub digest: [u8; 32],
    /// The definition as JSON, unless it is very long.
    pub definition: Option<String>,
}

const LIST: Statement = Statement {
    attempted: "list the accepted tools",
    sql: "SELECT tool, digest, definition FROM tool_pin WHERE server = $1",
};
const PUT: Statement = Statement {
    attempted: "accept the tool",
    sql: "INSERT INTO tool_pin (server, tool, digest, definition, accepted_at)
          VALUES ($1, $2, $3, $4, $5)
          ON CONFLICT (server, tool) DO UPDATE SET digest = excluded.digest,
            definition = excluded.definition, accepted_at = excluded.accepted_at
          RETURNING tool",
};
const DELETE: Statement = Statement {
    attempted: "forget the accepted tools",
    sql: "DELETE FROM tool_pin WHERE server = $1 RETURNING tool",
};
/// Every statement of this file that both back ends run.
pub(super) const ALL: &[Statement] = &[LIST, PUT, DELETE];

impl Store {
    /// What was accepted of `server`.
    pub async fn pins(&self, server: &str) -> Result<Vec<PinRow>, Error> {
        self.rows(LIST, vec![server.into()]).await
    }

    /// Accepts all of `rows`, or none.
    pub async fn put_pins(&self, server: &str, rows: Vec<PinRow>) -> Result<(), Error> {
        let put = |row: PinRow| {
            let values = vec![
                server.into(),
                row.tool.as_str().into(),
                row.digest.as_slice().into(),
                row.definition.as_deref().into(),
                clock::now().into(),
            ];
            (PUT, values)
        };
        let work: Vec<(_, Vec<Value>)> = rows.into_iter().map(put).collect();
        self.run_all(PUT, work).await
    }

    /// Forgets everything of `server`.
    pub async fn delete_pins(&self, server: &str) -> Result<(), Error> {
        self.wrote(DELETE, vec![server.into()]).await?;
        Ok(())
    }
}

impl TryFrom<Row> for PinRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            tool: row.take()?,
            digest: row.take()?,
            definition: row.take()?,
        })
    }
}
