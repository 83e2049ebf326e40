//! Diagnostics for admins: logs and messages of servers, a test connection, and the
//! configuration.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::reject_change};
use maru_config::section_descriptions;
use maru_downstream::http::reply;
use maru_upstream::{ConnectionTest, ServerDraft, ServerHandle, ServerLogEntry, ServerState};

/// `GET /api/mcp/servers/{name}/log`.
pub(super) async fn server_log(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    entries_response(&hub, &name, ServerHandle::log)
}

/// `GET /api/mcp/servers/{name}/messages`.
pub(super) async fn server_messages(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    entries_response(&hub, &name, ServerHandle::messages)
}

fn entries_response(
    hub: &HubState,
    name: &str,
    read_entries: fn(&ServerHandle) -> Vec<ServerLogEntry>,
) -> Response {
    let handle = hub.servers.handle(name);
    match handle.and_then(|handle| Ok((handle, hub.servers.get(name)?))) {
        Ok((handle, view)) => {
            let redact = |text: &str| view.server.transport.redact(text);
            let entries = entries_json(&read_entries(&handle), redact);
            reply::json(StatusCode::OK, entries.to_string())
        }
        Err(error) => reject_change(&error),
    }
}

/// `POST /api/mcp/test`: connects to a server without registering it.
pub(super) async fn test_server(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    let test = async {
        let draft = ServerDraft::from_api(&body)?;
        ConnectionTest::run(&hub.servers, &draft).await
    };
    match test.await {
        Ok(outcome) => {
            let status = &outcome.status;
            let body = json!({
                "ok": status.state == ServerState::Connected,
                "cause": status.cause.as_deref().map(|it| outcome.transport.redact(it)),
                "tools": &*status.tools,
                "protocolVersion": status.version.map(|it| it.as_str()),
                "serverInfo": status.info,
                "log": entries_json(&outcome.log, |text| outcome.transport.redact(text)),
            });
            reply::json(StatusCode::OK, body.to_string())
        }
        Err(error) => reject_change(&error),
    }
}

/// `GET /api/config`.
pub(super) async fn config(State(hub): State<Arc<HubState>>) -> Response {
    let body = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "settings": &*hub.reloadable().settings,
        "sections": section_descriptions(),
    });
    reply::json(StatusCode::OK, body.to_string())
}

fn entries_json(entries: &[ServerLogEntry], redact: impl Fn(&str) -> String) -> Value {
    let entry_json = |it: &ServerLogEntry| {
        json!({
            "time": it.at,
            "kind": it.kind.as_str(),
            "text": redact(&it.text),
            "bytes": it.bytes,
        })
    };
    entries.iter().map(entry_json).collect()
}
