//! maru as a server: sessions and dispatch, and the endpoints that lead there.
//!
//! The engine answers; a endpoint only carries. An answer does not wait for a
//! reader longer than its bounded queue allows, and a session that nobody
//! uses ends.

mod catalog_changes;
mod describe;
mod dispatch;
mod feed;
pub mod http;
mod input_rounds;
mod modern_client;
mod request_state;
mod session;
mod session_registry;
pub mod sse;
pub mod stdio;
mod streams;
mod subscriptions;

use std::sync::{Arc, PoisonError, RwLock};

use maru_runtime::tasks::Tasks;

use crate::{
    config::LimitSettings,
    tools::{Caller, Catalog},
};
use request_state::RequestStateSealer;
use session::McpSession;
use session_registry::{SessionRegistry, TooManySessions};

/// Answers what comes through any endpoint.
#[derive(Debug)]
pub struct McpEngine {
    catalog: Arc<Catalog>,
    sessions: SessionRegistry,
    tasks: Tasks,
    limits: RwLock<LimitSettings>,
    state_sealer: RequestStateSealer,
}

impl McpEngine {
    /// An engine over `catalog`; idle sessions end while `tasks` runs.
    pub fn start(catalog: Arc<Catalog>, limits: LimitSettings, tasks: &Tasks) -> Arc<Self> {
        let engine = Arc::new(Self {
            catalog,
            sessions: SessionRegistry::default(),
            tasks: tasks.clone(),
            limits: RwLock::new(limits),
            state_sealer: RequestStateSealer::new(),
        });
        let reaped = Arc::clone(&engine);
        let stop = tasks.stop_token();
        tasks.spawn(async move {
            loop {
                let idle = reaped.limits().session_idle_timeout();
                let stopped = tokio::time::timeout(idle / 10, stop.cancelled()).await;
                if stopped.is_ok() {
                    break;
                }
                reaped.sessions.end_idle(idle);
            }
            reaped.sessions.drain_all().await;
        });
        engine
    }

    fn open_session(&self, caller: Caller) -> Result<Arc<McpSession>, TooManySessions> {
        self.sessions.open(caller, &self.limits(), &self.catalog)
    }

    /// What bounds requests, sessions and calls now.
    pub fn limits(&self) -> LimitSettings {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bounds what comes from now on by `limits`.
    pub fn set_limits(&self, limits: LimitSettings) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Ends the sessions of someone whose token was taken back.
    pub fn end_sessions_of(&self, principal: &str) {
        self.sessions.end_by_principal(principal);
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// What is available.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}
