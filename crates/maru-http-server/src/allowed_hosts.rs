//! `/api/allowed-hosts`: hosts that servers, sources and models may be on, beside those of
//! the settings.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_http::AddedHosts;
use maru_store::{Error, Store};
use serde_json::json;
use tracing::warn;

use super::{HubState, servers::json_error};
use maru_downstream::http::reply;

const ALLOWED_HOSTS_SETTING: &str = "allowed_hosts";
const MAX_ADDED_HOSTS: usize = 500;

impl HubState {
    /// Reads the added hosts again, because another hub may have changed them.
    pub async fn reload_added_hosts(&self) -> Result<(), Error> {
        load_added_hosts(&self.store, &self.address_policy.added_hosts).await
    }
}

/// Reads the stored hosts into `hosts`.
pub async fn load_added_hosts(store: &Store, hosts: &AddedHosts) -> Result<(), Error> {
    hosts.replace(read_hosts(store).await?);
    Ok(())
}

async fn read_hosts(store: &Store) -> Result<Vec<String>, Error> {
    let stored = store.hub_setting(ALLOWED_HOSTS_SETTING).await?;
    Ok(parse_hosts(stored.as_deref()))
}

fn parse_hosts(stored: Option<&str>) -> Vec<String> {
    let hosts = stored.and_then(|it| serde_json::from_str(it).ok());
    hosts.unwrap_or_default()
}

/// `GET /api/allowed-hosts`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    list_response(&hub)
}

fn list_response(hub: &HubState) -> Response {
    let policy = &hub.address_policy;
    let shown = json!({"settings": policy.allowed_hosts, "added": policy.added_hosts.list()});
    reply::json(StatusCode::OK, shown.to_string())
}

/// `PUT /api/allowed-hosts/{host}`.
pub(super) async fn allow(State(hub): State<Arc<HubState>>, Path(host): Path<String>) -> Response {
    let host = match hub.address_policy.check_added_host(&host) {
        Ok(host) => host,
        Err(error) => {
            return json_error(StatusCode::BAD_REQUEST, &error.to_string(), Some("host"));
        }
    };
    let changed = add(&hub, &host).await;
    changed_response(&hub, changed)
}

/// `DELETE /api/allowed-hosts/{host}`. Connections that are open stay open.
pub(super) async fn forbid(State(hub): State<Arc<HubState>>, Path(host): Path<String>) -> Response {
    let changed = change(&hub, |hosts| {
        let before = hosts.len();
        hosts.retain(|it| *it != host);
        hosts.len() < before
    });
    changed_response(&hub, changed.await)
}

/// Adds a host that was checked; returns false if there is no room for it.
pub(super) async fn add(hub: &HubState, host: &str) -> Result<bool, Error> {
    change(hub, |hosts| {
        let is_known = hosts.iter().any(|it| it == host);
        if !is_known && hosts.len() < MAX_ADDED_HOSTS {
            hosts.push(host.to_owned());
        }
        hosts.iter().any(|it| it == host)
    })
    .await
}

/// Changes the stored list and then the policy; `edit` returns false if it cannot.
async fn change(hub: &HubState, edit: impl Fn(&mut Vec<String>) -> bool) -> Result<bool, Error> {
    loop {
        let stored = hub.store.hub_setting(ALLOWED_HOSTS_SETTING).await?;
        let stored = stored.as_deref();
        let mut hosts = parse_hosts(stored);
        if !edit(&mut hosts) {
            return Ok(false);
        }
        let text = json!(hosts).to_string();
        let replaced = hub
            .store
            .replace_hub_setting(ALLOWED_HOSTS_SETTING, stored, &text);
        // Somebody else may have changed it, at this hub or another one.
        if replaced.await? {
            hub.address_policy.added_hosts.replace(hosts);
            break;
        }
    }
    // A model that was refused because of its host can be used now.
    if let Err(error) = hub.model_manager.reload().await {
        warn!("the models could not be opened again: {error}");
    }
    Ok(true)
}

fn changed_response(hub: &HubState, changed: Result<bool, Error>) -> Response {
    match changed {
        Ok(true) => list_response(hub),
        Ok(false) => json_error(
            StatusCode::NOT_FOUND,
            "there is no such host in the list, or no room in it",
            Some("host"),
        ),
        Err(error) => json_error(
            StatusCode::SERVICE_UNAVAILABLE,
            &error.public_message(),
            None,
        ),
    }
}
