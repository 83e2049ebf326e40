//! Sign-in to the console: exchanges a code or a token for a cookie that scripts cannot read
//! and other sites cannot send.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

use super::super::{
    HubState,
    authorization::{sign_in_to_account, status_of},
    body::JsonBody,
    pages::cookie,
    router::ClientAddress,
    servers::json_error,
};
use maru_auth::{BearerToken, Principal, SESSION_LIFETIME, SIGN_IN_CODE_LIFETIME};
use maru_downstream::http::reply;
use maru_peers::PeerHubs;
use maru_tools::CatalogScope;

/// `GET /api/session`: the principal of the caller.
pub(crate) async fn show(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    let principal = hub.identify(request.headers()).ok();
    let session = session_json(&hub, principal.as_ref());
    reply::json(StatusCode::OK, session.to_string())
}

/// `POST /api/session`: `{"code"}` of the printed link, `{"token"}`, or `{"name",
/// "passphrase"}` of an account.
pub(crate) async fn sign_in(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    JsonBody(body): JsonBody,
) -> Response {
    if let (Some(name), Some(passphrase)) = (body["name"].as_str(), body["passphrase"].as_str()) {
        let signed_in = sign_in_to_account(&hub, address, name, passphrase).await;
        return match signed_in {
            Ok(hash) => open_session(&hub, Some(hash), "the account was revoked").await,
            Err(error) => {
                let status = status_of(&error);
                json_error(status, &error.to_string(), None)
            }
        };
    }
    let (token_hash, error_message) = match (body["code"].as_str(), body["token"].as_str()) {
        (Some(code), None) => {
            let code = BearerToken::from(code.trim());
            match hub.sessions.redeem_code(&code).await {
                Ok(token_hash) => (
                    token_hash,
                    "this link was already used or is older than ten minutes; print a new one with: maru console",
                ),
                Err(error) => return store_failed("read the link", &error),
            }
        }
        (None, Some(token)) => (
            Some(BearerToken::from(token.trim()).hash()),
            "unknown token",
        ),
        _ => {
            let message = "send a code, a token, or a name and a passphrase";
            return json_error(StatusCode::BAD_REQUEST, message, None);
        }
    };
    open_session(&hub, token_hash, error_message).await
}

/// Signs a browser in for a token that may be unknown.
async fn open_session(
    hub: &HubState,
    token_hash: Option<[u8; 32]>,
    error_message: &str,
) -> Response {
    let known = || token_hash.and_then(|hash| Some((hash, hub.access.principal_of_hash(&hash)?)));
    if known().is_none() {
        hub.learn_callers().await;
    }
    let Some((token_hash, principal)) = known() else {
        return json_error(StatusCode::FORBIDDEN, error_message, None);
    };
    // The console shows all servers and calls.
    if principal.grants().is_some() {
        let message = "this token is limited to some servers or tools; the console needs one without limits: maru token create NAME --role reader";
        return json_error(StatusCode::FORBIDDEN, message, None);
    }
    let session = session_json(hub, Some(&principal)).to_string();
    signed_in_response(hub, token_hash, reply::json(StatusCode::OK, session)).await
}

/// Signs a browser in for the token with this hash, and returns `response` with its cookie.
pub(crate) async fn signed_in_response(
    hub: &HubState,
    token_hash: [u8; 32],
    response: Response,
) -> Response {
    match hub.sessions.sign_in(token_hash).await {
        Ok(cookie) => with_cookie(hub, response, cookie.reveal(), SESSION_LIFETIME.as_secs()),
        Err(error) => store_failed("save the session", &error),
    }
}

fn store_failed(attempted: &str, error: &maru_store::Error) -> Response {
    tracing::error!("the store could not {attempted}: {error}");
    let message = format!("the store could not {attempted}");
    json_error(StatusCode::SERVICE_UNAVAILABLE, &message, None)
}

/// `DELETE /api/session`.
pub(crate) async fn sign_out(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    if let Some(cookie) = session_cookie(&hub, request.headers())
        && let Err(error) = hub.sessions.sign_out(&cookie).await
    {
        tracing::error!("failed to sign a browser out: {error}");
        let message = "the store could not end the session; you are still signed in";
        return json_error(StatusCode::SERVICE_UNAVAILABLE, message, None);
    }
    with_cookie(&hub, reply::empty(StatusCode::NO_CONTENT), "", 0)
}

/// `POST /api/session/link`: a link that signs a browser in with the caller's token, once.
pub(crate) async fn create_sign_in_link(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let Some(token_hash) = hub.token_hash(request.headers()) else {
        let message = "a sign-in link needs a token";
        return json_error(StatusCode::FORBIDDEN, message, None);
    };
    let code = match hub.sessions.issue_code(token_hash).await {
        Ok(code) => code,
        Err(error) => return store_failed("save the link", &error),
    };
    let scheme = if hub.is_encrypted { "https" } else { "http" };
    let link = json!({
        "path": format!("/#code={}", code.reveal()),
        "scheme": scheme,
        "expiresInSeconds": SIGN_IN_CODE_LIFETIME.as_secs(),
    });
    reply::json(StatusCode::OK, link.to_string())
}

/// Returns the value of the console's cookie.
pub(crate) fn session_cookie(hub: &HubState, headers: &HeaderMap) -> Option<BearerToken> {
    cookie(headers, &cookie_name(hub)).map(BearerToken::from)
}

/// What ends the names of the cookies of a hub that listens on this port. Browsers share
/// cookies between ports, so hubs with different sessions need different names; hubs that
/// share them have one name on all ports.
pub fn cookie_suffix(port: u16, peers: Option<&PeerHubs>) -> String {
    match peers.map(|it| it.key().derive("cookie name")) {
        Some([one, two, three, four, ..]) => {
            format!("{:08x}", u32::from_be_bytes([one, two, three, four]))
        }
        None => port.to_string(),
    }
}

fn cookie_name(hub: &HubState) -> String {
    format!("maru_{}", hub.cookie_suffix)
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

fn session_json(hub: &HubState, principal: Option<&Principal>) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let tools = snapshot
        .view(&CatalogScope::All)
        .map_or(0, |it| it.tools.entries().len());
    let agent = hub.agent.settings();
    json!({
        "name": principal.map(Principal::name),
        "role": principal.map(|it| it.role().as_str()),
        "version": env!("CARGO_PKG_VERSION"),
        "build": super::assets::build(),
        "issuer": hub.oidc.is_some(),
        "shared": hub.peers.is_some(),
        "tools": principal.map(|_| tools),
        "agent": {
            "maxTools": agent.max_tools_per_request,
            "maxToolTokens": agent.max_tool_tokens,
        },
    })
}
