//! The endpoints that clients use: metadata, registration, tokens and revocation.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use serde_json::json;

use super::{
    super::{
        HubState,
        body::{FormBody, JsonBody},
        router::ClientAddress,
    },
    counted_address, issuer_for_client, record,
};
use maru_auth::{ClientRegistrationError, FormFields, GrantError, OAuthClient, TokenIssuer};
use maru_downstream::http::reply;

/// `GET /.well-known/oauth-authorization-server` (RFC 8414).
pub(crate) async fn metadata(State(hub): State<Arc<HubState>>) -> Response {
    match issuer_for_client(&hub) {
        Ok(issuer) => reply::json(StatusCode::OK, issuer.server_metadata().to_string()),
        Err(response) => *response,
    }
}

/// `POST /oauth/register` (RFC 7591).
pub(crate) async fn register(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    JsonBody(body): JsonBody,
) -> Response {
    let issuer = match issuer_for_client(&hub) {
        Ok(issuer) => issuer,
        Err(response) => return *response,
    };
    let from = counted_address(&hub, address);
    match issuer.clients().register(from, &body).await {
        Ok(body) => {
            let text = |member: &str| body[member].as_str().unwrap_or_default();
            // The colon keeps it apart from the names of tokens.
            let client = format!("client:{}", text("client_id"));
            let what = ("POST /oauth/register", text("client_name"));
            // A client that cannot be recorded never learns its id, and expires.
            match record(&hub, &client, address, what).await {
                Ok(()) => uncached(reply::json(StatusCode::CREATED, body.to_string())),
                Err(response) => *response,
            }
        }
        Err(error) => {
            let (status, code) = match &error {
                ClientRegistrationError::TooMany => {
                    (StatusCode::TOO_MANY_REQUESTS, "temporarily_unavailable")
                }
                ClientRegistrationError::Metadata(error) => (StatusCode::BAD_REQUEST, error.code),
                ClientRegistrationError::Store(error) => {
                    tracing::error!("failed to register a client: {error}");
                    (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable")
                }
            };
            let mut response = oauth_error(status, code, &error.to_string());
            if status == StatusCode::TOO_MANY_REQUESTS {
                let minute = HeaderValue::from_static("60");
                response.headers_mut().insert(header::RETRY_AFTER, minute);
            }
            response
        }
    }
}

/// `POST /oauth/token` (RFC 6749, section 3.2).
pub(crate) async fn issue_tokens(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let issuer = match issuer_for_client(&hub) {
        Ok(issuer) => issuer,
        Err(response) => return *response,
    };
    let client = match authenticate(&issuer, &headers, &form).await {
        Ok(client) => client,
        Err(error) => return reject(&error, &headers),
    };
    match issuer.issue_tokens(&client, &form).await {
        Ok(issued) => uncached(reply::json(StatusCode::OK, issued.body.to_string())),
        Err(error) => {
            if let GrantError::Replayed(grant) = &error {
                let what = ("oauth replay", grant.client_name.as_str());
                // It was revoked already; a store that is down now loses only the record.
                let _recorded = record(&hub, &grant.account, address, what).await;
                hub.engine.end_sessions_of(&grant.account);
            }
            reject(&error, &headers)
        }
    }
}

/// `POST /oauth/revoke` (RFC 7009). A token that is not valid is as good as revoked.
pub(crate) async fn revoke(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    headers: HeaderMap,
    FormBody(form): FormBody,
) -> Response {
    let issuer = match issuer_for_client(&hub) {
        Ok(issuer) => issuer,
        Err(response) => return *response,
    };
    let client = match authenticate(&issuer, &headers, &form).await {
        Ok(client) => client,
        Err(error) => return reject(&error, &headers),
    };
    let token = form.get("token").unwrap_or_default();
    match issuer.revoke_token(&client, token).await {
        Ok(revoked) => {
            if let Some(grant) = revoked {
                let what = ("POST /oauth/revoke", grant.client_name.as_str());
                let _recorded = record(&hub, &grant.account, address, what).await;
                hub.engine.end_sessions_of(&grant.account);
            }
            uncached(reply::json(StatusCode::OK, "{}".to_owned()))
        }
        Err(error) => reject(&error.into(), &headers),
    }
}

async fn authenticate(
    issuer: &TokenIssuer,
    headers: &HeaderMap,
    form: &FormFields,
) -> Result<OAuthClient, GrantError> {
    let basic = match headers.get(header::AUTHORIZATION) {
        Some(value) => Some(parse_basic(value).ok_or(GrantError::InvalidClient)?),
        None => None,
    };
    issuer.clients().authenticate(form, basic).await
}

/// Parses the id and the secret of a client (RFC 6749, section 2.3.1).
fn parse_basic(value: &HeaderValue) -> Option<(String, String)> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    let decode = |text: &str| {
        let spaced = text.replace('+', " ");
        Some(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned())
    };
    Some((decode(id)?, decode(secret)?))
}

fn reject(error: &GrantError, headers: &HeaderMap) -> Response {
    let (status, code) = match error {
        GrantError::InvalidClient => (StatusCode::UNAUTHORIZED, "invalid_client"),
        GrantError::InvalidGrant(_) | GrantError::Replayed(_) => {
            (StatusCode::BAD_REQUEST, "invalid_grant")
        }
        GrantError::InvalidRequest(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
        GrantError::UnsupportedGrantType => (StatusCode::BAD_REQUEST, "unsupported_grant_type"),
        GrantError::InvalidTarget => (StatusCode::BAD_REQUEST, "invalid_target"),
        GrantError::ClientUnavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable")
        }
        GrantError::Store(error) => {
            tracing::error!("failed to answer a token request: {error}");
            (StatusCode::SERVICE_UNAVAILABLE, "temporarily_unavailable")
        }
    };
    let mut response = oauth_error(status, code, &error.to_string());
    if status == StatusCode::UNAUTHORIZED && headers.contains_key(header::AUTHORIZATION) {
        let challenge = HeaderValue::from_static("Basic realm=\"maru\"");
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// An error in the form of RFC 6749.
fn oauth_error(status: StatusCode, code: &str, description: &str) -> Response {
    let body = json!({"error": code, "error_description": description});
    uncached(reply::json(status, body.to_string()))
}

fn uncached(mut response: Response) -> Response {
    let no_store = HeaderValue::from_static("no-store");
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, no_store);
    response
}
