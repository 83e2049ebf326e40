//! `/mcp/add`, `/mcp/remove` and `/mcp/list`: servers by name and address.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{
    HubState,
    body::JsonBody,
    servers::{json_error, reject_change},
};
use crate::{
    auth::Principal,
    config::mask_secrets,
    downstream::http::reply,
    upstream::{RegistrationError, ServerDraft, ServerOrigin, ServerView},
};

/// `POST /mcp/add`: registers a server, or moves the one of that name.
pub(super) async fn add(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let (Some(name), Some(url)) = (body["name"].as_str(), body["url"].as_str()) else {
        return json_error(StatusCode::BAD_REQUEST, "name and url must be texts", None);
    };
    let draft = ServerDraft::from_url(name, url);
    let done = match hub.servers.register(&draft, ServerOrigin::Import).await {
        Err(RegistrationError::NameTaken(_)) => change_address(&hub, draft).await,
        done => done,
    };
    match done {
        Ok(_) => {
            ok_response(&json!({"name": name, "url": mask_secrets(url), "message": "registered"}))
        }
        Err(why) => reject_change(&why),
    }
}

/// A server that is known keeps everything but its address.
async fn change_address(
    hub: &HubState,
    mut draft: ServerDraft,
) -> Result<ServerView, RegistrationError> {
    let now = hub.servers.get(&draft.name)?.server;
    draft.description = now.description;
    draft.version = now.version;
    draft.required_version = now.required_version.map(|it| it.as_str().to_owned());
    draft.auto_connect = now.auto_connect;
    let headers = now.transport.masked_config()["headers"].take();
    if headers.is_object() {
        draft.config["headers"] = headers;
    }
    hub.servers.update(&draft.name, &draft).await
}

/// `DELETE /mcp/remove`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let Some(name) = body["name"].as_str() else {
        return json_error(StatusCode::BAD_REQUEST, "name must be a text", None);
    };
    match hub.servers.remove(name).await {
        Ok(()) => ok_response(&json!({"name": name, "message": "removed"})),
        Err(why) => reject_change(&why),
    }
}

/// `GET /mcp/list`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
) -> Response {
    let all = hub.servers.list();
    let servers: Vec<Value> = all
        .iter()
        .filter(|it| who.may_reach(it.server.name.as_str()))
        .filter_map(|it| {
            let url = mask_secrets(it.server.transport.url()?);
            Some(json!({"name": it.server.name.as_str(), "url": url}))
        })
        .collect();
    ok_response(&json!({"servers": servers}))
}

fn ok_response(answer: &Value) -> Response {
    reply::json(StatusCode::OK, answer.to_string())
}
