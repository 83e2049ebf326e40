//! What only an admin looks at: logs and messages of servers, a trial of one
//! that is not registered, and the configuration.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{Hub, body::Json, servers::refuse};
use crate::{
    downstream::http::reply,
    upstream::{Draft, Entry, Handle, State as Connection},
};

/// `GET /api/mcp/servers/{name}/log`.
pub(super) async fn log(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    entries(&hub, &name, Handle::log)
}

/// `GET /api/mcp/servers/{name}/messages`.
pub(super) async fn messages(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    entries(&hub, &name, Handle::messages)
}

fn entries(hub: &Hub, name: &str, of: fn(&Handle) -> Vec<Entry>) -> Response {
    let found = hub.servers.handle(name);
    match found.and_then(|handle| Ok((handle, hub.servers.get(name)?))) {
        Ok((handle, view)) => {
            let entries = shown(&of(&handle), |text| view.server.transport.concealed(text));
            reply::json(StatusCode::OK, entries.to_string())
        }
        Err(why) => refuse(&why),
    }
}

/// `POST /api/mcp/test`: connects to a server without registering it.
pub(super) async fn test(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let done = async { hub.servers.try_out(&Draft::from_api(&body)?).await };
    match done.await {
        Ok(trial) => {
            let status = &trial.status;
            let told = json!({
                "ok": status.state == Connection::Connected,
                "cause": status.cause.as_deref().map(|it| trial.transport.concealed(it)),
                "tools": &*status.tools,
                "protocolVersion": status.version.map(|it| it.as_str()),
                "serverInfo": status.info,
                "log": shown(&trial.log, |text| trial.transport.concealed(text)),
            });
            reply::json(StatusCode::OK, told.to_string())
        }
        Err(why) => refuse(&why),
    }
}

/// `GET /api/config`.
pub(super) async fn config(State(hub): State<Arc<Hub>>) -> Response {
    let told =
        json!({"version": env!("CARGO_PKG_VERSION"), "settings": &*hub.changeable().settings});
    reply::json(StatusCode::OK, told.to_string())
}

fn shown(entries: &[Entry], concealed: impl Fn(&str) -> String) -> Value {
    let one = |it: &Entry| {
        json!({
            "time": it.at,
            "kind": it.kind.as_str(),
            "text": concealed(&it.text),
            "bytes": it.bytes,
        })
    };
    entries.iter().map(one).collect()
}
