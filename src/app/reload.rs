//! Applies changed settings while the hub runs.

use std::{
    mem,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

use anyhow::{Context as _, Result};
use tracing::warn;

use super::{
    RunningHub,
    access::{open_oauth, spawn_key_refresh},
    address_policy, model_settings,
};
use crate::{
    auth::load_or_create_admin_token,
    config::{Config, LoadedConfig, LogSettings, config_rows},
    http::{self, OriginPolicy, ReloadableSettings},
    tools::ResultLimits,
};

/// Which changed settings a reload applied, and which need a restart.
#[derive(Debug, Default)]
pub struct ReloadReport {
    /// Keys whose new values are applied.
    pub applied: Vec<String>,
    /// Keys whose new values need a restart.
    pub needs_restart: Vec<String>,
}

/// Settings that can change while the hub runs, including all keys below them.
const RELOADABLE_KEYS: [&str; 12] = [
    "chat",
    "http",
    "limits",
    "log.level",
    "models",
    "oauth",
    "ollama",
    "require_token",
    "tls",
    "tool_search",
    "toolsets",
    "usage",
];

/// Exceptions to `RELOADABLE_KEYS` that are read only at startup.
const STARTUP_ONLY_KEYS: [&str; 4] = [
    "limits.server_bytes_per_second",
    "limits.server_messages_per_second",
    "oauth.access_token_ms",
    "oauth.serve",
];

/// Applies the reloadable settings of `new`, and rereads certificates, tokens and the
/// issuer's keys. An error leaves everything as it was.
pub(super) async fn reload_settings(hub: &RunningHub, new: &LoadedConfig) -> Result<ReloadReport> {
    let mut current = hub.current_settings.lock().await;
    let config = &effective_config(hub, &new.config);
    let changes = new.changed_keys(&current);
    // Everything that can fail comes before the first change.
    let acceptor = http::acceptor(&config.tls)?;
    let mut policy = address_policy(config, Some(hub.address.port()));
    policy.added_hosts = hub.core.address_policy.added_hosts.clone();
    let has_changed = |key: &str| changes.iter().any(|it| is_below(it, key));
    let has_new_models = has_changed("models") || has_changed("ollama");
    let models = model_settings(config, &policy);
    if has_new_models {
        models.check()?;
    }
    let new_oauth = if has_changed("oauth") {
        Some(open_oauth(config)?.map(Arc::new))
    } else {
        None
    };
    let toolsets = hub.core.toolsets.prepare(&config.toolsets).await;
    let toolsets = toolsets.context("cannot use the toolsets")?;
    let usage = hub.core.usage.prepare(&config.usage).await;
    let usage = usage.context("cannot use the budgets")?;
    let directory = &config.data_dir;
    load_or_create_admin_token(directory, &hub.core.store)
        .await
        .with_context(|| format!("cannot read the admin token in {}", directory.display()))?;
    let access = &hub.hub.access;
    // Replaces nothing if the store fails, so it is the last that can.
    let gone = access.reload_tokens().await;
    for name in gone.context("cannot read the tokens")? {
        hub.hub.engine.end_sessions_of(&name);
    }
    if has_new_models {
        hub.core.model_manager.configure(models).await?;
    }
    toolsets.apply();
    usage.apply();
    if has_changed("tool_search") {
        let settings = config.tool_search.clone();
        hub.core.catalog.set_search_settings(settings);
    }
    hub.certificates.replace(&config.tls, acceptor);
    let has_new_issuer = new_oauth.is_some();
    let next_oauth = new_oauth.unwrap_or_else(|| access.oauth());
    if let Some(oauth) = &next_oauth {
        oauth.reload().await;
    }
    access.configure(config.requires_token(), next_oauth);
    if has_new_issuer {
        let new_refresh = spawn_key_refresh(access, &hub.core.client_tasks);
        let mut refresh = hub
            .key_refresh
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *refresh, new_refresh).cancel();
    }
    apply_limits(hub, config);
    replace_reloadable(hub, config, new);
    let differing = new.changed_keys(&hub.startup_settings);
    *current = Arc::new(new.clone());
    Ok(ReloadReport {
        applied: changes
            .into_iter()
            .filter(|it| is_reloadable(hub, it, new))
            .collect(),
        needs_restart: differing
            .into_iter()
            .filter(|it| !is_reloadable(hub, it, new))
            .collect(),
    })
}

/// Merges the reloadable settings of `new` with the startup settings.
fn effective_config(hub: &RunningHub, new: &Config) -> Config {
    let old = &hub.startup_settings.config;
    let new = new.clone();
    Config {
        chat: new.chat,
        http: new.http,
        limits: new.limits,
        log: LogSettings {
            level: new.log.level,
            format: old.log.format,
        },
        models: new.models,
        oauth: new.oauth,
        ollama: new.ollama,
        require_token: new.require_token,
        tls: if can_apply_tls(hub, &new.tls) {
            new.tls
        } else {
            old.tls.clone()
        },
        tool_search: new.tool_search,
        toolsets: new.toolsets,
        usage: new.usage,
        ..old.clone()
    }
}

/// Whether the TLS settings can be applied: encryption cannot be turned on or off while
/// connections are open.
fn can_apply_tls(hub: &RunningHub, tls: &crate::config::TlsSettings) -> bool {
    tls.certificate.is_some() == hub.is_encrypted()
}

fn is_reloadable(hub: &RunningHub, key: &str, new: &LoadedConfig) -> bool {
    let is_known =
        RELOADABLE_KEYS.iter().any(|it| is_below(key, it)) && !STARTUP_ONLY_KEYS.contains(&key);
    is_known && (!is_below(key, "tls") || can_apply_tls(hub, &new.config.tls))
}

fn apply_limits(hub: &RunningHub, config: &Config) {
    let limits = config.limits;
    hub.core.engine.set_limits(limits);
    let sizes = ResultLimits::from(config);
    hub.core.catalog.set_limits(limits.tool_timeout(), sizes);
    hub.core
        .quota
        .set_default_per_minute(limits.calls_per_minute.map(i64::from));
    hub.admission.set_max(limits.max_connections);
    hub.hub.max_body_bytes.store(limits.max_body_bytes, Relaxed);
}

fn replace_reloadable(hub: &RunningHub, config: &Config, new: &LoadedConfig) {
    let mut shown = config_rows(new);
    let in_force = config_rows(&hub.startup_settings);
    // Settings that need a restart are displayed with their current value.
    for (row, old) in shown.iter_mut().zip(in_force) {
        if !is_reloadable(hub, &row.key, new) {
            *row = old;
        }
    }
    let reloadable = ReloadableSettings {
        origin_policy: OriginPolicy::new(hub.address, !config.is_loopback_only(), &config.http),
        chat: Arc::new(config.chat.clone()),
        settings: Arc::new(shown),
    };
    let mut lock = hub
        .hub
        .reloadable
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    *lock = reloadable;
}

impl ReloadReport {
    /// Logs what needs a restart.
    pub fn log_restart_keys(&self) {
        if !self.needs_restart.is_empty() {
            let keys = self.needs_restart.join(", ");
            warn!("these settings differ from those in force and need a restart: {keys}");
        }
    }
}

fn is_below(key: &str, section: &str) -> bool {
    key.strip_prefix(section)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
