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
}

/// A database that tools may read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDefinition {
    /// Name of the source in tools.
    pub name: String,
    /// `postgres://user:password@host/database`, or the path of an SQLite file.
    pub url: SecretString,
    /// Tables and views that may be read, as `name` or `schema.name`. Empty allows all relations of its own schemas.
    #[serde(default)]
    pub relations: Vec<String>,
    /// Functions that may be called in addition to the built-in ones without side effects.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Maximum rows in a result.
    #[serde(default = "default_max_rows")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_rows: usize,
    /// Maximum bytes in a result.
    #[serde(default = "default_max_bytes")]
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_bytes: usize,
    /// Milliseconds that one query may take.
    #[serde(default = "default_query_timeout_ms")]
    #[schemars(range(min = 10, max = 3_600_000))]
    pub timeout_ms: u64,
}

fn default_max_rows() -> usize {
    1000
}

fn default_max_bytes() -> usize {
    1 << 20
}

fn default_query_timeout_ms() -> u64 {
    5000
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
        }
    }
}
