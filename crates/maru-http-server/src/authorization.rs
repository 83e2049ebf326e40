//! maru as an authorization server: the endpoints of clients, and the pages on which people
//! sign in and allow them to use maru.

mod consent;
mod consent_form;
mod endpoints;
mod oidc;
mod person;

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    http::{HeaderMap, StatusCode},
    response::Response,
};

use super::{
    HubState, console,
    pages::{PageLanguage, sentence_page},
    router::ClientAddress,
    servers::json_error,
};
use maru_auth::{Principal, TokenIssuer};
use maru_observability::{audit::AuditedChange, journal::RequestId};

pub(super) use consent::{ask, authorize, decide};
pub(super) use endpoints::{issue_tokens, metadata, register, revoke};
pub(super) use oidc::{begin as begin_oidc, callback as oidc_callback};
pub(super) use person::{
    accept_invitation, show_invitation, sign_in, sign_in_to_account, status_of,
};

/// A person who is signed in to the hub in a browser.
struct SignedInPerson {
    principal: Principal,
    /// Stands for the account in sessions and grants.
    account_hash: [u8; 32],
    /// The hash of the browser's cookie.
    session: [u8; 32],
}

/// Returns the person of a browser's cookie.
fn signed_in_person(hub: &HubState, headers: &HeaderMap) -> Option<SignedInPerson> {
    let cookie = console::session_cookie(hub, headers)?;
    let account_hash = hub.sessions.token_hash_of(&cookie)?;
    Some(SignedInPerson {
        principal: hub.access.principal_of_hash(&account_hash)?,
        account_hash,
        session: cookie.hash(),
    })
}

/// Returns the authorization server, or the page of a hub that is none.
fn issuer_for_page(
    hub: &HubState,
    language: PageLanguage,
) -> Result<Arc<TokenIssuer>, Box<Response>> {
    hub.access.token_issuer().cloned().ok_or_else(|| {
        let text = language.pick(
            "This hub does not sign people in for other programs (oauth.serve).",
            "이 허브는 다른 프로그램의 로그인을 받지 않습니다(oauth.serve).",
        );
        Box::new(sentence_page(StatusCode::NOT_FOUND, language, text))
    })
}

/// Returns the authorization server, or the response of a hub that is none.
fn issuer_for_client(hub: &HubState) -> Result<Arc<TokenIssuer>, Box<Response>> {
    hub.access.token_issuer().cloned().ok_or_else(|| {
        let message = "this hub is no authorization server (oauth.serve)";
        Box::new(json_error(StatusCode::NOT_FOUND, message, None))
    })
}

/// The address that attempts are counted by; unknown behind a proxy, whose address all
/// clients share.
fn counted_address(hub: &HubState, address: ClientAddress) -> Option<IpAddr> {
    address.0.filter(|_| !hub.is_behind_proxy)
}

/// Records what a person or a client changed. It must succeed before the change is made.
async fn record(
    hub: &HubState,
    principal: &str,
    address: ClientAddress,
    (action, target): (&str, &str),
) -> Result<(), Box<Response>> {
    let change = AuditedChange {
        principal,
        remote_ip: address.0,
        action: action.to_owned(),
        target,
        arguments: String::new(),
        status: StatusCode::OK.as_u16(),
        duration: Duration::ZERO,
        request_id: RequestId::next().to_string(),
    };
    if let Err(error) = hub.audit.begin_change(&change).await {
        tracing::error!("refused a change because it cannot be audited: {error}");
        let message = "nothing was changed: the store cannot record the change; try again later";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return Err(Box::new(json_error(status, message, None)));
    }
    hub.audit.finish_change(&change).await;
    Ok(())
}
