//! Finds servers in an MCP registry: at an address with the registry's read API, or in a file
//! with an answer of it.

mod server_document;

use std::{path::PathBuf, time::Duration};

use maru_http::{AddressPolicy, ClientTls, JsonService, ServiceRequest, json_service};
use maru_runtime::tasks::run_blocking;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use thiserror::Error;

pub use server_document::{FoundServer, ServerInstallation};

/// Where servers are found.
#[derive(Debug)]
pub enum McpRegistry {
    /// The read API at this address.
    Address(Box<JsonService>),
    /// A file with an answer of the API.
    File(PathBuf),
}

/// Why servers cannot be found.
#[derive(Debug, Error)]
pub enum McpRegistryError {
    /// The registry did not answer as a registry does.
    #[error(transparent)]
    Service(#[from] json_service::Error),
    /// The file cannot be read.
    #[error("cannot read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file does not hold what it should.
    #[error("{0} is not an answer of an MCP registry: it has no list \"servers\"")]
    Format(PathBuf),
}

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RETRIES: u32 = 1;
/// How many servers a search returns.
const MAX_FOUND_SERVERS: usize = 30;
const MAX_FILE_BYTES: u64 = 32 << 20;

impl McpRegistry {
    /// Opens the registry of a setting: an address, or else a file.
    pub fn open(location: &str, policy: &AddressPolicy) -> Result<Self, String> {
        if !location.starts_with("http://") && !location.starts_with("https://") {
            return Ok(Self::File(location.into()));
        }
        let target = policy.authorize_configured(location);
        let target = target.map_err(|error| format!("mcp.registry: {error}"))?;
        let service = JsonService::new(target, ClientTls::default(), REQUEST_TIMEOUT);
        Ok(Self::Address(Box::new(
            service.with_max_retries(MAX_RETRIES),
        )))
    }

    /// The servers whose name, title or description has `word`.
    pub async fn search(&self, word: &str) -> Result<Vec<FoundServer>, McpRegistryError> {
        let document = match self {
            Self::Address(service) => {
                let word = utf8_percent_encode(word, NON_ALPHANUMERIC);
                let path =
                    format!("/v0.1/servers?search={word}&version=latest&limit={MAX_FOUND_SERVERS}");
                service.send_for_json(&ServiceRequest::get(path)).await?
            }
            Self::File(path) => read_file(path.clone()).await?,
        };
        let found = server_document::parse_servers(&document);
        let matching: Vec<FoundServer> = match self {
            // The registry has searched already, perhaps in more than it shows.
            Self::Address(_) => found.take(MAX_FOUND_SERVERS).collect(),
            Self::File(_) => found
                .filter(|it| it.matches(word))
                .take(MAX_FOUND_SERVERS)
                .collect(),
        };
        Ok(matching)
    }
}

async fn read_file(path: PathBuf) -> Result<Value, McpRegistryError> {
    let read = move || {
        let failed = |source| McpRegistryError::File {
            path: path.clone(),
            source,
        };
        let size = std::fs::metadata(&path).map_err(failed)?.len();
        let text = if size <= MAX_FILE_BYTES {
            std::fs::read(&path).map_err(failed)?
        } else {
            Vec::new()
        };
        let document: Value = serde_json::from_slice(&text).unwrap_or_default();
        let servers = &document["servers"];
        (servers.is_array() || document.is_array())
            .then_some(document)
            .ok_or_else(|| McpRegistryError::Format(path.clone()))
    };
    let read = run_blocking(read).await;
    read.unwrap_or_else(|| {
        let source = std::io::Error::other("the hub is stopping");
        let path = PathBuf::new();
        Err(McpRegistryError::File { path, source })
    })
}
