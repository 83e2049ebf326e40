//! `/api/accounts` and `/api/oauth`: lists, creates and revokes accounts, what people
//! allowed, and the clients.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_store::{AccountRow, OAuthGrantRow};
use serde_json::{Value, json};

use super::{
    HubState,
    body::JsonBody,
    servers::json_error,
    tokens::{checked_draft, error_response, token_json},
};
use maru_auth::{AccountError, Invitation, TokenIssuer, encode_value};
use maru_downstream::http::reply;

/// `GET /api/accounts`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let (accounts, tokens) = match (hub.accounts.list().await, hub.access.list_tokens().await) {
        (Ok(accounts), Ok(tokens)) => (accounts, tokens),
        (Err(error), _) | (_, Err(error)) => return store_error(&error),
    };
    let rows = accounts.iter().filter_map(|account| {
        let token = tokens.iter().find(|it| it.name == account.name)?;
        let mut row = token_json(token);
        row["label"] = account.label.clone().into();
        row["state"] = state_of(account).into();
        row["invitationExpiresAt"] = account.invitation_expires_at.into();
        Some(row)
    });
    reply::json(StatusCode::OK, rows.collect::<Value>().to_string())
}

/// `POST /api/accounts`: creates an account. Only this response shows the invitation.
pub(super) async fn create(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let draft = match checked_draft(&hub, &body) {
        Ok(draft) => draft,
        Err(response) => return *response,
    };
    match hub.accounts.create(&hub.access, &draft).await {
        Ok(invitation) => respond_invited(&hub, &draft.name, &invitation, StatusCode::CREATED),
        Err(error) => account_error(&error),
    }
}

/// `POST /api/accounts/{name}/invitation`: a new invitation, which replaces a forgotten
/// passphrase once it is used.
pub(super) async fn invite(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.accounts.invite(&name).await {
        Ok(invitation) => respond_invited(&hub, &name, &invitation, StatusCode::OK),
        Err(error) => account_error(&error),
    }
}

/// `DELETE /api/accounts/{name}`: revokes an account with everything that it allowed.
pub(super) async fn revoke(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.accounts.list().await {
        Ok(rows) if rows.iter().any(|it| it.name == name) => {
            super::tokens::revoke(State(hub), Path(name)).await
        }
        Ok(_) => json_error(StatusCode::NOT_FOUND, "no account has this name", None),
        Err(error) => store_error(&error),
    }
}

/// `GET /api/oauth/grants`: what people allowed clients.
pub(super) async fn list_grants(State(hub): State<Arc<HubState>>) -> Response {
    let Some(issuer) = hub.access.token_issuer() else {
        return reply::json(StatusCode::OK, "[]".to_owned());
    };
    match issuer.list_grants().await {
        Ok(rows) => {
            let rows: Value = rows.iter().map(grant_json).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(error) => store_error(&error),
    }
}

/// `DELETE /api/oauth/grants/{id}`.
pub(super) async fn revoke_grant(
    State(hub): State<Arc<HubState>>,
    Path(id): Path<String>,
) -> Response {
    let Some(issuer) = hub.access.token_issuer() else {
        return not_served();
    };
    let grants = match issuer.list_grants().await {
        Ok(grants) => grants,
        Err(error) => return store_error(&error),
    };
    match issuer.revoke_grant(&id).await {
        Ok(true) => {
            if let Some(grant) = grants.iter().find(|it| it.id == id) {
                hub.engine.end_sessions_of(&grant.account);
            }
            reply::empty(StatusCode::NO_CONTENT)
        }
        Ok(false) => json_error(StatusCode::NOT_FOUND, "no grant has this id", None),
        Err(error) => store_error(&error),
    }
}

/// `GET /api/oauth/clients`: clients that registered, and others that have grants.
pub(super) async fn list_clients(State(hub): State<Arc<HubState>>) -> Response {
    let Some(issuer) = hub.access.token_issuer() else {
        return reply::json(StatusCode::OK, "[]".to_owned());
    };
    match client_rows(issuer).await {
        Ok(rows) => reply::json(StatusCode::OK, rows.to_string()),
        Err(error) => store_error(&error),
    }
}

/// `DELETE /api/oauth/clients/{id}`: deletes a client with everything that it was allowed.
pub(super) async fn remove_client(
    State(hub): State<Arc<HubState>>,
    Path(id): Path<String>,
) -> Response {
    let Some(issuer) = hub.access.token_issuer() else {
        return not_served();
    };
    let grants = match issuer.list_grants().await {
        Ok(grants) => grants,
        Err(error) => return store_error(&error),
    };
    match issuer.remove_client(&id).await {
        Ok(true) => {
            for grant in grants.iter().filter(|it| it.client_id == id) {
                hub.engine.end_sessions_of(&grant.account);
            }
            reply::empty(StatusCode::NO_CONTENT)
        }
        Ok(false) => json_error(StatusCode::NOT_FOUND, "no client has this id", None),
        Err(error) => store_error(&error),
    }
}

async fn client_rows(issuer: &TokenIssuer) -> Result<Value, maru_store::Error> {
    let (registered, grants) = (issuer.clients().list().await?, issuer.list_grants().await?);
    let mut clients: BTreeMap<&str, Value> = BTreeMap::new();
    for row in &registered {
        let metadata: Value = serde_json::from_str(&row.metadata).unwrap_or_default();
        let client = json!({
            "id": row.id,
            "name": metadata["name"],
            "redirectUris": metadata["redirect_uris"],
            "registeredAt": row.created_at,
            "grants": 0,
        });
        clients.insert(&row.id, client);
    }
    for grant in &grants {
        let client = clients.entry(&grant.client_id).or_insert_with(
            || json!({"id": grant.client_id, "name": grant.client_name, "grants": 0}),
        );
        client["grants"] = (client["grants"].as_i64().unwrap_or_default() + 1).into();
    }
    Ok(clients.into_values().collect())
}

fn respond_invited(
    hub: &HubState,
    name: &str,
    invitation: &Invitation,
    status: StatusCode,
) -> Response {
    let base = &hub.servers.sign_in_options().base_url;
    let code = encode_value(invitation.code.reveal());
    let body = json!({
        "name": name,
        "invitationUrl": format!("{base}/oauth/invitation?code={code}"),
        "invitationExpiresAt": invitation.expires_at,
    });
    reply::json(status, body.to_string())
}

fn state_of(account: &AccountRow) -> &'static str {
    match account {
        AccountRow { label: Some(_), .. } => "issuer",
        AccountRow {
            has_passphrase: true,
            ..
        } => "active",
        _ => "invited",
    }
}

fn grant_json(row: &OAuthGrantRow) -> Value {
    json!({
        "id": row.id,
        "account": row.account,
        "clientId": row.client_id,
        "clientName": row.client_name,
        "role": row.role,
        "servers": row.servers,
        "tools": row.tools,
        "createdAt": row.created_at,
        "renewedAt": row.renewed_at,
        "expiresAt": row.expires_at,
    })
}

fn not_served() -> Response {
    let message = "this hub is no authorization server (oauth.serve)";
    json_error(StatusCode::NOT_FOUND, message, None)
}

fn account_error(error: &AccountError) -> Response {
    match error {
        AccountError::Token(error) => error_response(error),
        AccountError::Store(error) => store_error(error),
        AccountError::Unknown => json_error(StatusCode::NOT_FOUND, &error.to_string(), None),
        error => json_error(StatusCode::BAD_REQUEST, &error.to_string(), None),
    }
}

fn store_error(error: &maru_store::Error) -> Response {
    tracing::error!("failed to read or change accounts: {error}");
    let status = StatusCode::SERVICE_UNAVAILABLE;
    json_error(status, &error.public_message(), None)
}
