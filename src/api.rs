//! HTTP: one port, one router, one gate in front of it.

mod audit;
mod body;
mod custom;
mod gate;
mod generate;
mod health;
mod limits;
mod listener;
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

use std::sync::Arc;

use crate::{
    access::Access,
    agent::Agent,
    audit::Audit,
    config::Chat,
    downstream::Engine,
    llm::Gateway,
    tool::{Quota, builtin::Data, custom::Workshop},
    upstream::Manager,
};

pub use audit::TurnedAway;
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
}
