//! The way of a browser to the company's issuer and back.

use std::{error::Error, sync::Arc};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru_oauth::AuthorizationRequest;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        HubState, console,
        pages::{Page, PageLanguage, cookie, redirect, sentence_page},
        router::ClientAddress,
        servers::json_error,
        tokens::end_access,
    },
    record,
};
use maru_auth::{FormFields, OidcError};

/// Browsers keep no larger cookies.
const MAX_COOKIE_BYTES: usize = 3800;

/// What the browser keeps of a sign-in until it comes back.
#[derive(Serialize, Deserialize)]
struct BrowserSignIn {
    request: AuthorizationRequest,
    /// The request that waits for a consent.
    query: String,
}

/// `GET /oauth/oidc?query=…`: sends the browser to the issuer.
pub(crate) async fn begin(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let Some(oidc) = &hub.oidc else {
        return not_set(language);
    };
    let fields = FormFields::parse(uri.query().unwrap_or_default()).unwrap_or_default();
    let query = fields.get("query").unwrap_or_default().to_owned();
    match oidc.begin().await {
        Ok(begun) => {
            let pending = BrowserSignIn {
                request: begun.request,
                query,
            };
            let value = serde_json::to_vec(&pending).unwrap_or_default();
            let value = BASE64_URL_SAFE_NO_PAD.encode(value);
            if value.len() > MAX_COOKIE_BYTES {
                let text = language.pick(
                    "The link of the application is too long to sign in at the issuer.",
                    "애플리케이션의 링크가 너무 길어 로그인할 수 없습니다.",
                );
                return sentence_page(StatusCode::BAD_REQUEST, language, text);
            }
            with_pending(&hub, redirect(&begun.url), &value, 600)
        }
        Err(error) => failed(language, &error),
    }
}

/// `GET /oauth/oidc/callback`: the browser comes back from the issuer.
pub(crate) async fn callback(
    State(hub): State<Arc<HubState>>,
    Extension(address): Extension<ClientAddress>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let Some(oidc) = &hub.oidc else {
        return not_set(language);
    };
    let kept = cookie(&headers, &pending_cookie(&hub));
    let kept = kept.and_then(|it| BASE64_URL_SAFE_NO_PAD.decode(it).ok());
    let kept = kept.and_then(|it| serde_json::from_slice::<BrowserSignIn>(&it).ok());
    let Some(pending) = kept else {
        return failed(language, &OidcError::UnknownState);
    };
    let query = uri.query().unwrap_or_default();
    let person = match oidc.complete(&pending.request, query).await {
        Ok(person) => person,
        Err(OidcError::NoRole { account }) => {
            if let Err(response) = end_account(&hub, &account, address).await {
                return *response;
            }
            return failed(language, &OidcError::NoRole { account });
        }
        Err(error) => return failed(language, &error),
    };
    let what = ("GET /oauth/oidc/callback", person.label.as_str());
    if let Err(response) = record(&hub, &person.name, address, what).await {
        return *response;
    }
    let account = hub
        .accounts
        .sign_in_external(&hub.access, &person.name, &person.label, person.role)
        .await;
    let hash = match account {
        Ok(hash) => hash,
        Err(error) => {
            tracing::error!("failed to save the account of a person: {error}");
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return sentence_page(status, language, &error.public_message());
        }
    };
    let next = if pending.query.is_empty() {
        "/".to_owned()
    } else {
        format!("/oauth/consent?{}", pending.query)
    };
    let page = Page::leading_to(language, &next).into_response();
    let response = console::signed_in_response(&hub, hash, page).await;
    with_pending(&hub, response, "", 0)
}

/// Ends the account of a person whose groups have no role any more, where there is one.
async fn end_account(
    hub: &HubState,
    account: &str,
    address: ClientAddress,
) -> Result<(), Box<Response>> {
    let failed = |error: &dyn Error| {
        tracing::error!("failed to end the account of a person without a role: {error}");
        let message = "the account could not be ended; try again later";
        Box::new(json_error(StatusCode::SERVICE_UNAVAILABLE, message, None))
    };
    let tokens = hub.access.list_tokens().await.map_err(|it| failed(&it))?;
    if tokens.iter().all(|it| it.name != account) {
        return Ok(());
    }
    record(hub, account, address, ("end account", account)).await?;
    let ended = end_access(hub, account).await;
    ended.map(drop).map_err(|it| failed(&it))
}

/// The cookie is Lax, because the browser comes back from another site.
fn with_pending(hub: &HubState, mut response: Response, value: &str, seconds: u64) -> Response {
    let secure = if hub.is_encrypted { "; Secure" } else { "" };
    let name = pending_cookie(hub);
    let line = format!(
        "{name}={value}; Path=/oauth/oidc; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}"
    );
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().append(header::SET_COOKIE, line);
    }
    response
}

fn pending_cookie(hub: &HubState) -> String {
    format!("maru_oidc_{}", hub.cookie_suffix)
}

fn not_set(language: PageLanguage) -> Response {
    let text = language.pick(
        "This hub has no issuer to sign in at (oidc).",
        "이 허브에는 로그인할 발급자가 설정되어 있지 않습니다(oidc).",
    );
    sentence_page(StatusCode::NOT_FOUND, language, text)
}

fn failed(language: PageLanguage, error: &OidcError) -> Response {
    tracing::warn!("a sign-in at the issuer failed: {error}");
    let (status, korean) = match error {
        OidcError::OAuth(_) | OidcError::IdToken(_) => {
            (StatusCode::BAD_GATEWAY, "발급자에서 로그인하지 못했습니다.")
        }
        OidcError::UnknownState => (
            StatusCode::BAD_REQUEST,
            "이 브라우저에서 시작하지 않았거나 너무 오래된 로그인입니다. 다시 시작하십시오.",
        ),
        OidcError::NoRole { .. } => (
            StatusCode::FORBIDDEN,
            "속한 그룹 중에 이 허브를 사용할 수 있는 그룹이 없습니다.",
        ),
    };
    sentence_page(status, language, language.pick(&error.to_string(), korean))
}
