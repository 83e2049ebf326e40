//! The loop that lets a model use tools until it can answer.
//!
//! [`machine`] decides and does nothing; [`driver`] asks the model and calls the
//! tools. A run is moved by whoever reads it: when they leave, the model's stream
//! and the calls in progress end with it.

mod approval;
mod driver;
mod live;
mod machine;
mod record;
mod runs;
mod select;
mod tool;
mod toolbox;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::Semaphore;

use crate::{
    access::Principal,
    config,
    llm::{self, Message, Models},
    retrieval::Embedder,
    store::Store,
    tasks::Tasks,
    tool::{Catalog, Snapshot},
    upstream::Manager,
};
use toolbox::Toolbox;

pub use live::Live;
pub use machine::{Cut, Finished};
pub use record::{Called, Happening, Outcome};
pub use runs::Runs;
pub use tool::{Slot, ask_agent};

/// Runs the loop. One for the whole hub.
#[derive(Debug)]
pub struct Agent {
    models: Arc<Models>,
    catalog: Arc<Catalog>,
    servers: Arc<Manager>,
    embedder: Embedder,
    settings: config::Agent,
    runs: Runs,
    /// The tools of the last snapshot, read once.
    toolbox: Mutex<Option<(Arc<Snapshot>, Arc<Toolbox>)>>,
    room: Arc<Semaphore>,
}

/// What the agent works with.
#[derive(Debug)]
pub struct Parts {
    /// Asks models.
    pub models: Arc<Models>,
    /// Calls tools.
    pub catalog: Arc<Catalog>,
    /// Knows the servers behind the tools.
    pub servers: Arc<Manager>,
    /// Finds tools.
    pub embedder: Embedder,
    /// Keeps what happened.
    pub store: Store,
    /// How far runs may go.
    pub settings: config::Agent,
    /// Ends what is left of a run.
    pub tasks: Tasks,
}

/// What is asked of the agent.
#[derive(Clone, Debug)]
pub struct Question {
    /// Who asks.
    pub principal: Principal,
    /// The model; the one of the settings, or the first, if none is named.
    pub model: Option<String>,
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// Members of the request that the backend understands.
    pub other: Map<String, Value>,
    /// The servers whose tools may be used; all, if none are named.
    pub servers: Option<Vec<String>>,
    /// How often the model may be asked.
    pub rounds: Option<u32>,
    /// How long a call may take.
    pub tool_timeout: Option<Duration>,
    /// Whether someone is there to approve of destructive calls.
    pub approval: bool,
}

/// Why there is no run, or none that ended well.
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
    /// No model is named, and none is there.
    #[error(
        "there is no model to ask: start an Ollama on this machine, or add `models` to maru.yaml (docs/models.md shows how)"
    )]
    NoModel,
    /// Too many run already.
    #[error("{0} runs are in progress already, as many as may be; try again later")]
    Busy(usize),
    /// The model did not answer.
    #[error(transparent)]
    Model(#[from] llm::Error),
}

impl Agent {
    /// The agent; nothing runs yet.
    pub fn new(parts: Parts) -> Arc<Self> {
        let most = parts.settings.max_runs;
        Arc::new(Self {
            models: parts.models,
            catalog: parts.catalog,
            servers: parts.servers,
            embedder: parts.embedder,
            runs: Runs::new(parts.store, parts.tasks, parts.settings.keep_days),
            settings: parts.settings,
            toolbox: Mutex::default(),
            room: Arc::new(Semaphore::new(most)),
        })
    }

    /// The runs, now and before.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// How far runs may go.
    pub fn settings(&self) -> &config::Agent {
        &self.settings
    }

    /// Begins a run, which goes on while it is read.
    pub fn start(self: &Arc<Self>, question: Question) -> Result<Live, Error> {
        let place = Arc::clone(&self.room).try_acquire_owned();
        let place = place.map_err(|_| Error::Busy(self.settings.max_runs))?;
        self.check_servers(&question)?;
        Ok(Live::new(Arc::clone(self), question, place))
    }

    fn check_servers(&self, question: &Question) -> Result<(), Error> {
        let snapshot = self.catalog.snapshot();
        let mut known = self.servers.list();
        // What a restricted caller may not reach is not there for them.
        let theirs = |name: &str| question.principal.may_reach(name);
        known.retain(|it| theirs(it.server.name.as_str()));
        let is_known = |name: &str| {
            let here = snapshot.has_server(name) && theirs(name);
            here || known.iter().any(|it| it.server.name.as_str() == name)
        };
        let mut named = question.servers.iter().flatten();
        match named.find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => {
                let mut known: Vec<String> = known
                    .iter()
                    .map(|it| it.server.name.as_str().to_owned())
                    .collect();
                known.insert(0, crate::tool::OWN_SERVER.to_owned());
                let name = name.chars().take(100).collect();
                Err(Error::UnknownServer { name, known })
            }
        }
    }

    /// The tools that are on offer now.
    fn toolbox(&self) -> Arc<Toolbox> {
        let snapshot = self.catalog.snapshot();
        let mut kept = self.toolbox.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((seen, toolbox)) if Arc::ptr_eq(seen, &snapshot) => Arc::clone(toolbox),
            _ => {
                let toolbox = Arc::new(Toolbox::of(&snapshot, &self.settings.destructive_tools));
                *kept = Some((snapshot, Arc::clone(&toolbox)));
                toolbox
            }
        }
    }
}
