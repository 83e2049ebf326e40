//! What connections are opened with.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{Semaphore, watch};

use super::{
    budget::TrafficRate,
    lifecycle::Backoff,
    open::Means,
    pins::Pins,
    programs::{ProgramSlot, Programs},
    server::Rules,
    stdio,
    traces::Traces,
};
use crate::{
    config::{Limits, Mcp},
    outbound::{Policy, Tls},
    store::Store,
    tasks::Tasks,
    tool::Catalog,
};

/// Servers that are being connected at the same time.
const AT_ONCE: usize = 16;

/// What all connections share.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(super) catalog: Arc<Catalog>,
    pub(super) means: Means,
    pub(super) backoff: Backoff,
    pub(super) connect_timeout: Duration,
    pub(super) room: Arc<Semaphore>,
    pub(super) pins: Arc<Pins>,
    /// What servers are checked against whenever they are connected.
    pub(super) rules: Arc<Rules>,
    /// Tells that some server is not as it was.
    pub(super) changes: watch::Sender<()>,
}

impl Settings {
    /// `environment`: our own variables, of which children see a few.
    pub fn new(
        mcp: &Mcp,
        (catalog, store): (Arc<Catalog>, Store),
        policy: Policy,
        environment: impl IntoIterator<Item = (String, String)>,
        tasks: Tasks,
    ) -> Self {
        Self {
            catalog,
            means: Means {
                policy,
                tls: Tls::default(),
                environment: stdio::passed_on(environment),
                warden: None,
                programs: Programs::new(&mcp.programs, tasks.clone()),
                program: ProgramSlot::default(),
                tasks,
                traces: Traces::new(),
                log: Arc::default(),
                traffic_rate: TrafficRate::from(&Limits::default()),
            },
            backoff: Backoff::from(&mcp.reconnection),
            connect_timeout: Duration::from_millis(mcp.connect_timeout_ms),
            room: Arc::new(Semaphore::new(AT_ONCE)),
            pins: Arc::new(Pins::new(store)),
            rules: Arc::default(),
            changes: watch::Sender::default(),
        }
    }

    /// Starts programs by `warden`, which confines them and ends them with us.
    #[must_use]
    pub fn guarded_by(mut self, warden: Option<PathBuf>) -> Self {
        self.means.warden = warden;
        self
    }

    /// Bounds what each server may send without being asked.
    #[must_use]
    pub fn limited_by(mut self, limits: &Limits) -> Self {
        self.means.traffic_rate = TrafficRate::from(limits);
        self
    }

    /// Checks servers against `rules` whenever they are connected.
    #[must_use]
    pub(super) fn checked_by(mut self, rules: &Rules) -> Self {
        self.rules = Arc::new(rules.clone());
        self
    }

    /// Tells this hub from every other.
    pub(super) fn hub_id(&self) -> &Arc<str> {
        self.catalog.hub_id()
    }

    /// What was accepted of the servers' tools.
    pub(super) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// The same for a server that nobody else is to see.
    pub(super) fn aside(&self, catalog: Arc<Catalog>) -> Self {
        Self {
            catalog,
            changes: watch::Sender::default(),
            ..self.clone()
        }
    }

    /// Tells that some server is not as it was.
    pub(super) fn changes(&self) -> &watch::Sender<()> {
        &self.changes
    }

    /// How often a lost server is tried again.
    pub(super) fn max_attempts(&self) -> u32 {
        self.backoff.attempts()
    }

    /// Where the servers' tools are offered.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.means.tasks
    }
}
