//! `/api/tokens`: lists, creates and revokes tokens.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_store::TokenRow;
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use maru_auth::{AccessRole, TokenDraft, TokenError};
use maru_config::ToolListing;
use maru_downstream::http::reply;
use maru_tools::{OWN_SERVER_NAME, unknown_name};

/// The maximum length of a token's list of servers or tools.
const MAX_GRANTED_NAMES: usize = 1000;

/// `GET /api/tokens`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    match hub.access.list_tokens().await {
        Ok(rows) => {
            let rows: Value = rows.iter().map(token_json).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(error) => error_response(&error.into()),
    }
}

/// `POST /api/tokens`: creates a token. Only this response shows it.
pub(super) async fn create(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let draft = match checked_draft(&hub, &body) {
        Ok(draft) => draft,
        Err(response) => return *response,
    };
    match hub.access.create_token(&draft).await {
        Ok(issued) => {
            let mut token = token_json(&issued.row);
            token["token"] = issued.token.reveal().into();
            reply::json(StatusCode::CREATED, token.to_string())
        }
        Err(error) => error_response(&error),
    }
}

/// `DELETE /api/tokens/{name}`: revokes a token and ends its sessions.
pub(super) async fn revoke(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match end_access(&hub, &name).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => json_error(StatusCode::NOT_FOUND, "no token has this name", None),
        Err(error) => error_response(&error),
    }
}

/// Revokes the token of `name` with everything that it allowed, and ends its sessions and
/// its connections to servers; false if there is none.
pub(super) async fn end_access(hub: &HubState, name: &str) -> Result<bool, TokenError> {
    let existed = hub.access.revoke_token(name).await?;
    hub.engine.end_sessions_of(name);
    hub.servers.reload_credentials().await?;
    Ok(existed)
}

/// Parses the body of a new token or account, and checks the names in its lists.
pub(super) fn checked_draft(hub: &HubState, body: &Value) -> Result<TokenDraft, Box<Response>> {
    let refuse = |field: &str, message: &str| {
        Box::new(json_error(StatusCode::BAD_REQUEST, message, Some(field)))
    };
    let draft = parse_draft(body).map_err(|(field, message)| refuse(field, message))?;
    if body["allowUnknown"] != true {
        check_names(hub, &draft).map_err(|(field, message)| refuse(field, &message))?;
    }
    Ok(draft)
}

/// Checks that the servers and tools of a token exist; an error is the field and a message.
fn check_names(hub: &HubState, draft: &TokenDraft) -> Result<(), (&'static str, String)> {
    let servers = hub.servers.list();
    let mut known: Vec<&str> = servers.iter().map(|it| it.server.name.as_str()).collect();
    known.push(OWN_SERVER_NAME);
    let snapshot = hub.engine.catalog().snapshot();
    if let Some(name) = &draft.toolset
        && !snapshot.toolsets().contains_key(name.as_str())
    {
        let known = snapshot.toolsets().keys().map(|it| &**it);
        return Err(("toolset", unknown_name("toolset", name, known)));
    }
    for name in draft.servers.iter().flatten() {
        if !known.contains(&name.as_str()) && !snapshot.has_server(name) {
            return Err(("servers", unknown_name("server", name, known.into_iter())));
        }
    }
    let is_known = |name: &str| {
        let mut tools = snapshot.tools_with_state();
        tools.any(|(it, _)| {
            it.public_name() == name || format!("{}.{}", it.server(), it.key()) == name
        })
    };
    // The tools of a server that is not connected are not known.
    let is_of_known_server = |name: &str| {
        let separated = name.split_once("__").or_else(|| name.split_once('.'));
        let server = separated.map(|(server, _)| server);
        server.is_some_and(|it| known.contains(&it) && !snapshot.has_server(it))
    };
    for name in draft.tools.iter().flatten() {
        if !is_known(name) && !is_of_known_server(name) {
            let tools = snapshot.tools_with_state();
            let message = unknown_name("tool", name, tools.map(|(it, _)| it.public_name()));
            return Err(("tools", message));
        }
    }
    Ok(())
}

/// Parses the body of a new token; an error is the field and a message.
fn parse_draft(body: &Value) -> Result<TokenDraft, (&'static str, &'static str)> {
    let members = body.as_object().ok_or(("body", "must be an object"))?;
    let known = [
        "name",
        "role",
        "servers",
        "tools",
        "toolset",
        "toolListing",
        "expiresAt",
        "allowUnknown",
    ];
    if members.keys().any(|it| !known.contains(&it.as_str())) {
        return Err((
            "body",
            "use name, role, servers, tools, toolset, toolListing and expiresAt",
        ));
    }
    let role = body["role"].as_str().and_then(AccessRole::parse);
    Ok(TokenDraft {
        name: body["name"].as_str().unwrap_or_default().to_owned(),
        role: role.ok_or(("role", "use reader, agent or admin"))?,
        servers: parse_names(&body["servers"]).map_err(|message| ("servers", message))?,
        tools: parse_names(&body["tools"]).map_err(|message| ("tools", message))?,
        toolset: match &body["toolset"] {
            Value::Null => None,
            Value::String(name) => Some(name.clone()),
            _ => return Err(("toolset", "must be the name of a toolset")),
        },
        tool_listing: match &body["toolListing"] {
            Value::Null => None,
            other => {
                let listing = other.as_str().and_then(ToolListing::parse);
                Some(listing.ok_or(("toolListing", "use list, search or auto"))?)
            }
        },
        expires_at: match &body["expiresAt"] {
            Value::Null => None,
            at => Some(
                at.as_i64()
                    .ok_or(("expiresAt", "must be milliseconds since 1970"))?,
            ),
        },
    })
}

/// Parses a list of names; an absent list means all, an empty one none.
fn parse_names(value: &Value) -> Result<Option<Vec<String>>, &'static str> {
    let message = "must be a list of names";
    match value {
        Value::Null => Ok(None),
        Value::Array(items) if items.len() <= MAX_GRANTED_NAMES => {
            let name = |it: &Value| it.as_str().map(str::to_owned).ok_or(message);
            items.iter().map(name).collect::<Result<_, _>>().map(Some)
        }
        _ => Err(message),
    }
}

pub(super) fn token_json(row: &TokenRow) -> Value {
    json!({
        "name": row.name,
        "role": row.role,
        "servers": row.servers,
        "tools": row.tools,
        "toolset": row.toolset,
        "toolListing": row.tool_listing,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
    })
}

pub(super) fn error_response(error: &TokenError) -> Response {
    let (status, field) = match error {
        TokenError::InvalidName => (StatusCode::BAD_REQUEST, Some("name")),
        TokenError::NameTaken(_) | TokenError::AdminToken => (StatusCode::CONFLICT, None),
        TokenError::Store(error) => {
            tracing::error!("failed to read or change tokens: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, None)
        }
    };
    json_error(status, &error.to_string(), field)
}
