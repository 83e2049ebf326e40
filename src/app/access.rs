//! Opens access control: tokens, the company's issuer and maru as an authorization server.

use std::sync::Arc;

use anyhow::Result;
use maru_http::{AddressPolicy, ClientTls};
use maru_oauth::OAuthHttp;
use maru_runtime::tasks::Tasks;
use maru_store::Store;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{address_policy, registered_servers::sign_in_options};
use crate::{
    auth::{AccessControl, OAuthVerifier, TokenIssuer},
    config::Config,
};

/// Opens access control.
pub(super) async fn open_access(
    config: &Config,
    store: &Store,
    own_port: u16,
) -> Result<Arc<AccessControl>> {
    let oauth = open_oauth(config)?;
    let issuer = if config.oauth.serve {
        let base_url = sign_in_options(config, Some(own_port)).base_url;
        // Anybody may name a document, so it is read only from the hosts that are meant.
        let documents = AddressPolicy {
            serves_loopback_only: false,
            allowed_hosts: config.oauth.client_hosts.clone(),
            ..address_policy(config, Some(own_port))
        };
        let http = OAuthHttp::new(documents, ClientTls::default());
        let issuer = TokenIssuer::open(store.clone(), &config.oauth, &base_url, http);
        Some(issuer.await?)
    } else {
        None
    };
    let access = AccessControl::load(store.clone(), config.requires_token(), oauth).await?;
    let access = access.with_token_issuer(issuer);
    let access = Arc::new(access.with_local_admin(config.allows_local_admin()));
    if config.allows_local_admin() {
        warn!(
            "local_admin is on: every program on this machine, of any user, may change maru and start programs as its user"
        );
    }
    if let Some(oauth) = access.oauth() {
        oauth.refresh().await;
    }
    Ok(access)
}

pub(super) fn open_oauth(config: &Config) -> Result<Option<OAuthVerifier>> {
    let oauth = OAuthVerifier::new(&config.oauth, &address_policy(config, None));
    oauth.map_err(anyhow::Error::msg)
}

/// Refreshes the issuer's keys periodically until the returned token is cancelled.
pub(super) fn spawn_key_refresh(access: &AccessControl, tasks: &Tasks) -> CancellationToken {
    let stop = tasks.stop_token().child_token();
    if let Some(oauth) = access.oauth() {
        tasks.spawn(oauth.refresh_periodically(stop.clone()));
    }
    stop
}
