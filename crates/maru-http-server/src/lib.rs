//! The HTTP server: listener, access control, route table and handlers.

#![forbid(unsafe_code)]

mod accounts;
mod admission;
mod allowed_hosts;
mod anthropic;
mod audit;
mod authorization;
mod body;
mod call_usage;
mod caller_reads;
mod calls;
mod connect;
mod console;
mod cors;
mod custom_tools;
mod diagnostics;
mod discovery;
mod docs;
mod framing;
mod generate;
mod health;
mod limits;
mod listener;
mod local_program;
mod mcp;
mod mcp_registry;
mod metrics;
mod model_api;
mod models;
mod ollama;
mod openai;
mod origin_policy;
mod pages;
mod peer_requests;
mod prompts_and_resources;
mod registry;
mod rejection;
mod request_observer;
mod resource_metadata;
mod responses;
mod route_entry;
mod router;
mod routes;
mod runs;
mod servers;
mod sign_in;
mod sources;
mod tls;
mod tokens;
mod tool_overrides;
mod tool_stream;
mod tools;
mod toolsets;
mod transfer;
mod usage;

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use axum::http::{HeaderMap, HeaderValue, header};
use maru_http::AddressPolicy;
use maru_store::Store;

use maru_agent::Agent;
use maru_auth::{
    AccessControl, Accounts, BearerToken, ConsoleSessions, Error, OidcSignIn, Principal,
};
use maru_config::{ChatSettings, ConfigRow};
use maru_downstream::McpEngine;
use maru_llm::{ModelManager, ReloadableGateway, UsageLedger};
use maru_observability::{audit::AuditLog, metrics::HubMetrics};
use maru_peers::PeerHubs;
use maru_tools::{
    CallQuota, OverrideManager, SourceManager, ToolsetManager, builtin::DataContext,
    custom::CustomTools,
};
use maru_upstream::{McpRegistry, ServerManager};

pub use admission::ConnectionAdmission;
pub use allowed_hosts::load_added_hosts;
pub use audit::RejectedRequests;
pub use caller_reads::CallerReads;
pub use console::{ConsoleEvents, cookie_suffix, publish_changes};
pub use peer_requests::answer_peers;
pub use tool_stream::PendingToolInputs;

pub use health::Readiness;
#[cfg(unix)]
pub use listener::serve_local;
pub use listener::{ServeContext, serve};
pub use origin_policy::OriginPolicy;
pub use router::GuardedRouter;
pub use routes::{RouteRule, route_rules};
pub use tls::{PreparedAcceptor, TlsCertificates, acceptor};

/// The shared state of all route handlers.
#[derive(Debug)]
pub struct HubState {
    /// Serves MCP clients.
    pub engine: Arc<McpEngine>,
    /// Manages the upstream servers.
    pub servers: Arc<ServerManager>,
    /// Where new servers are found, if that is set.
    pub mcp_registry: Option<McpRegistry>,
    /// Embedder and index of the data tools.
    pub data: DataContext,
    /// Manages the databases that tools read.
    pub sources: Arc<SourceManager>,
    /// Creates and runs custom tools.
    pub custom_tools: Arc<CustomTools>,
    /// Saves toolsets.
    pub toolsets: Arc<ToolsetManager>,
    /// Saves how tools are described to clients.
    pub tool_overrides: Arc<OverrideManager>,
    /// Enforces call limits per day and minute.
    pub quota: Arc<CallQuota>,
    /// The model gateway.
    pub models: Arc<ReloadableGateway>,
    /// Manages the models that are added while the hub runs.
    pub model_manager: Arc<ModelManager>,
    /// What requests to models use, and their budgets.
    pub usage: Arc<UsageLedger>,
    /// The agent loop.
    pub agent: Arc<Agent>,
    /// Authenticates callers.
    pub access: Arc<AccessControl>,
    /// The accounts of people.
    pub accounts: Accounts,
    /// The company's issuer, where one is set.
    pub oidc: Option<OidcSignIn>,
    /// Records calls and changes.
    pub audit: Arc<AuditLog>,
    /// The metrics of `/metrics`.
    pub metrics: Arc<HubMetrics>,
    /// Counts unauthorized and forbidden requests.
    pub rejected_requests: RejectedRequests,
    /// Settings that a reload replaces.
    pub reloadable: RwLock<ReloadableSettings>,
    /// Maximum size of a request body in bytes.
    pub max_body_bytes: AtomicUsize,
    /// Whether browsers reach the hub over TLS.
    pub is_encrypted: bool,
    /// Whether clients reach the hub through a proxy, whose address all have then.
    pub is_behind_proxy: bool,
    /// Whether responses carry HSTS.
    pub sends_hsts: bool,
    /// Questions of tools to people who called them in the console.
    pub tool_inputs: PendingToolInputs,
    /// The signed-in browsers.
    pub sessions: ConsoleSessions,
    /// Reads callers that are unknown from the store.
    pub caller_reads: CallerReads,
    /// Events for open console pages.
    pub events: Arc<ConsoleEvents>,
    /// The store, for changes made in the console.
    pub store: Store,
    /// Which addresses may be reached.
    pub address_policy: AddressPolicy,
    /// The port that the hub listens on.
    pub port: u16,
    /// What ends the names of its cookies.
    pub cookie_suffix: String,
    /// The hubs that share the store, where others can.
    pub peers: Option<Arc<PeerHubs>>,
    /// The command line of maru for this hub, up to its subcommand.
    pub command_words: Vec<String>,
    /// Whether every request needs a token.
    pub requires_token: bool,
    /// Answers readiness probes.
    pub readiness: Arc<Readiness>,
}

/// Settings of the route handlers that a reload replaces.
#[derive(Debug)]
pub struct ReloadableSettings {
    /// The accepted hosts and origins.
    pub origin_policy: OriginPolicy,
    /// How clients of `/v1/chat/completions` get tool calls.
    pub chat: Arc<ChatSettings>,
    /// Every setting with its value and origin.
    pub settings: Arc<Vec<ConfigRow>>,
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

    /// Returns the principal of a request by its token, or by the cookie of a signed-in
    /// browser.
    fn identify(&self, headers: &HeaderMap) -> Result<Principal, Error> {
        let token = headers.get(header::AUTHORIZATION);
        let signed_in = match token {
            None => console::session_cookie(self, headers).and_then(|it| self.person_of(&it)),
            Some(_) => None,
        };
        match signed_in {
            Some(principal) => Ok(principal),
            None => self.access.identify(token.map(HeaderValue::as_bytes)),
        }
    }

    /// The name of this hub, if others can share its store.
    fn own_name(&self) -> Option<&str> {
        self.peers.as_ref().map(|it| &**it.name())
    }

    /// Returns the principal of a signed-in browser's cookie.
    fn person_of(&self, cookie: &BearerToken) -> Option<Principal> {
        let token_hash = self.sessions.token_hash_of(cookie)?;
        self.access.principal_of_hash(&token_hash)
    }

    /// Returns the hash of the token of a request, or of the token that the browser signed
    /// in with.
    fn token_hash(&self, headers: &HeaderMap) -> Option<[u8; 32]> {
        match headers.get(header::AUTHORIZATION) {
            Some(token) => BearerToken::from_authorization(token.as_bytes()).map(|it| it.hash()),
            None => self
                .sessions
                .token_hash_of(&console::session_cookie(self, headers)?),
        }
    }
}
