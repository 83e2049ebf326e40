//! The tables of registered and removed MCP servers.

use std::fmt;

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store, StoreBackend, is_sealed};

/// A registered MCP server. Times are milliseconds since the Unix epoch.
#[derive(Clone, PartialEq)]
pub struct ServerRow {
    /// Unique, at most 36 characters.
    pub id: String,
    /// Unique, at most 100 characters.
    pub name: String,
    /// A description for people, at most 500 characters.
    pub description: Option<String>,
    /// The transport, at most 20 characters.
    pub transport_type: String,
    /// The configuration as JSON, which may contain secrets.
    pub config: String,
    /// The version that the user gave it, at most 50 characters.
    pub version: Option<String>,
    /// Whether the hub connects to it at start.
    pub auto_connect: bool,
    /// Whether its tools are available.
    pub enabled: bool,
    /// Where it was registered (`api`, a file), at most 20 characters.
    pub origin: String,
    /// Whether changed tools are withheld (`pin`) or accepted (`follow`).
    pub trust: String,
    /// The protocol version to use instead of negotiating one, at most 20 characters.
    pub protocol_version: Option<String>,
    /// When it was registered.
    pub created_at: i64,
    /// When it was last changed.
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
    attempted: "record that the server was removed",
    sql: "INSERT INTO mcp_server_removed (name, removed_at) VALUES ($1, $2)
          ON CONFLICT (name) DO UPDATE SET removed_at = excluded.removed_at RETURNING name",
};
/// The statements of these tables that run on both back ends.
pub(super) const STATEMENTS: &[PortableStatement] =
    &[LIST, INSERT, UPDATE, DELETE, LIST_REMOVED, PUT_REMOVED];

/// Removes overwritten values from free pages and the write-ahead log.
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

/// The associated data that binds an encrypted configuration to its server.
fn associated_data(row: &ServerRow) -> String {
    format!("mcp_servers.config of {}", row.name)
}

impl Store {
    /// Lists the servers, sorted by name.
    pub async fn servers(&self) -> Result<Vec<ServerRow>, Error> {
        let mut rows: Vec<ServerRow> = self.query_as(LIST, Vec::new()).await?;
        for row in &mut rows {
            // A configuration that cannot be decrypted stays encrypted; its reader
            // reports that.
            if let Some(config) = self.opened_config(row) {
                row.config = config;
            }
        }
        // Collations differ between databases; this order is the same for all.
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    /// Inserts a server; false if its name or id is taken.
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

    /// Updates the server of that name except its id and creation time; false if there is
    /// none.
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

    /// Encrypts the configurations that are stored as plain text, and erases the plain
    /// text from the file.
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
            // An encrypted configuration could not be decrypted when it was read.
            Some(sealer) if !is_sealed(&row.config) => {
                sealer.seal(&associated_data(row), &row.config)
            }
            _ => row.config.clone(),
        }
    }

    fn opened_config(&self, row: &ServerRow) -> Option<String> {
        self.sealer
            .as_ref()?
            .open(&associated_data(row), &row.config)
    }

    /// Deletes a server and records its removal, so that a configuration file does not
    /// register it again.
    pub async fn delete_server(&self, name: &str, now: i64) -> Result<(), Error> {
        let work = vec![
            (PUT_REMOVED, vec![name.into(), now.into()]),
            (DELETE, vec![name.into()]),
        ];
        self.execute_in_transaction(DELETE, work).await
    }

    /// Deletes the server of that name. A file may bring it back.
    pub async fn forget_server(&self, name: &str) -> Result<(), Error> {
        self.execute(DELETE, vec![name.into()]).await.map(drop)
    }

    /// Lists the names of removed servers; some may have been registered again.
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

/// Leaves out the configuration, which may contain secrets.
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
