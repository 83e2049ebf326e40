//! Using changed settings while the hub runs.

use std::{
    mem,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

use anyhow::{Context as _, Result};
use tracing::warn;

use super::{Running, keep_keys_fresh, oauth, policy};
use crate::{
    access::admin_token,
    api::{self, Changeable, Gate},
    config::{Config, Loaded, Log, rows},
    llm::Gateway,
    outbound::Tls,
    tool::ResultSizes,
};

/// What a reload did with the settings that differ.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// Keys whose new values are in force.
    pub applied: Vec<String>,
    /// Keys whose new values need a restart.
    pub needs_restart: Vec<String>,
}

/// Keys whose values can change while the hub runs: these, and all below them.
const APPLICABLE: [&str; 9] = [
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
const READ_AT_START: [&str; 2] = [
    "limits.server_bytes_per_second",
    "limits.server_messages_per_second",
];

impl Running {
    /// Uses what can be used of `new` at once, and reads certificates, tokens and the
    /// issuer's keys again. An error leaves everything as it was.
    pub async fn reload(&self, new: &Loaded) -> Result<Reloaded> {
        let mut current = self.current.lock().await;
        let config = &self.effective(&new.config);
        let changes = new.changes(&current);
        // All that can fail comes before the first change.
        let acceptor = api::acceptor(&config.tls)?;
        let policy = policy(config, Some(self.address.port()));
        let has_changed = |key: &str| changes.iter().any(|it| is_below(it, key));
        let models = if has_changed("models") || has_changed("ollama") {
            let tls = Tls::default();
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
            Some(oauth(config)?.map(Arc::new))
        } else {
            None
        };
        let directory = &config.data_dir;
        admin_token(directory, &self.core.store)
            .await
            .with_context(|| format!("cannot read the admin token in {}", directory.display()))?;
        let access = &self.hub.access;
        access.reload().await.context("cannot read the tokens")?;
        self.certificates.replace(&config.tls, acceptor);
        if let Some(models) = models {
            self.core.models.replace(models);
        }
        let has_new_issuer = new_oauth.is_some();
        let next_oauth = new_oauth.unwrap_or_else(|| access.oauth());
        if let Some(oauth) = &next_oauth {
            oauth.reload().await;
        }
        access.configure(config.needs_token(), next_oauth);
        if has_new_issuer {
            let fresh = keep_keys_fresh(access, &self.core.tasks);
            let mut refresh = self
                .key_refresh
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            mem::replace(&mut *refresh, fresh).cancel();
        }
        self.use_limits(config);
        self.replace_changeable(config, new);
        let differing = new.changes(&self.started);
        *current = Arc::new(new.clone());
        Ok(Reloaded {
            applied: changes
                .into_iter()
                .filter(|it| self.applies(it, new))
                .collect(),
            needs_restart: differing
                .into_iter()
                .filter(|it| !self.applies(it, new))
                .collect(),
        })
    }

    /// The new settings as far as they can be used, the old ones else.
    fn effective(&self, new: &Config) -> Config {
        let old = &self.started.config;
        let new = new.clone();
        Config {
            chat: new.chat,
            http: new.http,
            limits: new.limits,
            log: Log {
                level: new.log.level,
                format: old.log.format,
            },
            models: new.models,
            oauth: new.oauth,
            ollama: new.ollama,
            require_token: new.require_token,
            tls: if self.can_use(&new.tls) {
                new.tls
            } else {
                old.tls.clone()
            },
            ..old.clone()
        }
    }

    /// Whether connections are encrypted or not cannot change under open ones.
    fn can_use(&self, tls: &crate::config::Tls) -> bool {
        tls.certificate.is_some() == self.is_secure()
    }

    fn applies(&self, key: &str, new: &Loaded) -> bool {
        let is_known =
            APPLICABLE.iter().any(|it| is_below(key, it)) && !READ_AT_START.contains(&key);
        is_known && (!is_below(key, "tls") || self.can_use(&new.config.tls))
    }

    fn use_limits(&self, config: &Config) {
        let limits = config.limits;
        self.core.engine.set_limits(limits);
        let sizes = ResultSizes::from(config);
        self.core.catalog.set_limits(limits.tool_timeout(), sizes);
        self.core
            .quota
            .set_usual(limits.calls_per_minute.map(i64::from));
        self.admission.set_max(limits.max_connections);
        self.hub
            .max_body_bytes
            .store(limits.max_body_bytes, Relaxed);
    }

    fn replace_changeable(&self, config: &Config, new: &Loaded) {
        let mut shown = rows(new);
        let in_force = rows(&self.started);
        // What needs a restart is shown as it is in force.
        for (row, old) in shown.iter_mut().zip(in_force) {
            if !self.applies(&row.key, new) {
                *row = old;
            }
        }
        let changeable = Changeable {
            gate: Gate::new(self.address, !config.is_local(), &config.http),
            chat: Arc::new(config.chat.clone()),
            settings: Arc::new(shown),
        };
        let mut lock = self
            .hub
            .changeable
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *lock = changeable;
    }
}

impl Reloaded {
    /// Logs what needs a restart.
    pub fn warn(&self) {
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
