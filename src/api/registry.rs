//! `/mcp/add`, `/mcp/remove` and `/mcp/list`: servers by name and address.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{
    Hub,
    body::Json,
    servers::{error, refuse},
};
use crate::{
    access::Principal,
    config::masked,
    downstream::http::reply,
    upstream::{Draft, Origin, Unchanged, View},
};

/// `POST /mcp/add`: registers a server, or moves the one of that name.
pub(super) async fn add(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let (Some(name), Some(url)) = (body["name"].as_str(), body["url"].as_str()) else {
        return error(StatusCode::BAD_REQUEST, "name and url must be texts", None);
    };
    let draft = Draft::at(name, url);
    let done = match hub.servers.register(&draft, Origin::Import).await {
        Err(Unchanged::Taken(_)) => moved(&hub, draft).await,
        done => done,
    };
    match done {
        Ok(_) => said(&json!({"name": name, "url": masked(url), "message": "registered"})),
        Err(why) => refuse(&why),
    }
}

/// A server that is known keeps everything but its address.
async fn moved(hub: &Hub, mut draft: Draft) -> Result<View, Unchanged> {
    let now = hub.servers.get(&draft.name)?.server;
    draft.description = now.description;
    draft.version = now.version;
    draft.required_version = now.required_version.map(|it| it.as_str().to_owned());
    draft.auto_connect = now.auto_connect;
    let headers = now.transport.shown()["headers"].take();
    if headers.is_object() {
        draft.config["headers"] = headers;
    }
    hub.servers.update(&draft.name, &draft).await
}

/// `DELETE /mcp/remove`.
pub(super) async fn remove(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let Some(name) = body["name"].as_str() else {
        return error(StatusCode::BAD_REQUEST, "name must be a text", None);
    };
    match hub.servers.remove(name).await {
        Ok(()) => said(&json!({"name": name, "message": "removed"})),
        Err(why) => refuse(&why),
    }
}

/// `GET /mcp/list`.
pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
) -> Response {
    let all = hub.servers.list();
    let servers: Vec<Value> = all
        .iter()
        .filter(|it| who.may_reach(it.server.name.as_str()))
        .filter_map(|it| {
            let url = masked(it.server.transport.url()?);
            Some(json!({"name": it.server.name.as_str(), "url": url}))
        })
        .collect();
    said(&json!({"servers": servers}))
}

fn said(answer: &Value) -> Response {
    reply::json(StatusCode::OK, answer.to_string())
}
