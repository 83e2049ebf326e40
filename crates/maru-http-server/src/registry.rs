//! `/mcp/add`, `/mcp/remove` and `/mcp/list`: servers by name and address.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::{Value, json};

use super::{
    HubState,
    body::JsonBody,
    servers::{json_error, reject_change},
};
use maru_auth::Principal;
use maru_config::mask_secrets;
use maru_downstream::http::reply;
use maru_upstream::{RegistrationError, ServerDraft, ServerOrigin, ServerState, ServerView};

/// `POST /mcp/add`: registers a server, or changes the address of the one of that name.
pub(super) async fn add(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let (Some(name), Some(url)) = (body["name"].as_str(), body["url"].as_str()) else {
        return json_error(StatusCode::BAD_REQUEST, "name and url must be texts", None);
    };
    let draft = ServerDraft::from_url(name, url);
    let registered = match hub.servers.register(&draft, ServerOrigin::Import).await {
        Err(RegistrationError::NameTaken(_)) => change_address(&hub, draft).await,
        registered => registered,
    };
    match registered {
        Ok(view) => ok_response(&added_json(name, url, &view)),
        Err(error) => reject_change(&error),
    }
}

/// The answer to `/mcp/add`: a server that is not connected says so, and why.
fn added_json(name: &str, url: &str, view: &ServerView) -> Value {
    let mut body = json!({
        "name": name,
        "url": mask_secrets(url),
        "message": "registered",
        "status": six_states(view.status.state),
    });
    if let Some(cause) = &view.status.cause {
        body["cause"] = view.server.transport.redact(cause).into();
    }
    body
}

/// The state in the words of this API, which has none for a missing sign-in.
fn six_states(state: ServerState) -> &'static str {
    match state {
        ServerState::NeedsSignIn => ServerState::Failed.as_str(),
        state => state.as_str(),
    }
}

/// Gives a registered server another address; it keeps everything else.
async fn change_address(
    hub: &HubState,
    mut draft: ServerDraft,
) -> Result<ServerView, RegistrationError> {
    let server = hub.servers.get(&draft.name)?.server;
    draft.description = server.description;
    draft.version = server.version;
    draft.required_version = server.required_version.map(|it| it.as_str().to_owned());
    draft.auto_connect = server.auto_connect;
    let mut config = server.transport.masked_config();
    for member in ["headers", "auth"] {
        let kept = config[member].take();
        if kept.is_object() {
            draft.config[member] = kept;
        }
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
        Err(error) => reject_change(&error),
    }
}

/// `GET /mcp/list`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let all = hub.servers.list();
    let servers: Vec<Value> = all
        .iter()
        .filter(|it| principal.may_reach(it.server.name.as_str()))
        .filter_map(|it| {
            let url = mask_secrets(it.server.transport.url()?);
            Some(json!({"name": it.server.name.as_str(), "url": url}))
        })
        .collect();
    ok_response(&json!({"servers": servers}))
}

fn ok_response(body: &Value) -> Response {
    reply::json(StatusCode::OK, body.to_string())
}
