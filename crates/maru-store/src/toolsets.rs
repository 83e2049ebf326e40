//! The tables of toolsets and of overrides of tools.

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store};

/// A toolset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsetRow {
    /// The unique name.
    pub name: String,
    /// What it selects, as JSON.
    pub definition: String,
}

/// How a tool is described to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOverrideRow {
    /// The server of the tool.
    pub server: String,
    /// The name of the tool on its server.
    pub tool: String,
    /// What differs from the server's description, as JSON.
    pub definition: String,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the toolsets",
    sql: "SELECT name, definition FROM toolset ORDER BY name",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the toolset",
    sql: "INSERT INTO toolset (name, definition) VALUES ($1, $2)
          ON CONFLICT (name) DO UPDATE SET definition = excluded.definition
          RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "remove the toolset",
    sql: "DELETE FROM toolset WHERE name = $1 RETURNING name",
};
const LIST_OVERRIDES: PortableStatement = PortableStatement {
    attempted: "list the overrides of tools",
    sql: "SELECT server, tool, definition FROM tool_override ORDER BY server, tool",
};
const PUT_OVERRIDE: PortableStatement = PortableStatement {
    attempted: "save the override of the tool",
    sql: "INSERT INTO tool_override (server, tool, definition) VALUES ($1, $2, $3)
          ON CONFLICT (server, tool) DO UPDATE SET definition = excluded.definition
          RETURNING tool",
};
const DELETE_OVERRIDE: PortableStatement = PortableStatement {
    attempted: "remove the override of the tool",
    sql: "DELETE FROM tool_override WHERE server = $1 AND tool = $2 RETURNING tool",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST,
    PUT,
    DELETE,
    LIST_OVERRIDES,
    PUT_OVERRIDE,
    DELETE_OVERRIDE,
];

impl Store {
    /// Lists the toolsets by name.
    pub async fn toolsets(&self) -> Result<Vec<ToolsetRow>, Error> {
        self.query_as(LIST, Vec::new()).await
    }

    /// Adds a toolset, or replaces the one with its name.
    pub async fn put_toolset(&self, row: &ToolsetRow) -> Result<(), Error> {
        let values = vec![row.name.as_str().into(), row.definition.as_str().into()];
        self.execute(PUT, values).await.map(drop)
    }

    /// Removes a toolset; returns whether it existed.
    pub async fn delete_toolset(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![name.into()]).await
    }

    /// Lists the overrides of tools by server and tool.
    pub async fn tool_overrides(&self) -> Result<Vec<ToolOverrideRow>, Error> {
        self.query_as(LIST_OVERRIDES, Vec::new()).await
    }

    /// Adds the override of a tool, or replaces it.
    pub async fn put_tool_override(&self, row: &ToolOverrideRow) -> Result<(), Error> {
        let values = vec![
            row.server.as_str().into(),
            row.tool.as_str().into(),
            row.definition.as_str().into(),
        ];
        self.execute(PUT_OVERRIDE, values).await.map(drop)
    }

    /// Removes the override of a tool; returns whether it existed.
    pub async fn delete_tool_override(&self, server: &str, tool: &str) -> Result<bool, Error> {
        self.execute(DELETE_OVERRIDE, vec![server.into(), tool.into()])
            .await
    }
}

impl TryFrom<ResultRow> for ToolsetRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            definition: row.next_cell()?,
        })
    }
}

impl TryFrom<ResultRow> for ToolOverrideRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            server: row.next_cell()?,
            tool: row.next_cell()?,
            definition: row.next_cell()?,
        })
    }
}
