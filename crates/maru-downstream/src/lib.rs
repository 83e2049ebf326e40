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
mod owned_request;
mod session;
mod session_registry;
mod session_token;
mod shared_sessions;
pub mod sse;
pub mod stdio;
mod streams;
mod subscriptions;

use std::sync::{Arc, PoisonError, RwLock};

use maru_peers::PeerHubs;
use maru_runtime::tasks::Tasks;

use maru_config::LimitSettings;
use maru_tools::{Caller, Catalog, request_state::RequestStateSealer};
use session::McpSession;
use session_registry::{SessionRegistry, TooManySessions, detached_session};
use session_token::TokenClient;
use shared_sessions::SharedSessions;

/// Handles the requests of all transports.
#[derive(Debug)]
pub struct McpEngine {
    catalog: Arc<Catalog>,
    sessions: SessionRegistry,
    tasks: Tasks,
    limits: RwLock<LimitSettings>,
    state_sealer: RequestStateSealer,
    /// Present if other hubs share the store.
    shared: Option<SharedSessions>,
}

impl McpEngine {
    /// An engine over `catalog`; idle sessions end while `tasks` runs. Its sessions go on
    /// at `peers`, if there are any.
    pub fn start(
        catalog: Arc<Catalog>,
        limits: LimitSettings,
        tasks: &Tasks,
        peers: Option<Arc<PeerHubs>>,
    ) -> Arc<Self> {
        let state_sealer = match &peers {
            Some(peers) => {
                let hub = Some(Arc::clone(peers.id()));
                RequestStateSealer::with_key(peers.key().derive("request state"), hub)
            }
            None => RequestStateSealer::new(),
        };
        let engine = Arc::new(Self {
            catalog,
            sessions: SessionRegistry::default(),
            tasks: tasks.clone(),
            limits: RwLock::new(limits),
            state_sealer,
            shared: peers.map(SharedSessions::new),
        });
        if let Some(shared) = &engine.shared {
            shared.serve(&engine);
        }
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

    /// Opens a session; `client` is absent for HTTP+SSE.
    fn open_session(
        &self,
        caller: Caller,
        client: Option<TokenClient>,
    ) -> Result<Arc<McpSession>, TooManySessions> {
        let id = self.shared.as_ref().map(|it| it.new_id(&caller, client));
        let mut session = self.new_session(caller);
        if let (Some(shared), Some(id)) = (&self.shared, id) {
            session.set_id(id, Arc::clone(shared.peers.id()));
        }
        self.sessions.register(session, &self.limits())
    }

    fn new_session(&self, caller: Caller) -> McpSession {
        detached_session(caller, &self.limits(), &self.catalog)
    }

    /// The session with this id, if it belongs to this caller.
    async fn find_session(&self, id: &str, caller: &Caller) -> Option<Arc<McpSession>> {
        if let Some(session) = self.sessions.find(id, &caller.principal) {
            return Some(session);
        }
        let shared = self.shared.as_ref()?;
        // Boxed, because it is rare and would make the future of every request larger.
        Box::pin(self.adopt_session(shared, id, caller)).await
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
