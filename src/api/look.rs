//! What only an admin looks at: logs and messages of servers, a trial of one
//! that is not registered, and the configuration.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{
    Hub,
    body::Json,
    servers::{error, refuse},
};
use crate::{
    downstream::http::reply,
    journal::masked,
    upstream::{Draft, Entry, State as Connection},
};

/// `GET /api/mcp/servers/{name}/log` and `…/messages`.
pub(super) async fn server(
    State(hub): State<Arc<Hub>>,
    Path((name, what)): Path<(String, String)>,
) -> Response {
    let handle = match hub.servers.handle(&name) {
        Ok(handle) => handle,
        Err(why) => return refuse(&why),
    };
    let entries = match what.as_str() {
        "log" => handle.log(),
        "messages" => handle.messages(),
        _ => return error(StatusCode::NOT_FOUND, "use log or messages", None),
    };
    reply::json(StatusCode::OK, shown(&entries).to_string())
}

/// `POST /api/mcp/test`: connects to a server without registering it.
pub(super) async fn test(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let done = async { hub.servers.try_out(&Draft::from_api(&body)?).await };
    match done.await {
        Ok(trial) => {
            let status = &trial.status;
            let told = json!({
                "ok": status.state == Connection::Connected,
                "cause": status.cause,
                "tools": &*status.tools,
                "protocolVersion": status.version.map(|it| it.as_str()),
                "serverInfo": status.info,
                "log": shown(&trial.log),
            });
            reply::json(StatusCode::OK, told.to_string())
        }
        Err(why) => refuse(&why),
    }
}

/// `GET /api/config`.
pub(super) async fn config(State(hub): State<Arc<Hub>>) -> Response {
    let told = json!({"version": env!("CARGO_PKG_VERSION"), "settings": &*hub.settings});
    reply::json(StatusCode::OK, told.to_string())
}

fn shown(entries: &[Entry]) -> Value {
    let one = |it: &Entry| {
        json!({
            "time": it.at,
            "kind": it.kind.as_str(),
            "text": masked(&it.text),
            "bytes": it.bytes,
        })
    };
    entries.iter().map(one).collect()
}
