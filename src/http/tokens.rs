//! `/api/tokens`: who may come in.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_store::TokenRow;
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use crate::{
    auth::{AccessRole, TokenDraft, TokenError},
    downstream::http::reply,
};

/// More names are no list that a person keeps.
const MAX_GRANTED_NAMES: usize = 1000;

/// `GET /api/tokens`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    match hub.access.list_tokens().await {
        Ok(rows) => {
            let rows: Value = rows.iter().map(token_json).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(why) => reject_change(&why.into()),
    }
}

/// `POST /api/tokens`: the answer shows the token, this once.
pub(super) async fn create(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let draft = match read_draft(&body) {
        Ok(draft) => draft,
        Err((field, why)) => return json_error(StatusCode::BAD_REQUEST, why, Some(field)),
    };
    match hub.access.create_token(&draft).await {
        Ok(issued) => {
            let mut made = token_json(&issued.row);
            made["token"] = issued.token.reveal().into();
            reply::json(StatusCode::CREATED, made.to_string())
        }
        Err(why) => reject_change(&why),
    }
}

/// `DELETE /api/tokens/{name}`: the token and its sessions end now.
pub(super) async fn revoke(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.access.revoke_token(&name).await {
        Ok(true) => {
            hub.engine.end_sessions_of(&name);
            reply::empty(StatusCode::NO_CONTENT)
        }
        Ok(false) => json_error(StatusCode::NOT_FOUND, "there is no such token", None),
        Err(why) => reject_change(&why),
    }
}

fn read_draft(body: &Value) -> Result<TokenDraft, (&'static str, &'static str)> {
    let members = body.as_object().ok_or(("body", "must be an object"))?;
    let known = ["name", "role", "servers", "tools", "expiresAt"];
    if members.keys().any(|it| !known.contains(&it.as_str())) {
        return Err(("body", "use name, role, servers, tools and expiresAt"));
    }
    let role = body["role"].as_str().and_then(AccessRole::parse);
    Ok(TokenDraft {
        name: body["name"].as_str().unwrap_or_default().to_owned(),
        role: role.ok_or(("role", "use reader, agent or admin"))?,
        servers: names(&body["servers"]).map_err(|why| ("servers", why))?,
        tools: names(&body["tools"]).map_err(|why| ("tools", why))?,
        expires_at: match &body["expiresAt"] {
            Value::Null => None,
            at => Some(
                at.as_i64()
                    .ok_or(("expiresAt", "must be milliseconds since 1970"))?,
            ),
        },
    })
}

/// A list of names; absent means all, empty means none.
fn names(value: &Value) -> Result<Option<Vec<String>>, &'static str> {
    let why = "must be a list of names";
    match value {
        Value::Null => Ok(None),
        Value::Array(all) if all.len() <= MAX_GRANTED_NAMES => {
            let name = |it: &Value| it.as_str().map(str::to_owned).ok_or(why);
            all.iter().map(name).collect::<Result<_, _>>().map(Some)
        }
        _ => Err(why),
    }
}

fn token_json(row: &TokenRow) -> Value {
    json!({
        "name": row.name,
        "role": row.role,
        "servers": row.servers,
        "tools": row.tools,
        "createdAt": row.created_at,
        "expiresAt": row.expires_at,
    })
}

fn reject_change(why: &TokenError) -> Response {
    let (status, field) = match why {
        TokenError::InvalidName => (StatusCode::BAD_REQUEST, Some("name")),
        TokenError::NameTaken(_) | TokenError::AdminToken => (StatusCode::CONFLICT, None),
        TokenError::Store(error) => {
            tracing::error!("the tokens could not be read or changed: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, None)
        }
    };
    json_error(status, &why.to_string(), field)
}
