//! Signing in to servers behind the hub: starting a sign-in, and the pages that a browser
//! sees on its way to the authorization server and back.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::Response,
};
use serde_json::json;

use super::{
    HubState,
    body::JsonBody,
    pages::{PageLanguage, cookie, redirect, sentence_page},
    servers::{json_error, reject_change},
};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_upstream::{RegistrationError, ServerSignIn, SignInError, SignInReturn, client_document};

/// The subject of the credential that all callers share.
const SHARED: &str = "";

/// `POST /api/mcp/servers/{name}/login`: starts a sign-in for all callers.
pub(super) async fn begin(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    respond_begun(ServerSignIn::begin(&hub.servers, &name, SHARED).await)
}

/// `POST /api/mcp/servers/{name}/login/complete`: `{"redirect_url"}`, where the browser
/// cannot reach the hub.
pub(super) async fn complete(
    State(hub): State<Arc<HubState>>,
    Path(_name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let query = match redirect_query(&body) {
        Ok(query) => query,
        Err(response) => return *response,
    };
    respond_completed(
        ServerSignIn::complete(&hub.servers, query, SignInReturn::Caller(SHARED)).await,
    )
}

/// `POST /api/mcp/servers/{name}/logout`: signs all callers out.
pub(super) async fn end(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    respond_ended(ServerSignIn::end(&hub.servers, &name, SHARED).await)
}

/// `POST /api/mcp/servers/{name}/account`: starts a sign-in with the caller's own account.
pub(super) async fn begin_own(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
) -> Response {
    match require_own_accounts(&hub, &who, &name) {
        Ok(()) => respond_begun(ServerSignIn::begin(&hub.servers, &name, who.name()).await),
        Err(error) => reject_sign_in(&error),
    }
}

/// `PUT /api/mcp/servers/{name}/account`: `{"redirect_url"}` of the caller's own sign-in.
pub(super) async fn complete_own(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let query = match redirect_query(&body) {
        Ok(query) => query,
        Err(response) => return *response,
    };
    match require_own_accounts(&hub, &who, &name) {
        Ok(()) => {
            let returned = SignInReturn::Caller(who.name());
            respond_completed(ServerSignIn::complete(&hub.servers, query, returned).await)
        }
        Err(error) => reject_sign_in(&error),
    }
}

/// `DELETE /api/mcp/servers/{name}/account`: signs the caller's own account out.
pub(super) async fn end_own(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
) -> Response {
    match require_own_accounts(&hub, &who, &name) {
        Ok(()) => respond_ended(ServerSignIn::end(&hub.servers, &name, who.name()).await),
        Err(error) => reject_sign_in(&error),
    }
}

/// `GET /oauth/start/{name}`: sends the browser to the authorization server. Whoever opens
/// the page signs in for himself: with an own account where the server has those, else, as
/// an admin, for all callers.
pub(super) async fn start(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let Ok(who) = hub.identify(&headers) else {
        return sentence_page(StatusCode::UNAUTHORIZED, language, &sign_in_first(language));
    };
    let subject = match require_own_accounts(&hub, &who, &name) {
        Ok(()) => who.name(),
        Err(SignInError::NotOffered(_)) if is_trusted_admin(&hub, &who) => SHARED,
        Err(SignInError::NotOffered(_)) => {
            return sentence_page(StatusCode::FORBIDDEN, language, &admins_only(language));
        }
        Err(error) => return sentence_page(StatusCode::NOT_FOUND, language, &error.to_string()),
    };
    match ServerSignIn::begin(&hub.servers, &name, subject).await {
        Ok(begun) => with_binding(&hub, redirect(&begun.authorization_url), &begun),
        Err(error) => sentence_page(status_of(&error), language, &error.to_string()),
    }
}

/// `GET /oauth/callback`: the browser comes back from the authorization server.
pub(super) async fn callback(
    State(hub): State<Arc<HubState>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let language = PageLanguage::of(&headers);
    let query = uri.query().unwrap_or_default();
    let binding = ServerSignIn::browser_binding(query);
    let returned = if binding.is_some() && binding == bound_sign_in(&hub, &headers) {
        SignInReturn::SameBrowser
    } else {
        SignInReturn::AnyBrowser
    };
    match ServerSignIn::complete(&hub.servers, query, returned).await {
        Ok(server) => sentence_page(StatusCode::OK, language, &signed_in(language, &server)),
        Err(error) => sentence_page(status_of(&error), language, &error.to_string()),
    }
}

/// `GET /oauth/client.json`: what authorization servers may know of maru.
pub(super) async fn document(State(hub): State<Arc<HubState>>) -> Response {
    let options = hub.servers.sign_in_options();
    match &options.document_url {
        Some(url) => {
            let document = client_document(url, &options.redirect_uri());
            reply::json(StatusCode::OK, document.to_string())
        }
        None => json_error(
            StatusCode::NOT_FOUND,
            "there is no client document, because public_url is not set to an https address",
            None,
        ),
    }
}

/// The admin token, or any program on this machine where those are admins.
fn is_trusted_admin(hub: &HubState, who: &Principal) -> bool {
    let is_local_admin = who.is_local() && hub.access.local_admin().is_some();
    is_local_admin || who.role() == AccessRole::Admin && who.grants().is_none()
}

/// Refuses callers who may not see the server, and servers without own accounts.
fn require_own_accounts(hub: &HubState, who: &Principal, name: &str) -> Result<(), SignInError> {
    let server = hub.servers.get(name)?.server;
    if !who.may_reach(name) {
        return Err(RegistrationError::UnknownServer(name.to_owned()).into());
    }
    let auth = server.transport.remote_auth();
    if who.may_call() && auth.is_some_and(maru_upstream::RemoteAuth::is_per_user) {
        Ok(())
    } else {
        Err(SignInError::NotOffered(name.to_owned()))
    }
}

fn redirect_query(body: &serde_json::Value) -> Result<&str, Box<Response>> {
    let url = body["redirect_url"].as_str().unwrap_or_default();
    let query = url.trim().split_once('?').map(|(_, query)| query);
    query.ok_or_else(|| {
        let message =
            "redirect_url must be the whole address that the browser was sent to, with its ?code=…";
        Box::new(json_error(
            StatusCode::BAD_REQUEST,
            message,
            Some("redirect_url"),
        ))
    })
}

fn respond_begun(begun: Result<ServerSignIn, SignInError>) -> Response {
    match begun {
        Ok(begun) => {
            let body = json!({"name": begun.server, "authorization_url": begun.authorization_url});
            reply::json(StatusCode::OK, body.to_string())
        }
        Err(error) => reject_sign_in(&error),
    }
}

fn respond_completed(completed: Result<String, SignInError>) -> Response {
    match completed {
        Ok(server) => reply::json(StatusCode::OK, json!({"name": server}).to_string()),
        Err(error) => reject_sign_in(&error),
    }
}

fn respond_ended(ended: Result<bool, SignInError>) -> Response {
    match ended {
        Ok(revoked) => reply::json(StatusCode::OK, json!({"revoked": revoked}).to_string()),
        Err(error) => reject_sign_in(&error),
    }
}

fn reject_sign_in(error: &SignInError) -> Response {
    match error {
        SignInError::Server(error) => reject_change(error),
        error => json_error(status_of(error), &error.to_string(), None),
    }
}

fn status_of(error: &SignInError) -> StatusCode {
    match error {
        SignInError::Server(_) => StatusCode::NOT_FOUND,
        SignInError::NotOffered(_) => StatusCode::CONFLICT,
        SignInError::UnknownState => StatusCode::BAD_REQUEST,
        SignInError::OtherSubject => StatusCode::FORBIDDEN,
        SignInError::TooMany => StatusCode::TOO_MANY_REQUESTS,
        SignInError::OAuth(_) => StatusCode::BAD_GATEWAY,
        SignInError::Store => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Binds the sign-in to this browser. The cookie is Lax, because the browser comes back from
/// another site.
fn with_binding(hub: &HubState, mut response: Response, begun: &ServerSignIn) -> Response {
    let query = begun.authorization_url.split_once('?');
    let binding = query.and_then(|(_, query)| ServerSignIn::browser_binding(query));
    let secure = if hub.is_encrypted { "; Secure" } else { "" };
    let name = binding_cookie(hub);
    let line = format!(
        "{name}={}; Path=/oauth; Max-Age=600; HttpOnly; SameSite=Lax{secure}",
        binding.unwrap_or_default()
    );
    if let Ok(line) = HeaderValue::from_str(&line) {
        response.headers_mut().insert(header::SET_COOKIE, line);
    }
    response
}

/// Returns the sign-in that was started in this browser.
fn bound_sign_in(hub: &HubState, headers: &HeaderMap) -> Option<String> {
    cookie(headers, &binding_cookie(hub)).map(str::to_owned)
}

fn binding_cookie(hub: &HubState) -> String {
    format!("maru_sign_in_{}", hub.cookie_suffix)
}

fn signed_in(language: PageLanguage, server: &str) -> String {
    match language {
        PageLanguage::English => {
            format!("maru is signed in to {server}. You can close this window.")
        }
        PageLanguage::Korean => {
            format!("maru가 {server}에 로그인했습니다. 이 창을 닫아도 됩니다.")
        }
    }
}

fn sign_in_first(language: PageLanguage) -> String {
    match language {
        PageLanguage::English => "Sign in to the console first, then open this page again.",
        PageLanguage::Korean => "먼저 콘솔에 로그인한 다음 이 페이지를 다시 여십시오.",
    }
    .to_owned()
}

fn admins_only(language: PageLanguage) -> String {
    match language {
        PageLanguage::English => {
            "All callers share the account of this server, so only an admin may sign in. Open the console as admin, then open this page again."
        }
        PageLanguage::Korean => {
            "이 서버의 계정은 모든 호출자가 함께 쓰므로 관리자만 로그인할 수 있습니다. 관리자로 콘솔에 로그인한 다음 이 페이지를 다시 여십시오."
        }
    }
    .to_owned()
}
