//! Settings of the data tools: embeddings, index, databases.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretString;

/// The embedding endpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingSettings {
    /// URL of an OpenAI-compatible endpoint, such as `http://localhost:8080/v1/embeddings`. The default is a built-in embedder, which matches words but not meaning. Also `TEXT_EMBEDDING_MODEL_URL`.
    pub url: Option<String>,
    /// Model name sent to the endpoint. Also `TEXT_EMBEDDING_MODEL_NAME`.
    pub model: Option<String>,
    /// API key of the endpoint.
    pub api_key: Option<SecretString>,
    /// Milliseconds that one batch of texts may take.
    #[schemars(range(min = 100, max = 600_000))]
    pub timeout_ms: Option<u64>,
}

/// The ChromaDB server that replaces the embedded index.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChromaDbSettings {
    /// Host of the server. The default is the embedded index. Also `CHROMADB_HOST`.
    pub host: Option<String>,
    /// Port of the server. Also `CHROMADB_PORT`.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Collection that `get_sim_search` searches, in the embedded index as well. Also `CHROMADB_COLLECTION_NAME`.
    pub collection: String,
    /// Headers that the server, or a proxy in front of it, requires.
    pub headers: BTreeMap<String, SecretString>,
    /// Whether to use HTTPS.
    pub secure: bool,
}

/// A table with a column of pgvector that `get_sim_search` searches instead of the index.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PgvectorSettings {
    /// Name of the source that has the table.
    pub source: String,
    /// The table or view, as `name` or `schema.name`.
    pub table: String,
    /// The column of the texts that are returned.
    pub text_column: String,
    /// The column of their vectors, which the configured embedding model made.
    pub vector_column: String,
    /// The model that made the vectors. If it is set, a search with another embedding model is refused.
    #[serde(default)]
    pub model: Option<String>,
}

/// The PostgreSQL database behind `query_bga_database`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresSettings {
    /// Host of the database. The default is the sample database. Also `POSTGRESQL_DB_HOST`.
    pub host: Option<String>,
    /// Port of the database. Also `POSTGRESQL_DB_PORT`.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// Role, preferably a read-only one. Also `POSTGRESQL_DB_USER`.
    pub user: String,
    /// Password of the role. Also `POSTGRESQL_DB_PASS`.
    pub password: SecretString,
    /// Name of the database. Also `POSTGRESQL_DB_NAME`.
    pub database: String,
    /// Whether the connection is encrypted and the server verified: `disable`, `prefer`, `require`, `verify-ca` or `verify-full`. Also `POSTGRESQL_DB_SSLMODE`.
    #[schemars(regex(pattern = r"^(disable|allow|prefer|require|verify-ca|verify-full)$"))]
    pub sslmode: Option<String>,
    /// PEM file of the authorities that may issue the server's certificate, or `system`. Also `POSTGRESQL_DB_SSLROOTCERT`.
    pub sslrootcert: Option<String>,
    /// PEM file of the client certificate. Also `POSTGRESQL_DB_SSLCERT`.
    pub sslcert: Option<String>,
    /// PEM file of the key of the client certificate. Also `POSTGRESQL_DB_SSLKEY`.
    pub sslkey: Option<String>,
    /// What queries may read, and their limits.
    #[serde(flatten)]
    pub bounds: QueryBounds,
}

/// What the queries of a source may read, and their limits.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QueryBounds {
    /// Tables and views that may be read, as `name` or `schema.name`. Empty allows all relations of its own schemas.
    pub relations: Vec<String>,
    /// Functions that may be called in addition to the built-in ones without side effects.
    pub functions: Vec<String>,
    /// Maximum rows in a result.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_rows: usize,
    /// Maximum bytes in a result.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_bytes: usize,
    /// Milliseconds that one query may run, from when it has a connection.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub timeout_ms: u64,
    /// Milliseconds that a query waits for a connection while others have them all.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub acquire_timeout_ms: u64,
    /// Milliseconds that a query waits for a lock (PostgreSQL's `lock_timeout`).
    #[schemars(range(min = 1, max = 3_600_000))]
    pub lock_timeout_ms: u64,
    /// Idle connections that stay open.
    #[schemars(range(min = 0, max = 1000))]
    pub min_connections: usize,
    /// Connections, and so queries, at the same time.
    #[schemars(range(min = 1, max = 1000))]
    pub max_connections: usize,
    /// PostgreSQL: schemas in which names without one are looked up. The default is the search path of the role.
    pub search_path: Vec<String>,
    /// PostgreSQL: settings such as `app.user` that a query's transaction has, for row-level security, and the value of the caller that each gets: `name`, `role`, or a claim of its token.
    pub caller_settings: BTreeMap<String, String>,
    /// Sample values of each column that `describe_table` shows, of columns that the role may read. 0 shows none.
    #[schemars(range(min = 0, max = 20))]
    pub sample_values: usize,
}

/// A database that tools may read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDefinition {
    /// Name of the source in tools.
    pub name: String,
    /// `postgres://user:password@host/database?sslmode=verify-full`, or the path of an SQLite file.
    pub url: SecretString,
    /// What queries may read, and their limits.
    #[serde(flatten)]
    pub bounds: QueryBounds,
}

impl SourceDefinition {
    /// A source with the default bounds.
    pub fn new(name: &str, url: SecretString) -> Self {
        Self {
            name: name.to_owned(),
            url,
            bounds: QueryBounds::default(),
        }
    }
}

impl Default for QueryBounds {
    fn default() -> Self {
        Self {
            relations: Vec::new(),
            functions: Vec::new(),
            max_rows: 1000,
            max_bytes: 1 << 20,
            timeout_ms: 5000,
            acquire_timeout_ms: 30_000,
            lock_timeout_ms: 2000,
            min_connections: 5,
            max_connections: 20,
            search_path: Vec::new(),
            caller_settings: BTreeMap::new(),
            sample_values: 0,
        }
    }
}

impl Default for ChromaDbSettings {
    fn default() -> Self {
        Self {
            host: None,
            port: 8000,
            collection: "documents".to_owned(),
            headers: BTreeMap::new(),
            secure: false,
        }
    }
}

impl Default for PostgresSettings {
    fn default() -> Self {
        Self {
            host: None,
            port: 5432,
            user: "postgres".to_owned(),
            password: SecretString::from(String::new()),
            database: "postgres".to_owned(),
            sslmode: None,
            sslrootcert: None,
            sslcert: None,
            sslkey: None,
            bounds: QueryBounds::default(),
        }
    }
}
