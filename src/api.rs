//! HTTP: one port, one router, one gate in front of it.

mod audit;
mod body;
mod calls;
mod console;
mod custom;
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

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, header};

use crate::{
    access::{Access, Denied, Principal, Sessions},
    agent::Agent,
    audit::Audit,
    config::{Chat, Row},
    downstream::Engine,
    llm::Gateway,
    store::Store,
    tool::{Quota, builtin::Data, custom::Workshop},
    upstream::Manager,
};

pub use audit::TurnedAway;
pub use console::{Events, pump};

pub use gate::Gate;
pub use listener::{serve, serve_local};
pub use router::Guarded;
pub use routes::{Rule, rules};
pub use tls::acceptor;

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
    pub models: Arc<Gateway>,
    /// Lets models use tools.
    pub agent: Arc<Agent>,
    /// How calls reach clients of the OpenAI door.
    pub chat: Chat,
    /// Knows who is asking.
    pub access: Arc<Access>,
    /// Keeps who did what.
    pub audit: Arc<Audit>,
    /// Counts who was not let in.
    pub turned_away: TurnedAway,
    /// Knows which hosts and origins are ours.
    pub gate: Gate,
    /// Largest request body, in bytes.
    pub max_body_bytes: usize,
    /// Knows which browsers are signed in.
    pub sessions: Sessions,
    /// Tells open pages what happens.
    pub events: Arc<Events>,
    /// Keeps what pages change.
    pub store: Store,
    /// Every setting, its value and who set it.
    pub settings: Vec<Row>,
    /// Where we listen.
    pub port: u16,
    /// Held while tools are switched.
    pub switching: tokio::sync::Mutex<()>,
}

impl Hub {
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
