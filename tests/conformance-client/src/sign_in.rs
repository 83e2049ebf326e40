//! Signs in without a browser: the suite's authorization server redirects at once.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use hyper::{HeaderMap, Method, Uri, body::Bytes, header::LOCATION};
use maru::upstream::{ServerManager, ServerSignIn, ServerView, SignInReturn};
use maru_http::{AddressPolicy, ClientTls, HttpClient, HttpRequest};
use serde_json::{Value, json};

pub(crate) const BASE_URL: &str = "http://localhost:20006";
/// The client metadata document that the suite expects.
pub(crate) const DOCUMENT_URL: &str = "https://conformance-test.local/client-metadata.json";

/// The member `auth` of the server's configuration, from the credentials that the suite
/// hands out.
pub(crate) fn settings(context: &Value) -> Value {
    let Some(id) = context["client_id"].as_str() else {
        return Value::Null;
    };
    let secret = &context["client_secret"];
    if !context["private_key_pem"].is_null() {
        let key = &context["private_key_pem"];
        return json!({"type": "client_credentials", "client_id": id, "private_key": key});
    }
    // Of the scenarios with a secret, only that of a registered client names an issuer.
    let kind = if context["issuer"].is_null() {
        "client_credentials"
    } else {
        "oauth"
    };
    json!({"type": kind, "client_id": id, "client_secret": secret})
}

/// Opens the link of a sign-in and hands over the redirect.
pub(crate) async fn follow_link(servers: &Arc<ServerManager>, name: &str) -> Result<ServerView> {
    let started = ServerSignIn::begin(servers, name, "").await?;
    let location = redirect_of(&started.authorization_url).await?;
    let redirect_uri = servers.sign_in_options().redirect_uri();
    ensure!(
        location.starts_with(&redirect_uri),
        "redirected to {location}"
    );
    let (_, query) = location.split_once('?').context("no query")?;
    ServerSignIn::complete(servers, query, SignInReturn::AnyBrowser).await?;
    Ok(servers.get(name)?)
}

/// Whether a failed call says that a sign-in would help.
pub(crate) fn is_wanted(error: &anyhow::Error) -> bool {
    let text = error.to_string();
    text.contains("maru servers login") || text.contains("/oauth/start/")
}

async fn redirect_of(url: &str) -> Result<String> {
    let policy = AddressPolicy {
        serves_loopback_only: true,
        ..AddressPolicy::default()
    };
    let target = policy.authorize(url)?;
    let uri: Uri = target.path.parse()?;
    let response = HttpClient::new(target, ClientTls::default())
        .send(&HttpRequest {
            method: &Method::GET,
            uri: &uri,
            headers: &HeaderMap::new(),
            extra_headers: &[],
            body: &Bytes::new(),
        })
        .await?;
    match response.header(&LOCATION) {
        Some(location) => Ok(location.to_owned()),
        None => bail!("the authorization server answered {}", response.status),
    }
}
