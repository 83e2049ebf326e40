//! Signing in: a code or a token is exchanged for a cookie that scripts cannot
//! read and other sites cannot send.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

use super::super::{HubState, body::JsonBody, servers::json_error};
use crate::{
    auth::{AccessRole, BearerToken, Principal, SESSION_LIFETIME, SIGN_IN_CODE_LIFETIME},
    downstream::http::reply,
    tools::CatalogScope,
};

/// `GET /api/session`: who is asking.
pub(in crate::http) async fn show(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    let who = hub.identify(request.headers());
    reply::json(
        StatusCode::OK,
        session_json(&hub, who.as_ref().ok()).to_string(),
    )
}

/// `POST /api/session`: `{"code"}` of the printed link, or `{"token"}`.
pub(in crate::http) async fn sign_in(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    let (token, why) = match (body["code"].as_str(), body["token"].as_str()) {
        (Some(code), None) => (
            hub.sessions.redeem_code(&BearerToken::from(code.trim())),
            "this link was used already, is older than ten minutes, or the hub was restarted since; print a new one with: maru console",
        ),
        (None, Some(token)) => (
            Some(BearerToken::from(token.trim()).hash()),
            "this token is not known",
        ),
        _ => return json_error(StatusCode::BAD_REQUEST, "give a code or a token", None),
    };
    let known = token.and_then(|hash| Some((hash, hub.access.principal_of_hash(&hash)?)));
    let Some((hash, principal)) = known else {
        return json_error(StatusCode::FORBIDDEN, why, None);
    };
    // The console shows everyone's servers and calls.
    if principal.grants().is_some() {
        let why = "this token is good for some servers or tools only; the console needs one without such a list: maru token create NAME --role reader";
        return json_error(StatusCode::FORBIDDEN, why, None);
    }
    match hub.sessions.sign_in(hash).await {
        Ok(secret) => {
            let shown = session_json(&hub, Some(&principal)).to_string();
            let age = SESSION_LIFETIME.as_secs();
            with_cookie(
                &hub,
                reply::json(StatusCode::OK, shown),
                secret.reveal(),
                age,
            )
        }
        Err(why) => {
            tracing::error!("a browser could not be signed in: {why}");
            let why = "the store did not keep the session";
            json_error(StatusCode::SERVICE_UNAVAILABLE, why, None)
        }
    }
}

/// `DELETE /api/session`.
pub(in crate::http) async fn sign_out(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    if let Some(secret) = session_cookie(&hub, request.headers())
        && let Err(why) = hub.sessions.sign_out(&secret).await
    {
        tracing::error!("a browser could not be signed out: {why}");
        let why = "the store did not end the session; you are still signed in";
        return json_error(StatusCode::SERVICE_UNAVAILABLE, why, None);
    }
    with_cookie(&hub, reply::empty(StatusCode::NO_CONTENT), "", 0)
}

/// `POST /api/session/link`: a code that signs in whoever asks for it, once.
pub(in crate::http) async fn create_sign_in_link(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let token = hub.token_hash(request.headers());
    match token {
        Some(hash) => {
            let code = hub.sessions.issue_code(hash);
            let scheme = if hub.is_encrypted { "https" } else { "http" };
            let link = json!({
                "path": format!("/#code={}", code.reveal()),
                "scheme": scheme,
                "expiresInSeconds": SIGN_IN_CODE_LIFETIME.as_secs(),
            });
            reply::json(StatusCode::OK, link.to_string())
        }
        None => json_error(StatusCode::FORBIDDEN, "only a token can be signed in", None),
    }
}

/// What the cookie of the console holds.
pub(in crate::http) fn session_cookie(hub: &HubState, headers: &HeaderMap) -> Option<BearerToken> {
    let name = cookie_name(hub);
    let lines = headers.get_all(header::COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(it, _)| *it == name)?;
    Some(BearerToken::from(value))
}

/// Cookies do not know ports, so the name does.
fn cookie_name(hub: &HubState) -> String {
    format!("maru_{}", hub.port)
}

fn with_cookie(hub: &HubState, mut response: Response, value: &str, seconds: u64) -> Response {
    let name = cookie_name(hub);
    let secure = if hub.is_encrypted { "; Secure" } else { "" };
    let line =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
    response
}

fn session_json(hub: &HubState, who: Option<&Principal>) -> Value {
    let tools = hub.engine.catalog().snapshot();
    let tools = tools
        .view(&CatalogScope::All)
        .map_or(0, |it| it.tools.entries().len());
    json!({
        "name": who.map(Principal::name),
        "role": who.map(|it| role_name(it.role())),
        "version": env!("CARGO_PKG_VERSION"),
        "build": super::assets::build(),
        "tools": who.map(|_| tools),
    })
}

fn role_name(role: AccessRole) -> &'static str {
    match role {
        AccessRole::Reader => "reader",
        AccessRole::Agent => "agent",
        AccessRole::Admin => "admin",
    }
}
