//! Using changed settings while the hub runs.

use std::{
    mem,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

use anyhow::{Context as _, Result};
use maru_http::ClientTls;
use tracing::warn;

use super::{RunningHub, address_policy, open_oauth, spawn_key_refresh};
use crate::{
    auth::load_or_create_admin_token,
    config::{Config, LoadedConfig, LogSettings, config_rows},
    http::{self, OriginPolicy, ReloadableSettings},
    llm::Gateway,
    tools::ResultLimits,
};

/// What a reload did with the settings that differ.
#[derive(Debug, Default)]
pub struct ReloadReport {
    /// Keys whose new values are in force.
    pub applied: Vec<String>,
    /// Keys whose new values need a restart.
    pub needs_restart: Vec<String>,
}

/// Keys whose values can change while the hub runs: these, and all below them.
const RELOADABLE_KEYS: [&str; 9] = [
    "chat",
    "http",
    "limits",
    "log.level",
    "models",
    "oauth",
    "ollama",
    "require_token",
    "tls",
];

/// Keys below those whose values are read when the hub starts.
const STARTUP_ONLY_KEYS: [&str; 2] = [
    "limits.server_bytes_per_second",
    "limits.server_messages_per_second",
];

impl RunningHub {
    /// Uses what can be used of `new` at once, and reads certificates, tokens and the
    /// issuer's keys again. An error leaves everything as it was.
    pub async fn reload(&self, new: &LoadedConfig) -> Result<ReloadReport> {
        let mut current = self.current_settings.lock().await;
        let config = &self.effective_config(&new.config);
        let changes = new.changed_keys(&current);
        // All that can fail comes before the first change.
        let acceptor = http::acceptor(&config.tls)?;
        let policy = address_policy(config, Some(self.address.port()));
        let has_changed = |key: &str| changes.iter().any(|it| is_below(it, key));
        let models = if has_changed("models") || has_changed("ollama") {
            let tls = ClientTls::default();
            Some(Gateway::open(
                &config.models,
                &config.ollama,
                &policy,
                &tls,
            )?)
        } else {
            None
        };
        let new_oauth = if has_changed("oauth") {
            Some(open_oauth(config)?.map(Arc::new))
        } else {
            None
        };
        let directory = &config.data_dir;
        load_or_create_admin_token(directory, &self.core.store)
            .await
            .with_context(|| format!("cannot read the admin token in {}", directory.display()))?;
        let access = &self.hub.access;
        access
            .reload_tokens()
            .await
            .context("cannot read the tokens")?;
        self.certificates.replace(&config.tls, acceptor);
        if let Some(models) = models {
            let models = models.with_metrics(&self.core.metrics.models);
            self.core.models.replace(models);
        }
        let has_new_issuer = new_oauth.is_some();
        let next_oauth = new_oauth.unwrap_or_else(|| access.oauth());
        if let Some(oauth) = &next_oauth {
            oauth.reload().await;
        }
        access.configure(config.requires_token(), next_oauth);
        if has_new_issuer {
            let fresh = spawn_key_refresh(access, &self.core.client_tasks);
            let mut refresh = self
                .key_refresh
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            mem::replace(&mut *refresh, fresh).cancel();
        }
        self.apply_limits(config);
        self.replace_changeable(config, new);
        let differing = new.changed_keys(&self.startup_settings);
        *current = Arc::new(new.clone());
        Ok(ReloadReport {
            applied: changes
                .into_iter()
                .filter(|it| self.is_reloadable(it, new))
                .collect(),
            needs_restart: differing
                .into_iter()
                .filter(|it| !self.is_reloadable(it, new))
                .collect(),
        })
    }

    /// The new settings as far as they can be used, the old ones else.
    fn effective_config(&self, new: &Config) -> Config {
        let old = &self.startup_settings.config;
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
            tls: if self.can_apply_tls(&new.tls) {
                new.tls
            } else {
                old.tls.clone()
            },
            ..old.clone()
        }
    }

    /// Whether connections are encrypted or not cannot change under open ones.
    fn can_apply_tls(&self, tls: &crate::config::TlsSettings) -> bool {
        tls.certificate.is_some() == self.is_encrypted()
    }

    fn is_reloadable(&self, key: &str, new: &LoadedConfig) -> bool {
        let is_known =
            RELOADABLE_KEYS.iter().any(|it| is_below(key, it)) && !STARTUP_ONLY_KEYS.contains(&key);
        is_known && (!is_below(key, "tls") || self.can_apply_tls(&new.config.tls))
    }

    fn apply_limits(&self, config: &Config) {
        let limits = config.limits;
        self.core.engine.set_limits(limits);
        let sizes = ResultLimits::from(config);
        self.core.catalog.set_limits(limits.tool_timeout(), sizes);
        self.core
            .quota
            .set_default_per_minute(limits.calls_per_minute.map(i64::from));
        self.admission.set_max(limits.max_connections);
        self.hub
            .max_body_bytes
            .store(limits.max_body_bytes, Relaxed);
    }

    fn replace_changeable(&self, config: &Config, new: &LoadedConfig) {
        let mut shown = config_rows(new);
        let in_force = config_rows(&self.startup_settings);
        // What needs a restart is shown as it is in force.
        for (row, old) in shown.iter_mut().zip(in_force) {
            if !self.is_reloadable(&row.key, new) {
                *row = old;
            }
        }
        let changeable = ReloadableSettings {
            origin_policy: OriginPolicy::new(
                self.address,
                !config.is_loopback_only(),
                &config.http,
            ),
            chat: Arc::new(config.chat.clone()),
            settings: Arc::new(shown),
        };
        let mut lock = self
            .hub
            .reloadable
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *lock = changeable;
    }
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
