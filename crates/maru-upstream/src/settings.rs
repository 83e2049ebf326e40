//! The settings that all server connections share.

use std::{path::PathBuf, sync::Arc, time::Duration};

use maru_http::{AddressPolicy, ClientTls};
use maru_oauth::OAuthHttp;
use maru_runtime::tasks::Tasks;
use maru_store::Store;
use tokio::sync::{Semaphore, watch};

use super::{
    cleanup_tracker::CleanupTracker,
    connect::ConnectContext,
    lifecycle::ReconnectPolicy,
    programs::{ProgramMonitor, ProgramSlot},
    registration_rules::RegistrationRules,
    sign_in::{CredentialRegistry, SignInOptions, SignInServices},
    single_runs::SingleRuns,
    stdio,
    tool_pins::ToolPins,
};
use maru_config::{LimitSettings, McpSettings};
use maru_tools::Catalog;

/// The most servers that are connecting at the same time.
const MAX_CONCURRENT_CONNECTS: usize = 16;

/// Settings and shared resources of all server connections.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    pub(super) catalog: Arc<Catalog>,
    pub(super) context: ConnectContext,
    pub(super) reconnect_policy: ReconnectPolicy,
    pub(super) connect_timeout: Duration,
    /// How long a request waits for a server that is connecting.
    pub(super) connect_wait: Duration,
    pub(super) connect_permits: Arc<Semaphore>,
    pub(super) pins: Arc<ToolPins>,
    /// The rules that servers are checked against before each connection.
    pub(super) rules: Arc<RegistrationRules>,
    /// Notifies of any change of a server.
    pub(super) changes: watch::Sender<()>,
    store: Store,
    sign_in_options: SignInOptions,
    credentials: Arc<CredentialRegistry>,
}

impl ConnectionSettings {
    /// Creates settings that allow no address until the manager adds its rules, and whose
    /// programs inherit no environment.
    pub fn new(mcp: &McpSettings, catalog: Arc<Catalog>, store: Store, tasks: Tasks) -> Self {
        let sign_in_options = SignInOptions::default();
        let credentials =
            credential_registry(&store, &tasks, &AddressPolicy::default(), &sign_in_options);
        Self {
            catalog,
            context: ConnectContext {
                policy: AddressPolicy::default(),
                tls: ClientTls::default(),
                environment: stdio::inherited_environment([]),
                warden: None,
                programs: ProgramMonitor::new(&mcp.programs, tasks.clone()),
                program_slot: ProgramSlot::default(),
                first_request: Arc::default(),
                tasks,
                cleanup: CleanupTracker::new(),
                log: Arc::default(),
                traffic_rate: LimitSettings::default().server_rate(),
                input_timeout: Duration::from_millis(mcp.input_timeout_ms),
                single_runs: None,
            },
            reconnect_policy: ReconnectPolicy::from(&mcp.reconnection),
            connect_timeout: Duration::from_millis(mcp.connect_timeout_ms),
            connect_wait: Duration::from_millis(mcp.connect_wait_ms),
            connect_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_CONNECTS)),
            pins: Arc::new(ToolPins::new(store.clone())),
            rules: Arc::default(),
            changes: watch::Sender::default(),
            store,
            sign_in_options,
            credentials,
        }
    }

    /// Lets programs inherit the harmless ones of these variables.
    #[must_use]
    pub fn with_environment(
        mut self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        self.context.environment = stdio::inherited_environment(environment);
        self
    }

    /// Starts programs through `warden`, which confines them and ends with the hub.
    #[must_use]
    pub fn with_warden(mut self, warden: Option<PathBuf>) -> Self {
        self.context.warden = warden;
        self
    }

    /// Limits the unsolicited messages of each server.
    #[must_use]
    pub fn with_limits(mut self, limits: &LimitSettings) -> Self {
        self.context.traffic_rate = limits.server_rate();
        self
    }

    /// Sets how programs are run once for all hubs of the store.
    #[must_use]
    pub fn with_single_runs(mut self, runs: Option<SingleRuns>) -> Self {
        self.context.single_runs = runs;
        self
    }

    /// Sets where people reach the hub when they sign in.
    #[must_use]
    pub fn with_sign_in(mut self, options: SignInOptions) -> Self {
        self.sign_in_options = options;
        self
    }

    /// Checks servers against `rules` before each connection, and addresses before each
    /// dial.
    #[must_use]
    pub(super) fn with_rules(mut self, rules: &RegistrationRules) -> Self {
        self.context.policy = rules.address_policy.clone();
        self.rules = Arc::new(rules.clone());
        self.credentials = credential_registry(
            &self.store,
            &self.context.tasks,
            &self.context.policy,
            &self.sign_in_options,
        );
        self
    }

    /// Returns the unique id of this hub.
    pub(super) fn hub_id(&self) -> &Arc<str> {
        self.catalog.hub_id()
    }

    /// Returns the accepted tool definitions.
    pub(super) fn pins(&self) -> &ToolPins {
        &self.pins
    }

    /// Returns settings with a private catalog, for a connection test.
    pub(super) fn isolated(&self, catalog: Arc<Catalog>) -> Self {
        Self {
            catalog,
            changes: watch::Sender::default(),
            ..self.clone()
        }
    }

    /// Notifies of any change of a server.
    pub(super) fn changes(&self) -> &watch::Sender<()> {
        &self.changes
    }

    /// Returns how often a lost server is reconnected automatically.
    pub(super) fn max_attempts(&self) -> u32 {
        self.reconnect_policy.max_attempts()
    }

    /// Returns the catalog that lists the servers' tools.
    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the credentials of all servers.
    pub(super) fn credentials(&self) -> &Arc<CredentialRegistry> {
        &self.credentials
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.context.tasks
    }
}

fn credential_registry(
    store: &Store,
    tasks: &Tasks,
    policy: &AddressPolicy,
    options: &SignInOptions,
) -> Arc<CredentialRegistry> {
    let http = OAuthHttp::new(policy.clone(), ClientTls::default());
    let services = SignInServices::new(store.clone(), http, tasks.clone(), options.clone());
    Arc::new(CredentialRegistry::new(Arc::new(services)))
}
