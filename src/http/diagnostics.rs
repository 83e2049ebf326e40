//! What only an admin looks at: logs and messages of servers, a trial of one
//! that is not registered, and the configuration.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::reject_change};
use crate::{
    downstream::http::reply,
    upstream::{ServerDraft, ServerHandle, ServerLogEntry, ServerState as Connection},
};

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
    of: fn(&ServerHandle) -> Vec<ServerLogEntry>,
) -> Response {
    let found = hub.servers.handle(name);
    match found.and_then(|handle| Ok((handle, hub.servers.get(name)?))) {
        Ok((handle, view)) => {
            let entries = entries_json(&of(&handle), |text| view.server.transport.redact(text));
            reply::json(StatusCode::OK, entries.to_string())
        }
        Err(why) => reject_change(&why),
    }
}

/// `POST /api/mcp/test`: connects to a server without registering it.
pub(super) async fn test_server(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    let done = async {
        hub.servers
            .test_connection(&ServerDraft::from_api(&body)?)
            .await
    };
    match done.await {
        Ok(trial) => {
            let status = &trial.status;
            let told = json!({
                "ok": status.state == Connection::Connected,
                "cause": status.cause.as_deref().map(|it| trial.transport.redact(it)),
                "tools": &*status.tools,
                "protocolVersion": status.version.map(|it| it.as_str()),
                "serverInfo": status.info,
                "log": entries_json(&trial.log, |text| trial.transport.redact(text)),
            });
            reply::json(StatusCode::OK, told.to_string())
        }
        Err(why) => reject_change(&why),
    }
}

/// `GET /api/config`.
pub(super) async fn config(State(hub): State<Arc<HubState>>) -> Response {
    let told =
        json!({"version": env!("CARGO_PKG_VERSION"), "settings": &*hub.reloadable().settings});
    reply::json(StatusCode::OK, told.to_string())
}

fn entries_json(entries: &[ServerLogEntry], concealed: impl Fn(&str) -> String) -> Value {
    let one = |it: &ServerLogEntry| {
        json!({
            "time": it.at,
            "kind": it.kind.as_str(),
            "text": concealed(&it.text),
            "bytes": it.bytes,
        })
    };
    entries.iter().map(one).collect()
}
