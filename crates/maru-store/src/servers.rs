//! MCP servers that the hub knows.

use std::fmt;

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store, StoreBackend, is_sealed};

/// A server as stored. Times are milliseconds since 1970.
#[derive(Clone, PartialEq)]
pub struct ServerRow {
    /// Unique, at most 36 characters.
    pub id: String,
    /// Unique, at most 100 characters.
    pub name: String,
    /// What it is for, at most 500 characters.
    pub description: Option<String>,
    /// How it is reached, at most 20 characters.
    pub transport_type: String,
    /// JSON; may hold secrets.
    pub config: String,
    /// At most 50 characters.
    pub version: Option<String>,
    /// Whether the hub connects to it when it starts.
    pub auto_connect: bool,
    /// Whether the hub offers it.
    pub enabled: bool,
    /// Who added it, at most 20 characters.
    pub origin: String,
    /// Whether changed tools are withheld (`pin`) or offered (`follow`).
    pub trust: String,
    /// The only protocol version that is spoken with it, at most 20 characters.
    pub protocol_version: Option<String>,
    /// When it was added.
    pub created_at: i64,
    /// When it was changed.
    pub updated_at: i64,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the servers",
    sql: "SELECT id, name, description, transport_type, config, version,
                 auto_connect, enabled, origin, trust, protocol_version, created_at, updated_at
          FROM mcp_servers",
};
const INSERT: PortableStatement = PortableStatement {
    attempted: "add the server",
    sql: "INSERT INTO mcp_servers (id, name, description, transport_type, config, version,
                                   auto_connect, enabled, origin, trust, protocol_version,
                                   created_at, updated_at)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
          ON CONFLICT DO NOTHING RETURNING name",
};
const UPDATE: PortableStatement = PortableStatement {
    attempted: "change the server",
    sql: "UPDATE mcp_servers SET description = $1, transport_type = $2, config = $3,
                 version = $4, auto_connect = $5, enabled = $6, origin = $7, trust = $8,
                 protocol_version = $9, updated_at = $10
          WHERE name = $11 RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the server",
    sql: "DELETE FROM mcp_servers WHERE name = $1 RETURNING name",
};
const LIST_REMOVED: PortableStatement = PortableStatement {
    attempted: "list the servers that were removed",
    sql: "SELECT name FROM mcp_server_removed",
};
const PUT_REMOVED: PortableStatement = PortableStatement {
    attempted: "note that the server was removed",
    sql: "INSERT INTO mcp_server_removed (name, removed_at) VALUES ($1, $2)
          ON CONFLICT (name) DO UPDATE SET removed_at = excluded.removed_at RETURNING name",
};
/// Every statement of this file that both back ends run.
pub(super) const STATEMENTS: &[PortableStatement] =
    &[LIST, INSERT, UPDATE, DELETE, LIST_REMOVED, PUT_REMOVED];

/// Free pages and the log still hold what was overwritten.
const ERASE_FREE_PAGES: [PortableStatement; 2] = [
    PortableStatement {
        attempted: "clean the file",
        sql: "VACUUM",
    },
    PortableStatement {
        attempted: "clean the file",
        sql: "PRAGMA wal_checkpoint(TRUNCATE)",
    },
];

/// What a sealed configuration is bound to.
fn associated_data(row: &ServerRow) -> String {
    format!("mcp_servers.config of {}", row.name)
}

impl Store {
    /// Every server, by name.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, Error> {
        let mut rows: Vec<ServerRow> = self.query_as(LIST, Vec::new()).await?;
        for row in &mut rows {
            // What cannot be opened stays as it is, for its reader to see.
            if let Some(config) = self.opened_config(row) {
                row.config = config;
            }
        }
        // Databases differ in how they order names; this is one order for all.
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// Adds a server; false, and nothing added, when its name or id is taken.
    pub async fn insert_server(&self, row: &ServerRow) -> Result<bool, Error> {
        let values = vec![
            row.id.as_str().into(),
            row.name.as_str().into(),
            row.description.as_deref().into(),
            row.transport_type.as_str().into(),
            self.sealed_config(row).as_str().into(),
            row.version.as_deref().into(),
            row.auto_connect.into(),
            row.enabled.into(),
            row.origin.as_str().into(),
            row.trust.as_str().into(),
            row.protocol_version.as_deref().into(),
            row.created_at.into(),
            row.updated_at.into(),
        ];
        self.execute(INSERT, values).await
    }

    /// Changes the server of that name, all but its id and when it was added;
    /// false when there is none.
    pub async fn update_server(&self, row: &ServerRow) -> Result<bool, Error> {
        let values = vec![
            row.description.as_deref().into(),
            row.transport_type.as_str().into(),
            self.sealed_config(row).as_str().into(),
            row.version.as_deref().into(),
            row.auto_connect.into(),
            row.enabled.into(),
            row.origin.as_str().into(),
            row.trust.as_str().into(),
            row.protocol_version.as_deref().into(),
            row.updated_at.into(),
            row.name.as_str().into(),
        ];
        self.execute(UPDATE, values).await
    }

    /// Seals the configurations that are written plainly; nothing of them stays.
    pub(super) async fn seal_server_configs(&self) -> Result<(), Error> {
        let rows: Vec<ServerRow> = self.query_as(LIST, Vec::new()).await?;
        let mut plain = rows.iter().filter(|it| !is_sealed(&it.config)).peekable();
        if plain.peek().is_none() {
            return Ok(());
        }
        for row in plain {
            self.update_server(row).await?;
        }
        if let StoreBackend::Sqlite(_) = self.backend {
            for statement in ERASE_FREE_PAGES {
                self.query(statement, Vec::new()).await?;
            }
        }
        Ok(())
    }

    fn sealed_config(&self, row: &ServerRow) -> String {
        match &self.sealer {
            // As it was read when it could not be opened.
            Some(seal) if !is_sealed(&row.config) => seal.seal(&associated_data(row), &row.config),
            _ => row.config.clone(),
        }
    }

    fn opened_config(&self, row: &ServerRow) -> Option<String> {
        self.sealer
            .as_ref()?
            .open(&associated_data(row), &row.config)
    }

    /// Deletes the server of that name and notes that it was removed, so that no file
    /// brings it back.
    pub async fn delete_server(&self, name: &str, now: i64) -> Result<(), Error> {
        let work = vec![
            (PUT_REMOVED, vec![name.into(), now.into()]),
            (DELETE, vec![name.into()]),
        ];
        self.execute_in_transaction(DELETE, work).await
    }

    /// Names of servers that were removed; some may have been registered again.
    pub async fn removed_servers(&self) -> Result<Vec<String>, Error> {
        let rows: Vec<RemovedServerRow> = self.query_as(LIST_REMOVED, Vec::new()).await?;
        Ok(rows.into_iter().map(|it| it.0).collect())
    }
}

struct RemovedServerRow(String);

impl TryFrom<ResultRow> for RemovedServerRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}

impl TryFrom<ResultRow> for ServerRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.next_cell()?,
            name: row.next_cell()?,
            description: row.next_cell()?,
            transport_type: row.next_cell()?,
            config: row.next_cell()?,
            version: row.next_cell()?,
            auto_connect: row.next_cell()?,
            enabled: row.next_cell()?,
            origin: row.next_cell()?,
            trust: row.next_cell()?,
            protocol_version: row.next_cell()?,
            created_at: row.next_cell()?,
            updated_at: row.next_cell()?,
        })
    }
}

/// Leaves the configuration out.
impl fmt::Debug for ServerRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerRow")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("description", &self.description)
            .field("transport_type", &self.transport_type)
            .field("version", &self.version)
            .field("auto_connect", &self.auto_connect)
            .field("enabled", &self.enabled)
            .field("origin", &self.origin)
            .field("created_at", &self.created_at)
            .field("updated_at", &self.updated_at)
            .finish_non_exhaustive()
    }
}
