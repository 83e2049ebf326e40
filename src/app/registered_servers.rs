//! Opens the registry of servers with the settings.

use std::{net::Ipv4Addr, sync::Arc};

use anyhow::Result;
use maru_http::AddressPolicy;
use maru_peers::PeerHubs;
use maru_runtime::tasks::Tasks;
use maru_store::Store;

use super::{REGISTRY_FILE, REGISTRY_RECORD_FILE};
use crate::{
    config::{Config, process_environment},
    tools::Catalog,
    upstream::{
        ConnectionSettings, ManagerOptions, ProgramRules, RegistrationRules, ServerDraft,
        ServerManager, SignInOptions, SingleRuns,
    },
};

pub(super) async fn open_servers(
    config: &Config,
    store: &Store,
    policy: AddressPolicy,
    catalog: &Arc<Catalog>,
    (peers, tasks): (Option<&Arc<PeerHubs>>, &Tasks),
) -> Result<Arc<ServerManager>> {
    let sign_in = sign_in_options(config, policy.own_port);
    let mcp = &config.mcp;
    let environment: Vec<_> = process_environment().into_iter().collect();
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let search_path = path.map_or_else(String::new, |(_, value)| value.clone());
    let mut policy = policy;
    policy.allow_local_urls(mcp.servers.iter().filter_map(|it| it.url.as_deref()));
    policy.allows_private = config.allows_local_admin();
    let settings = ConnectionSettings::new(mcp, Arc::clone(catalog), store.clone(), tasks.clone())
        .with_environment(environment)
        .with_warden(config.warden.clone())
        .with_sign_in(sign_in)
        .with_single_runs(SingleRuns::new(store, peers, tasks))
        .with_limits(&config.limits);
    let directory = config.config_directory.as_ref().unwrap_or(&config.data_dir);
    let record = config.data_dir.join(REGISTRY_RECORD_FILE);
    ServerManager::start(ManagerOptions {
        store: store.clone(),
        rules: RegistrationRules {
            allowed_names: mcp.security.allowed_server_names.clone(),
            program_rules: ProgramRules::new(mcp, !config.is_loopback_only(), &search_path),
            programs_refused: !config.is_loopback_only() && !config.allow_stdio_over_http,
            address_policy: policy,
        },
        settings,
        max_servers: mcp.security.max_servers,
        seeds: mcp.servers.iter().map(ServerDraft::from).collect(),
        registry: &directory.join(REGISTRY_FILE),
        registry_record: (!config.is_ephemeral()).then_some(&record),
    })
    .await
}

/// Returns where people come back to who sign in to a server.
pub(super) fn sign_in_options(config: &Config, own_port: Option<u16>) -> SignInOptions {
    let document = config
        .public_url
        .as_ref()
        .filter(|it| it.starts_with("https://"));
    let scheme = if config.tls.certificate.is_some() {
        "https"
    } else {
        "http"
    };
    let mut address = config.listen;
    address.set_port(own_port.unwrap_or(address.port()));
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    let own_url = || format!("{scheme}://{address}");
    SignInOptions {
        base_url: config.public_url.clone().unwrap_or_else(own_url),
        document_url: document.map(|it| format!("{it}/oauth/client.json")),
    }
}
