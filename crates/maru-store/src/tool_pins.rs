//! The table of pinned tool definitions.

use maru_runtime::clock;

use super::{CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store};

/// The accepted definition of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolPinRow {
    /// The tool's name on its server.
    pub tool: String,
    /// SHA-256 of the definition.
    pub digest: [u8; 32],
    /// The definition as JSON; absent if it is very long.
    pub definition: Option<String>,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the pinned tools",
    sql: "SELECT tool, digest, definition FROM tool_pin WHERE server = $1",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "pin the tool",
    sql: "INSERT INTO tool_pin (server, tool, digest, definition, accepted_at)
          VALUES ($1, $2, $3, $4, $5)
          ON CONFLICT (server, tool) DO UPDATE SET digest = excluded.digest,
            definition = excluded.definition, accepted_at = excluded.accepted_at
          RETURNING tool",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the pinned tools",
    sql: "DELETE FROM tool_pin WHERE server = $1 RETURNING tool",
};
/// The statements of this table.
pub(super) const STATEMENTS: &[PortableStatement] = &[LIST, PUT, DELETE];

impl Store {
    /// Lists the pinned tools of `server`.
    pub async fn pins(&self, server: &str) -> Result<Vec<ToolPinRow>, Error> {
        self.query_as(LIST, vec![server.into()]).await
    }

    /// Pins `rows` in one transaction.
    pub async fn put_pins(&self, server: &str, rows: Vec<ToolPinRow>) -> Result<(), Error> {
        let put = |row: ToolPinRow| {
            let values = vec![
                server.into(),
                row.tool.as_str().into(),
                row.digest.as_slice().into(),
                row.definition.as_deref().into(),
                clock::now_ms().into(),
            ];
            (PUT, values)
        };
        let work: Vec<(_, Vec<CellValue>)> = rows.into_iter().map(put).collect();
        self.execute_in_transaction(PUT, work).await
    }

    /// Deletes the pins of `server`.
    pub async fn delete_pins(&self, server: &str) -> Result<(), Error> {
        self.execute(DELETE, vec![server.into()]).await?;
        Ok(())
    }
}

impl TryFrom<ResultRow> for ToolPinRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            tool: row.next_cell()?,
            digest: row.next_cell()?,
            definition: row.next_cell()?,
        })
    }
}
