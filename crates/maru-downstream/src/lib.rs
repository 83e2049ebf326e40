//! maru as an MCP server: sessions, dispatch and the transports.
//!
//! [`McpEngine`] handles requests; a transport only carries messages. Responses go through
//! bounded queues, so a client that does not read cannot block the hub. Idle sessions end.

#![forbid(unsafe_code)]

mod catalog_changes;
mod describe;
mod dispatch;
mod feed;
pub mod http;
mod input_rounds;
mod modern_client;
mod session;
mod session_registry;
pub mod sse;
pub mod stdio;
mod streams;
mod subscriptions;

use std::sync::{Arc, PoisonError, RwLock};

use maru_runtime::tasks::Tasks;

use maru_config::LimitSettings;
use maru_tools::{Caller, Catalog, request_state::RequestStateSealer};
use session::McpSession;
use session_registry::{SessionRegistry, TooManySessions};

/// Handles the requests of all transports.
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
        let cleanup = Arc::clone(&engine);
        let stop = tasks.stop_token();
        tasks.spawn(async move {
            loop {
                let idle = cleanup.limits().session_idle_timeout();
                let stopped = tokio::time::timeout(idle / 10, stop.cancelled()).await;
                if stopped.is_ok() {
                    break;
                }
                cleanup.sessions.end_idle(idle);
            }
            cleanup.sessions.drain_all().await;
        });
        engine
    }

    fn open_session(&self, caller: Caller) -> Result<Arc<McpSession>, TooManySessions> {
        self.sessions.open(caller, &self.limits(), &self.catalog)
    }

    /// The limits of requests, sessions and calls.
    pub fn limits(&self) -> LimitSettings {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the limits of requests that arrive from now on.
    pub fn set_limits(&self, limits: LimitSettings) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Ends all sessions of a principal whose token was revoked.
    pub fn end_sessions_of(&self, principal: &str) {
        self.sessions.end_by_principal(principal);
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// The catalog that requests use.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}
