//! HTTP: one port, one router, one gate in front of it.

mod admission;
mod audit;
mod body;
mod calls;
mod console;
mod custom_tools;
mod diagnostics;
mod framing;
mod generate;
mod health;
mod limits;
mod listener;
mod mcp;
mod metrics;
mod openai;
mod origin_policy;
mod registry;
mod rejection;
mod request_observer;
mod resource_metadata;
mod router;
mod routes;
mod runs;
mod servers;
mod sources;
mod tls;
mod tokens;
mod tools;

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::http::{HeaderMap, HeaderValue, header};
use maru_store::Store;

use crate::{
    agent::Agent,
    auth::{AccessControl, BearerToken, ConsoleSessions, Error, Principal},
    config::{ChatSettings, Config, ConfigRow},
    downstream::McpEngine,
    llm::ReloadableGateway,
    observability::{audit::AuditLog, metrics::HubMetrics},
    tools::{CallQuota, builtin::DataContext, custom::CustomTools},
    upstream::ServerManager,
};

pub use admission::ConnectionAdmission;
pub use audit::RejectedRequests;
pub use console::{ConsoleEvents, publish_changes};

pub use health::Readiness;
pub use listener::{ServeContext, serve, serve_local};
pub use origin_policy::OriginPolicy;
pub use router::GuardedRouter;
pub use routes::{RouteRule, route_rules};
pub use tls::{PreparedAcceptor, TlsCertificates, acceptor};

/// What the routes need.
#[derive(Debug)]
pub struct HubState {
    /// Answers MCP clients.
    pub engine: Arc<McpEngine>,
    /// Knows the servers behind.
    pub servers: Arc<ServerManager>,
    /// Knows the databases and documents.
    pub data: DataContext,
    /// Makes tools.
    pub custom_tools: Arc<CustomTools>,
    /// Knows how often tools may be called.
    pub quota: Arc<CallQuota>,
    /// Knows the models.
    pub models: Arc<ReloadableGateway>,
    /// Lets models use tools.
    pub agent: Arc<Agent>,
    /// Knows who is asking.
    pub access: Arc<AccessControl>,
    /// Keeps who did what.
    pub audit: Arc<AuditLog>,
    /// Counts what is shown at `/metrics`.
    pub metrics: Arc<HubMetrics>,
    /// Counts who was not let in.
    pub rejected_requests: RejectedRequests,
    /// What can change while the hub runs.
    pub reloadable: RwLock<ReloadableSettings>,
    /// Largest request body, in bytes.
    pub max_body_bytes: AtomicUsize,
    /// Whether browsers reach the hub over encrypted connections.
    pub is_encrypted: bool,
    /// Whether browsers are told to use no other (HSTS).
    pub sends_hsts: bool,
    /// Knows which browsers are signed in.
    pub sessions: ConsoleSessions,
    /// Tells open pages what happens.
    pub events: Arc<ConsoleEvents>,
    /// Keeps what pages change.
    pub store: Store,
    /// Where we listen.
    pub port: u16,
    /// The command line that calls tools of this hub, up to its subcommand.
    pub cli_command: Arc<str>,
    /// Tells probes whether the hub takes requests.
    pub readiness: Arc<Readiness>,
    /// Held while tools are switched.
    pub tool_switch_lock: tokio::sync::Mutex<()>,
}

/// What of the settings the routes need and a reload replaces.
#[derive(Debug)]
pub struct ReloadableSettings {
    /// Knows which hosts and origins are ours.
    pub origin_policy: OriginPolicy,
    /// How calls reach clients of `/v1/chat/completions`.
    pub chat: Arc<ChatSettings>,
    /// Every setting, its value and who set it.
    pub settings: Arc<Vec<ConfigRow>>,
}

/// The command line that calls tools of the hub with this `config`.
pub fn cli_command(config: &Config) -> Arc<str> {
    openai::maru_command(config).into()
}

impl HubState {
    fn chat(&self) -> Arc<ChatSettings> {
        Arc::clone(&self.reloadable().chat)
    }

    fn reloadable(&self) -> RwLockReadGuard<'_, ReloadableSettings> {
        let lock = self.reloadable.read();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn max_body_bytes(&self) -> usize {
        self.max_body_bytes.load(Relaxed)
    }

    /// Who sent a request: by its token, or by the cookie of a signed-in browser.
    fn identify(&self, headers: &HeaderMap) -> Result<Principal, Error> {
        let token = headers.get(header::AUTHORIZATION);
        let signed_in = match token {
            None => console::session_cookie(self, headers)
                .and_then(|cookie| self.sessions.token_hash_of(&cookie))
                .and_then(|hash| self.access.principal_of_hash(&hash)),
            Some(_) => None,
        };
        match signed_in {
            Some(principal) => Ok(principal),
            None => self.access.identify(token.map(HeaderValue::as_bytes)),
        }
    }

    /// The hash of the token that a request was sent with, or is signed in for.
    fn token_hash(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        match headers.get(header::AUTHORIZATION) {
            Some(token) => BearerToken::from_authorization(token.as_bytes()).map(|it| it.hash()),
            None => self
                .sessions
                .token_hash_of(&console::session_cookie(self, headers)?),
        }
    }
}
