//! Keys of what the data tools work on: embeddings, the index, databases.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretString;

/// Where texts become vectors.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddingSettings {
    /// Address of an OpenAI-compatible endpoint, such as `http://localhost:8080/v1/embeddings`. Without it a built-in embedder is used, which knows words but no meaning. Also `TEXT_EMBEDDING_MODEL_URL`.
    pub url: Option<String>,
    /// Model that the endpoint is asked for. Also `TEXT_EMBEDDING_MODEL_NAME`.
    pub model: Option<String>,
    /// Key of the endpoint.
    pub api_key: Option<SecretString>,
    /// Milliseconds that one batch of texts may take.
    #[schemars(range(min = 100, max = 600_000))]
    pub timeout_ms: Option<u64>,
}

/// The ChromaDB server that is searched instead of the embedded index.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChromaDbSettings {
    /// Its host; without one the embedded index is used. Also `CHROMADB_HOST`.
    pub host: Option<String>,
    /// Its port. Also `CHROMADB_PORT`.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// The collection that `get_sim_search` searches, also in the embedded index. Also `CHROMADB_COLLECTION_NAME`.
    pub collection: String,
    /// Headers that the server, or a proxy before it, asks for.
    pub headers: BTreeMap<String, SecretString>,
    /// Whether to use HTTPS.
    pub secure: bool,
}

/// The PostgreSQL database behind `query_bga_database`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresSettings {
    /// Its host; without one the sample database is queried. Also `POSTGRESQL_DB_HOST`.
    pub host: Option<String>,
    /// Its port. Also `POSTGRESQL_DB_PORT`.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
    /// The role, best one that may only read. Also `POSTGRESQL_DB_USER`.
    pub user: String,
    /// Its password. Also `POSTGRESQL_DB_PASS`.
    pub password: SecretString,
    /// The database. Also `POSTGRESQL_DB_NAME`.
    pub database: String,
}

/// A database that tools may read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceDefinition {
    /// What tools call it.
    pub name: String,
    /// `postgres://user:password@host/database`, or the path of an SQLite file.
    pub url: SecretString,
    /// Tables and views that may be read, as `name` or `schema.name`; none means all of its own.
    #[serde(default)]
    pub relations: Vec<String>,
    /// Functions that may be called beside the built-in ones that only calculate.
    #[serde(default)]
    pub functions: Vec<String>,
    /// Rows in an answer.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_rows: usize,
    /// Bytes of an answer.
    #[serde(default = "mebibyte")]
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_bytes: usize,
    /// Milliseconds that one query may take.
    #[serde(default = "five_seconds")]
    #[schemars(range(min = 10, max = 3_600_000))]
    pub timeout_ms: u64,
}

fn thousand() -> usize {
    1000
}

fn mebibyte() -> usize {
    1 << 20
}

fn five_seconds() -> u64 {
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
