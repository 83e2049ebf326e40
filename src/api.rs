//! HTTP: one port, one router, one gate in front of it.

mod admission;
mod audit;
mod body;
mod calls;
mod console;
mod custom;
mod framing;
mod gate;
mod generate;
mod health;
mod limits;
mod listener;
mod look;
mod mcp;
mod metadata;
mod metrics;
mod openai;
mod refusal;
mod registry;
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

use crate::{
    access::{Access, Denied, Principal, Sessions},
    agent::Agent,
    audit::Audit,
    config::{Chat, Row},
    downstream::Engine,
    llm::Models,
    store::Store,
    tool::{Quota, builtin::Data, custom::Workshop},
    upstream::Manager,
};

pub use admission::Admission;
pub use audit::TurnedAway;
pub use console::{Events, pump};

pub use gate::Gate;
pub use health::Readiness;
pub use listener::{Serving, serve, serve_local};
pub use router::Guarded;
pub use routes::{Rule, rules};
pub use tls::{Acceptor, Certificates, acceptor};

/// What the routes need.
#[derive(Debug)]
pub struct Hub {
    /// Answers MCP clients.
    pub engine: Arc<Engine>,
    /// Knows the servers behind.
    pub servers: Arc<Manager>,
    /// Knows the databases and documents.
    pub data: Data,
    /// Makes tools.
    pub workshop: Arc<Workshop>,
    /// Knows how often tools may be called.
    pub quota: Arc<Quota>,
    /// Knows the models.
    pub models: Arc<Models>,
    /// Lets models use tools.
    pub agent: Arc<Agent>,
    /// Knows who is asking.
    pub access: Arc<Access>,
    /// Keeps who did what.
    pub audit: Arc<Audit>,
    /// Counts who was not let in.
    pub turned_away: TurnedAway,
    /// What can change while the hub runs.
    pub changeable: RwLock<Changeable>,
    /// Largest request body, in bytes.
    pub max_body_bytes: AtomicUsize,
    /// Whether browsers reach the hub over encrypted connections.
    pub is_encrypted: bool,
    /// Whether browsers are told to use no other (HSTS).
    pub sends_hsts: bool,
    /// Knows which browsers are signed in.
    pub sessions: Sessions,
    /// Tells open pages what happens.
    pub events: Arc<Events>,
    /// Keeps what pages change.
    pub store: Store,
    /// Where we listen.
    pub port: u16,
    /// Tells probes whether the hub takes requests.
    pub readiness: Arc<Readiness>,
    /// Held while tools are switched.
    pub switching: tokio::sync::Mutex<()>,
}

/// What of the settings the routes need and a reload replaces.
#[derive(Debug)]
pub struct Changeable {
    /// Knows which hosts and origins are ours.
    pub gate: Gate,
    /// How calls reach clients of `/v1/chat/completions`.
    pub chat: Arc<Chat>,
    /// Every setting, its value and who set it.
    pub settings: Arc<Vec<Row>>,
}

impl Hub {
    fn chat(&self) -> Arc<Chat> {
        Arc::clone(&self.changeable().chat)
    }

    fn changeable(&self) -> RwLockReadGuard<'_, Changeable> {
        let lock = self.changeable.read();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    fn max_body_bytes(&self) -> usize {
        self.max_body_bytes.load(Relaxed)
    }

    /// Who sent a request: by its token, or by the cookie of a signed-in browser.
    fn identify(&self, headers: &HeaderMap) -> Result<Principal, Denied> {
        let token = headers.get(header::AUTHORIZATION);
        let signed_in = match token {
            None => console::cookie(self, headers)
                .and_then(|cookie| self.sessions.token(&cookie))
                .and_then(|hash| self.access.of_hash(&hash)),
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
            Some(token) => Access::hash_in(token.as_bytes()),
            None => self.sessions.token(&console::cookie(self, headers)?),
        }
    }
}
