//! `/api/mcp/registry`: servers of the configured MCP registry, to start from.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use maru_downstream::http::reply;
use maru_upstream::{FoundServer, McpRegistryError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubState, servers::json_error};

const MAX_SEARCH_BYTES: usize = 200;

/// The query of `GET /api/mcp/registry`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistrySearch {
    /// Absent to ask only whether there is a registry.
    search: Option<String>,
}

/// `GET /api/mcp/registry`.
pub(super) async fn search(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<RegistrySearch>,
) -> Response {
    let Some(registry) = &hub.mcp_registry else {
        let nothing = json!({"isConfigured": false, "servers": []});
        return reply::json(StatusCode::OK, nothing.to_string());
    };
    let word = query.search.unwrap_or_default();
    let word = word.trim();
    if word.len() > MAX_SEARCH_BYTES {
        let message = format!("search may have {MAX_SEARCH_BYTES} bytes");
        return json_error(StatusCode::BAD_REQUEST, &message, Some("search"));
    }
    let found = if word.is_empty() {
        Ok(Vec::new())
    } else {
        registry.search(word).await
    };
    match found {
        Ok(found) => {
            let servers: Value = found.iter().map(server_json).collect();
            let shown = json!({"isConfigured": true, "servers": servers});
            reply::json(StatusCode::OK, shown.to_string())
        }
        Err(error) => {
            let status = match &error {
                McpRegistryError::Service(_) => StatusCode::BAD_GATEWAY,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            json_error(status, &format!("{:#}", anyhow::Error::new(error)), None)
        }
    }
}

fn server_json(server: &FoundServer) -> Value {
    let installations = server.installations.iter();
    let installations: Value = installations
        .map(|it| json!({"kind": it.kind, "entry": it.entry}))
        .collect();
    json!({
        "name": server.name,
        "localName": server.local_name,
        "title": server.title,
        "description": server.description,
        "version": server.version,
        "installations": installations,
    })
}
