//! The agent loop: a model uses tools until it can answer.
//!
//! `machine` decides without I/O; `driver` asks the model and calls the tools. A run is
//! driven by its reader: when the reader is dropped, the model's stream and the
//! calls in progress end with it.

#![forbid(unsafe_code)]

mod active_run;
mod agent_tool;
mod approvals;
mod driver;
mod machine;
mod named_servers;
mod record;
mod runs;
mod toolbox;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_runtime::tasks::Tasks;
use maru_store::Store;
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::{sync::Semaphore, time};

use maru_auth::Principal;
use maru_config as config;
use maru_llm::{self as llm, ChatMessage, ChatRole, ReloadableGateway};
use maru_tools::{Catalog, CatalogSnapshot, ToolSearch};
use maru_upstream::ServerManager;
use toolbox::Toolbox;

pub use active_run::ActiveRun;
pub use agent_tool::{AgentSlot, ask_agent};
pub use machine::{CutReason, FinalAnswer};
pub use named_servers::UnavailableServer;
pub use record::{RunCall, RunCallOutcome, RunEvent, RunOutcome};
pub use runs::{CallDecision, RunRegistry};

/// Runs the loop. One for the whole hub.
#[derive(Debug)]
pub struct Agent {
    models: Arc<ReloadableGateway>,
    catalog: Arc<Catalog>,
    servers: Arc<ServerManager>,
    search: Arc<ToolSearch>,
    settings: config::AgentSettings,
    runs: RunRegistry,
    /// The tools of the last snapshot, read once.
    toolbox: Mutex<Option<(Arc<CatalogSnapshot>, Arc<Toolbox>)>>,
    run_permits: Arc<Semaphore>,
    tasks: Tasks,
    drain_timeout: Duration,
}

/// What the agent works with.
#[derive(Debug)]
pub struct AgentDependencies {
    /// Asks models.
    pub models: Arc<ReloadableGateway>,
    /// Calls tools.
    pub catalog: Arc<Catalog>,
    /// Knows the servers behind the tools.
    pub servers: Arc<ServerManager>,
    /// Finds tools.
    pub search: Arc<ToolSearch>,
    /// Keeps what happened.
    pub store: Store,
    /// Other hubs of the store, with runs of their own.
    pub peers: Option<Arc<maru_peers::PeerHubs>>,
    /// How far runs may go.
    pub settings: config::AgentSettings,
    /// Ends what is left of a run.
    pub tasks: Tasks,
    /// How long requests in progress have to finish at shutdown.
    pub drain_timeout: Duration,
}

/// A task for the agent.
#[derive(Clone, Debug)]
pub struct AgentRequest {
    /// The caller.
    pub principal: Principal,
    /// The model; the one of the settings, or the first, if none is named.
    pub model: Option<String>,
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// Members of the request that the backend understands.
    pub backend_options: Map<String, Value>,
    /// The servers whose tools may be used; all if none are named.
    pub servers: Option<Vec<String>>,
    /// The toolset that the run is limited to; that of the settings if none is named.
    pub toolset: Option<String>,
    /// Whether maru's own tools and the custom tools take part if no servers are named;
    /// the settings decide if it is not said.
    pub own_tools: Option<bool>,
    /// How often the model may be asked.
    pub max_rounds: Option<u32>,
    /// How long a call may take.
    pub tool_timeout: Option<Duration>,
    /// Which calls a person approves.
    pub approval: ApprovalPolicy,
}

/// Which calls wait until a person approves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalPolicy {
    /// Nobody is there to approve; destructive calls are refused.
    #[default]
    Nobody,
    /// Destructive calls wait.
    DestructiveCalls,
    /// Every call waits.
    EveryCall,
}

impl AgentRequest {
    /// The last message of the user.
    fn question(&self) -> String {
        let mut messages = self.messages.iter().rev();
        let question = messages.find(|it| it.role == ChatRole::User);
        question.map(ChatMessage::text_content).unwrap_or_default()
    }

    /// The error of a model that did not answer: the fault of a request that names a model
    /// which is not there.
    fn model_error(&self, error: llm::Error) -> Error {
        let is_unknown = matches!(
            error,
            llm::Error::UnknownModel(_) | llm::Error::Status { status: 404, .. }
        );
        if is_unknown && self.model.is_some() {
            Error::UnknownModel(error)
        } else {
            Error::Model(error)
        }
    }
}

/// Why a run could not start, or failed.
#[derive(Debug, Error)]
pub enum Error {
    /// A server is not known.
    #[error("there is no server named {name:?}; known are {}", known.join(", "))]
    UnknownServer {
        /// As asked.
        name: String,
        /// Those that are.
        known: Vec<String>,
    },
    /// A toolset is not known.
    #[error("there is no toolset named {0:?}; see maru toolsets")]
    UnknownToolset(String),
    /// The toolset of the settings is not known.
    #[error("the toolset that agent.toolset names does not exist")]
    NoAgentToolset,
    /// Servers are named, and none of them is connected.
    #[error("none of the named servers is available: {}", named_servers::format_servers(.0))]
    ServersUnavailable(Vec<UnavailableServer>),
    /// No model is named, and none is there.
    #[error(
        "there is no model to ask: start an Ollama on this machine, or add `models` to maru.yaml (docs/models.md shows how)"
    )]
    NoModel,
    /// The hub stops.
    #[error("the hub is stopping")]
    Stopping,
    /// Too many run already.
    #[error("{0} runs are in progress already, as many as may be; try again later")]
    Busy(usize),
    /// The run timed out before the model produced anything.
    #[error("the model \"{model}\" did not answer within {limit:?}; see agent.timeout_ms")]
    Timeout {
        /// The model.
        model: String,
        /// How long a run may take.
        limit: Duration,
    },
    /// The request names a model that is not there.
    #[error(transparent)]
    UnknownModel(llm::Error),
    /// The model did not answer.
    #[error(transparent)]
    Model(llm::Error),
}

impl Error {
    /// What failed, as a short code for traces.
    fn kind(&self) -> &'static str {
        match self {
            Self::UnknownServer { .. } => "unknown_server",
            Self::UnknownToolset(_) | Self::NoAgentToolset => "unknown_toolset",
            Self::ServersUnavailable(_) => "servers_unavailable",
            Self::NoModel => "no_model",
            Self::Stopping => "stopping",
            Self::Busy(_) => "busy",
            Self::Timeout { .. } => "timeout",
            Self::UnknownModel(_) => "unknown_model",
            Self::Model(_) => "model_failed",
        }
    }
}

impl Agent {
    /// The agent; nothing runs yet.
    pub fn new(parts: AgentDependencies) -> Arc<Self> {
        let max_runs = parts.settings.max_runs;
        Arc::new(Self {
            models: parts.models,
            catalog: parts.catalog,
            servers: parts.servers,
            search: parts.search,
            runs: RunRegistry::new(
                parts.store,
                parts.tasks.clone(),
                parts.settings.keep_days,
                parts.peers,
            ),
            settings: parts.settings,
            toolbox: Mutex::default(),
            run_permits: Arc::new(Semaphore::new(max_runs)),
            tasks: parts.tasks,
            drain_timeout: parts.drain_timeout,
        })
    }

    /// The runs, now and before.
    pub fn runs(&self) -> &RunRegistry {
        &self.runs
    }

    /// How far runs may go.
    pub fn settings(&self) -> &config::AgentSettings {
        &self.settings
    }

    /// Completes when the hub stops and models have to end: halfway through the time that
    /// requests in progress have, so that clients still get an error.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let (stop, grace) = (self.tasks.stop_token(), self.drain_timeout / 2);
        async move {
            stop.cancelled().await;
            time::sleep(grace).await;
        }
    }

    /// Begins a run, which goes on while it is read.
    pub fn start(self: &Arc<Self>, request: AgentRequest) -> Result<ActiveRun, Error> {
        let permit = Arc::clone(&self.run_permits).try_acquire_owned();
        let permit = permit.map_err(|_| Error::Busy(self.settings.max_runs))?;
        self.check_servers(&request)?;
        self.check_toolset(&request)?;
        Ok(ActiveRun::new(Arc::clone(self), request, permit))
    }

    /// Refuses a toolset that does not exist. A caller that is limited to a toolset learns of
    /// no other; where the settings name another one, its run gets what both contain.
    fn check_toolset(&self, request: &AgentRequest) -> Result<(), Error> {
        let snapshot = self.catalog.snapshot();
        let exists = |name: &str| snapshot.toolsets().contains_key(name);
        if let Some(name) = request.toolset.as_deref() {
            let may_use = request.principal.toolset().is_none_or(|it| **it == *name);
            if !may_use || !exists(name) {
                return Err(Error::UnknownToolset(name.chars().take(100).collect()));
            }
        } else if !self.settings.toolset.as_deref().is_none_or(exists) {
            return Err(Error::NoAgentToolset);
        }
        Ok(())
    }

    fn toolset_of<'a>(&'a self, request: &'a AgentRequest) -> Option<&'a str> {
        let own = request.toolset.as_deref();
        own.or(self.settings.toolset.as_deref())
    }

    fn check_servers(&self, request: &AgentRequest) -> Result<(), Error> {
        let snapshot = self.catalog.snapshot();
        let mut known = self.servers.list();
        // A restricted caller does not learn of servers beyond its reach.
        let may_reach = |name: &str| request.principal.may_reach(name);
        known.retain(|it| may_reach(it.server.name.as_str()));
        let is_known = |name: &str| {
            let is_connected = snapshot.has_server(name) && may_reach(name);
            is_connected || known.iter().any(|it| it.server.name.as_str() == name)
        };
        let mut named = request.servers.iter().flatten();
        match named.find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                let mut known: Vec<String> = known
                    .iter()
                    .map(|it| it.server.name.as_str().to_owned())
                    .collect();
                known.insert(0, maru_tools::OWN_SERVER_NAME.to_owned());
                let name = name.chars().take(100).collect();
                Err(Error::UnknownServer { name, known })
            }
        }
    }

    /// The tools that are available now.
    fn toolbox(&self) -> Arc<Toolbox> {
        let snapshot = self.catalog.snapshot();
        let mut cached = self.toolbox.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((known, toolbox)) if Arc::ptr_eq(known, &snapshot) => Arc::clone(toolbox),
            _ => {
                let toolbox = Arc::new(Toolbox::from_snapshot(
                    &snapshot,
                    &self.settings.destructive_tools,
                ));
                *cached = Some((snapshot, Arc::clone(&toolbox)));
                toolbox
            }
        }
    }
}
