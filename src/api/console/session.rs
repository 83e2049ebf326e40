//! Signing in: a code or a token is exchanged for a cookie that scripts cannot
//! read and other sites cannot send.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

use super::super::{Hub, body::Json, servers::error};
use crate::{
    access::{CODE_LIFETIME, Principal, Role, SIGNED_IN, Token},
    downstream::http::reply,
    tool::Scope,
};

/// `GET /api/session`: who is asking.
pub(in crate::api) async fn show(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let who = hub.identify(request.headers());
    reply::json(
        StatusCode::OK,
        described(&hub, who.as_ref().ok()).to_string(),
    )
}

/// `POST /api/session`: `{"code"}` of the printed link, or `{"token"}`.
pub(in crate::api) async fn sign_in(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    let (token, why) = match (body["code"].as_str(), body["token"].as_str()) {
        (Some(code), None) => (
            hub.sessions.redeem(&Token::from(code.trim())),
            "this link was used already, is older than ten minutes, or the hub was restarted since; print a new one with: maru console",
        ),
        (None, Some(token)) => (
            Some(Token::from(token.trim()).hash()),
            "this token is not known",
        ),
        _ => return error(StatusCode::BAD_REQUEST, "give a code or a token", None),
    };
    let known = token.and_then(|hash| Some((hash, hub.access.of_hash(&hash)?)));
    let Some((hash, principal)) = known else {
        return error(StatusCode::FORBIDDEN, why, None);
    };
    // The console shows everyone's servers and calls.
    if principal.grants().is_some() {
        let why = "this token is good for some servers or tools only; the console needs one without such a list: maru token create NAME --role reader";
        return error(StatusCode::FORBIDDEN, why, None);
    }
    match hub.sessions.open(hash).await {
        Ok(secret) => {
            let shown = described(&hub, Some(&principal)).to_string();
            let age = SIGNED_IN.as_secs();
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
            error(StatusCode::SERVICE_UNAVAILABLE, why, None)
        }
    }
}

/// `DELETE /api/session`.
pub(in crate::api) async fn end(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    if let Some(secret) = cookie(&hub, request.headers())
        && let Err(why) = hub.sessions.close(&secret).await
    {
        tracing::error!("a browser could not be signed out: {why}");
        let why = "the store did not end the session; you are still signed in";
        return error(StatusCode::SERVICE_UNAVAILABLE, why, None);
    }
    with_cookie(&hub, reply::empty(StatusCode::NO_CONTENT), "", 0)
}

/// `POST /api/session/link`: a code that signs in whoever asks for it, once.
pub(in crate::api) async fn new_link(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let token = hub.token_hash(request.headers());
    match token {
        Some(hash) => {
            let code = hub.sessions.code(hash);
            let scheme = if hub.is_encrypted { "https" } else { "http" };
            let link = json!({
                "path": format!("/#code={}", code.reveal()),
                "scheme": scheme,
                "expiresInSeconds": CODE_LIFETIME.as_secs(),
            });
            reply::json(StatusCode::OK, link.to_string())
        }
        None => error(StatusCode::FORBIDDEN, "only a token can be signed in", None),
    }
}

/// What the cookie of the console holds.
pub(in crate::api) fn cookie(hub: &Hub, headers: &HeaderMap) -> Option<Token> {
    let name = cookie_name(hub);
    let lines = headers.get_all(header::COOKIE).iter();
    let mut pairs = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(it, _)| *it == name)?;
    Some(Token::from(value))
}

/// Cookies do not know ports, so the name does.
fn cookie_name(hub: &Hub) -> String {
    format!("maru_{}", hub.port)
}

fn with_cookie(hub: &Hub, mut response: Response, value: &str, seconds: u64) -> Response {
    let name = cookie_name(hub);
    let secure = if hub.is_encrypted { "; Secure" } else { "" };
    let line =
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
    response
}

fn described(hub: &Hub, who: Option<&Principal>) -> Value {
    let tools = hub.engine.catalog().snapshot();
    let tools = tools
        .view(&Scope::All)
        .map_or(0, |it| it.tools.offers().len());
    json!({
        "name": who.map(Principal::name),
        "role": who.map(|it| role_name(it.role())),
        "version": env!("CARGO_PKG_VERSION"),
        "build": super::assets::build(),
        "tools": who.map(|_| tools),
    })
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Reader => "reader",
        Role::Agent => "agent",
        Role::Admin => "admin",
    }
}
