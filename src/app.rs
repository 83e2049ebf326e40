//! Builds the hub from its parts, starts it and stops it.

mod access;
mod data;
mod data_directory;
mod hub_file;
#[cfg_attr(not(unix), path = "app/local_socket_unsupported.rs")]
mod local_socket;
mod registered_servers;
mod reload;
mod span_export;
mod store_changes;
mod store_opening;

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Mutex, RwLock, atomic::AtomicUsize},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use maru_http::{AddedHosts, AddressPolicy};
use maru_peers::PeerHubs;
use maru_retrieval::DocumentIndex;
use maru_runtime::{tasks::Tasks, workers::WorkerPool};
use maru_store::Store;
use tokio::{net::TcpListener, time};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    agent::{Agent, AgentDependencies, ask_agent},
    auth::{Accounts, BearerToken, ConsoleSessions, OidcSignIn, load_or_create_admin_token},
    config::{Config, LoadedConfig, config_rows},
    downstream::McpEngine,
    http::{
        self, CallerReads, ConnectionAdmission, ConsoleEvents, GuardedRouter, OriginPolicy,
        Readiness, RejectedRequests, ReloadableSettings, ServeContext, TlsCertificates,
    },
    llm::{ModelManager, ModelSettings, ReloadableGateway, UsageLedger},
    observability::{audit::AuditLog, metrics::HubMetrics},
    tools::{
        CallQuota, Catalog, OverrideManager, PageCursors, ResultLimits, SourceManager,
        SourceOptions, ToolSearch, ToolsetManager,
        builtin::DataContext,
        custom::{CustomTools, ToolResources},
    },
    upstream::{McpRegistry, ServerManager},
};

use access::{open_access, spawn_key_refresh};
use data_directory::{DataDirCleanup, DataFiles};
pub(crate) use data_directory::{create_private_file, prepare_data_dir};
pub(crate) use hub_file::DataDirLock;
pub use hub_file::running_hub;
pub use local_socket::{HTTP_SOCKET, StdioView, join_hub};
use registered_servers::open_servers;
use reload::ReloadReport;
pub use span_export::start_span_export;
pub(crate) use store_opening::open_database;
use store_opening::open_store;

const REGISTRY_FILE: &str = "mcp.json";
/// Records the servers that maru wrote into `mcp.json`.
const REGISTRY_RECORD_FILE: &str = "mcp-listed.json";
/// How long servers get to shut down: twice as long as a program that needs both signals.
const SERVER_SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

/// All parts of the hub below its endpoints.
#[derive(Debug)]
pub struct HubCore {
    /// The catalog of available tools, prompts and resources.
    pub catalog: Arc<Catalog>,
    /// Handles the requests of MCP clients.
    pub engine: Arc<McpEngine>,
    /// The registered MCP servers.
    pub servers: Arc<ServerManager>,
    /// The models that clients may use.
    pub models: Arc<ReloadableGateway>,
    model_manager: Arc<ModelManager>,
    /// What requests to models use, and their budgets.
    pub usage: Arc<UsageLedger>,
    /// The agent that lets models use tools.
    pub agent: Arc<Agent>,
    /// Tasks that serve clients.
    client_tasks: Tasks,
    /// Tasks of the servers and the audit log, which stop after those of clients.
    backend_tasks: Tasks,
    data: DataContext,
    sources: Arc<SourceManager>,
    custom_tools: Arc<CustomTools>,
    toolsets: Arc<ToolsetManager>,
    tool_overrides: Arc<OverrideManager>,
    quota: Arc<CallQuota>,
    audit: Arc<AuditLog>,
    metrics: Arc<HubMetrics>,
    store: Store,
    /// The hubs that share the store, where others can.
    peers: Option<Arc<PeerHubs>>,
    /// Which addresses may be reached.
    address_policy: AddressPolicy,
    config: Config,
    /// Removes the data files at the end if the hub is ephemeral.
    _data_files: DataFiles,
}

/// A running hub.
#[derive(Debug)]
pub struct RunningHub {
    /// The address it listens on.
    pub address: SocketAddr,
    /// The admin's token.
    pub admin_token: BearerToken,
    core: HubCore,
    readiness: Arc<Readiness>,
    hub: Arc<http::HubState>,
    certificates: Arc<TlsCertificates>,
    admission: Arc<ConnectionAdmission>,
    /// Stops the task that refreshes the issuer's keys.
    key_refresh: Mutex<CancellationToken>,
    /// The settings at startup.
    startup_settings: Arc<LoadedConfig>,
    /// The settings since the last reload.
    current_settings: tokio::sync::Mutex<Arc<LoadedConfig>>,
    /// The worker threads that serve connections.
    _workers: Arc<WorkerPool>,
    /// Prevents a second hub on the same data directory.
    _data_dir_lock: DataDirLock,
    /// Removes created directories if the hub is ephemeral; dropped last.
    _cleanup: Option<DataDirCleanup>,
}

impl HubCore {
    /// Opens the data directory, builds the catalog and starts to connect servers.
    /// `own_port` is the port on which this process listens.
    pub async fn open(config: Config, own_port: Option<u16>) -> Result<Self> {
        prepare_data_dir(&config.data_dir)?;
        let files = DataFiles::from_config(&config)?;
        let store = open_store(&config).await?;
        let (tasks, backend_tasks) = (Tasks::default(), Tasks::default());
        let peers = PeerHubs::join(&store, &hub_name(&config), &backend_tasks).await?;
        let limits = &config.limits;
        let sizes = ResultLimits::from(&config);
        let catalog = Arc::new(Catalog::new(limits.tool_timeout(), sizes));
        let policy = address_policy(&config, own_port);
        http::load_added_hosts(&store, &policy.added_hosts).await?;
        let metrics = Arc::new(HubMetrics::default());
        let sample_tools = if config.sample_data {
            Some(data::open_sample(&files, &tasks)?)
        } else {
            None
        };
        let mut data = data::open_data(&config, &files, &policy, &tasks).await?;
        if let Some(peers) = &peers {
            data.cursors = PageCursors::with_key(peers.key().derive("page cursor"));
        }
        let (ask_agent, slot) = ask_agent();
        let observer = metrics.query_observer();
        let (sample, from_settings) =
            data::split_sample(&mut data, sample_tools.as_ref(), &observer);
        let sources = SourceManager::load(SourceOptions {
            store: store.clone(),
            tasks: tasks.clone(),
            open: data::open_source,
            observer,
            from_settings,
            sample,
            other_entries: config
                .agent
                .ask_agent
                .then_some(ask_agent)
                .into_iter()
                .collect(),
            context: data,
            address_policy: policy.clone(),
            allows_files: config.is_loopback_only() || config.allow_stdio_over_http,
            data_dir: config.data_dir.clone(),
        });
        let sources = Arc::new(sources.await?);
        let data = sources.context();
        let custom_tools = CustomTools::open(
            store.clone(),
            Arc::clone(&catalog),
            sources.builtin_entries().await,
            ToolResources {
                sources: Arc::clone(&data.sources),
                embedder: data.index.embedder().clone(),
                cursors: data.cursors.clone(),
            },
            tasks.clone(),
        );
        let custom_tools = Arc::new(custom_tools.await?);
        sources.set_custom_tools(Arc::clone(&custom_tools));
        let search = Arc::new(ToolSearch::new(
            data.index.embedder().clone(),
            tasks.clone(),
        ));
        catalog.set_search(Arc::clone(&search));
        let indexing = ToolSearch::index_snapshots(catalog.subscribe());
        let stop = tasks.stop_token();
        tasks.spawn(async move { _ = stop.run_until_cancelled(indexing).await });
        catalog.set_search_settings(config.tool_search.clone());
        let toolsets = ToolsetManager::open(store.clone(), Arc::clone(&catalog), &config.toolsets);
        let toolsets = Arc::new(toolsets.await?);
        let tool_overrides = OverrideManager::open(store.clone(), Arc::clone(&catalog));
        let tool_overrides = Arc::new(tool_overrides.await?);
        let quota =
            Arc::new(CallQuota::load(store.clone(), limits.calls_per_minute.map(i64::from)).await?);
        catalog.set_quota(Arc::clone(&quota));
        if config.sample_data {
            quota
                .mirror_to_sample(files.path(data::SAMPLE_FILE))
                .await?;
        }
        let usage = UsageLedger::start(store.clone(), &config.usage, &backend_tasks).await?;
        let model_manager = ModelManager::load(
            store.clone(),
            model_settings(&config, &policy),
            &metrics.models,
            &usage,
        );
        let model_manager = Arc::new(model_manager.await?);
        let models = Arc::clone(model_manager.gateway());
        let journal = catalog.journal();
        metrics.count_calls_of(journal);
        let name = hub_name(&config);
        let audit = AuditLog::start(
            (store.clone(), &name),
            &config.audit,
            journal,
            &backend_tasks,
        );
        let servers = open_servers(
            &config,
            &store,
            policy.clone(),
            &catalog,
            (peers.as_ref(), &backend_tasks),
        )
        .await?;
        let agent = Agent::new(AgentDependencies {
            models: Arc::clone(&models),
            catalog: Arc::clone(&catalog),
            servers: Arc::clone(&servers),
            search: Arc::clone(&search),
            store: store.clone(),
            peers: peers.clone(),
            settings: config.agent.clone(),
            tasks: tasks.clone(),
            drain_timeout: limits.drain_timeout(),
        });
        slot.set(&agent);
        let engine = McpEngine::start(Arc::clone(&catalog), *limits, &tasks, peers.clone());
        Ok(Self {
            catalog,
            engine,
            servers,
            models,
            model_manager,
            usage,
            agent,
            client_tasks: tasks,
            backend_tasks,
            data,
            sources,
            custom_tools,
            toolsets,
            tool_overrides,
            quota,
            audit,
            metrics,
            store,
            peers,
            address_policy: policy,
            config,
            _data_files: files,
        })
    }

    /// Requests all tasks to stop, without waiting for them.
    pub fn request_stop(&self) {
        self.client_tasks.request_stop();
        self.backend_tasks.request_stop();
    }

    /// Stops all tasks and waits for them within the grace periods.
    pub async fn close(&self) {
        let drain = self.engine.limits().drain_timeout();
        if time::timeout(drain, self.client_tasks.shutdown())
            .await
            .is_err()
        {
            warn!("not all tasks ended within {drain:?}; the others are dropped");
        }
        if time::timeout(SERVER_SHUTDOWN_GRACE, self.backend_tasks.shutdown())
            .await
            .is_err()
        {
            warn!("not every server was closed within {SERVER_SHUTDOWN_GRACE:?}");
        }
    }
}

/// Opens the document index for the command line.
pub async fn open_index(config: &Config) -> Result<DocumentIndex> {
    prepare_data_dir(&config.data_dir)?;
    let files = DataFiles::persistent(&config.data_dir);
    data::open_index(config, &files, &address_policy(config, None)).await
}

fn address_policy(config: &Config, own_port: Option<u16>) -> AddressPolicy {
    AddressPolicy {
        serves_loopback_only: config.is_loopback_only(),
        own_port,
        allowed_hosts: config.outbound.allowed_hosts.clone(),
        added_hosts: AddedHosts::default(),
        allows_private: false,
    }
}

fn model_settings(config: &Config, policy: &AddressPolicy) -> ModelSettings {
    ModelSettings {
        models: config.models.clone(),
        ollama: config.ollama.clone(),
        policy: policy.clone(),
    }
}

/// The name of this hub among those that share its store.
fn hub_name(config: &Config) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    config.hub.name.clone().unwrap_or_else(|| host.into_owned())
}

/// Starts a hub with a configuration.
pub async fn start(config: Config) -> Result<RunningHub> {
    Box::pin(start_with_settings(LoadedConfig::from(config))).await
}

/// Starts a hub with loaded settings, which record the source of each value.
pub async fn start_with_settings(loaded: LoadedConfig) -> Result<RunningHub> {
    let loaded = Arc::new(loaded);
    let config = loaded.config.clone();
    let cleanup = config
        .is_ephemeral()
        .then(|| DataDirCleanup::record_missing(&config.data_dir));
    prepare_data_dir(&config.data_dir)?;
    let certificates = TlsCertificates::load(&config.tls)?;
    let data_dir_lock = DataDirLock::acquire(&config.data_dir)?;
    let listener = bind(config.listen).await?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let core = HubCore::open(config, Some(address.port())).await?;
    let config = &core.config;
    let directory = &config.data_dir;
    let admin = load_or_create_admin_token(directory, &core.store)
        .await
        .with_context(|| format!("cannot keep the admin token in {}", directory.display()))?;
    let readiness = Arc::new(Readiness::default());
    let registry = config.mcp.registry.as_deref();
    let registry = registry.map(|it| McpRegistry::open(it, &core.address_policy));
    let hub = Arc::new(http::HubState {
        engine: Arc::clone(&core.engine),
        servers: Arc::clone(&core.servers),
        mcp_registry: registry.transpose().map_err(anyhow::Error::msg)?,
        data: core.data.clone(),
        sources: Arc::clone(&core.sources),
        custom_tools: Arc::clone(&core.custom_tools),
        toolsets: Arc::clone(&core.toolsets),
        tool_overrides: Arc::clone(&core.tool_overrides),
        quota: Arc::clone(&core.quota),
        models: Arc::clone(&core.models),
        model_manager: Arc::clone(&core.model_manager),
        usage: Arc::clone(&core.usage),
        agent: Arc::clone(&core.agent),
        audit: Arc::clone(&core.audit),
        metrics: Arc::clone(&core.metrics),
        tool_inputs: http::PendingToolInputs::default(),
        rejected_requests: RejectedRequests::default(),
        access: open_access(config, &core.store, address.port()).await?,
        accounts: Accounts::new(core.store.clone()),
        oidc: OidcSignIn::new(
            &config.oidc,
            &core.servers.sign_in_options().base_url,
            address_policy(config, Some(address.port())),
        ),
        reloadable: RwLock::new(ReloadableSettings {
            origin_policy: OriginPolicy::new(address, !config.is_loopback_only(), &config.http),
            chat: Arc::new(config.chat.clone()),
            settings: Arc::new(config_rows(&loaded)),
        }),
        max_body_bytes: AtomicUsize::new(config.limits.max_body_bytes),
        is_encrypted: config.tls.certificate.is_some() || config.behind_tls_proxy,
        is_behind_proxy: config.behind_tls_proxy,
        sends_hsts: config.tls.certificate.is_some(),
        sessions: ConsoleSessions::load(&core.store).await?,
        caller_reads: CallerReads::default(),
        events: ConsoleEvents::new(&core.client_tasks),
        store: core.store.clone(),
        address_policy: core.address_policy.clone(),
        port: address.port(),
        cookie_suffix: http::cookie_suffix(address.port(), core.peers.as_deref()),
        peers: core.peers.clone(),
        command_words: config.command_words(),
        requires_token: config.requires_token(),
        readiness: Arc::clone(&readiness),
    });
    let publisher = http::publish_changes(Arc::clone(&hub), core.client_tasks.stop_token());
    core.client_tasks.spawn(publisher);
    let answers = http::answer_peers(Arc::clone(&hub));
    let stop = core.client_tasks.stop_token();
    core.client_tasks
        .spawn(async move { _ = stop.run_until_cancelled(answers).await });
    if let Some(feed) = core.store.change_feed() {
        let changes = store_changes::follow_store_changes(Arc::clone(&hub), feed);
        let stop = core.client_tasks.stop_token();
        core.client_tasks
            .spawn(async move { _ = stop.run_until_cancelled(changes).await });
    }
    let key_refresh = spawn_key_refresh(&hub.access, &core.client_tasks);
    let guarded = GuardedRouter::new(Arc::clone(&hub));
    local_socket::listen_http(directory, guarded.clone(), &core.client_tasks);
    let workers = Arc::new(WorkerPool::start(&core.client_tasks).context("cannot start threads")?);
    // Behind a proxy all clients share its address, so the limit per address is off.
    let admission =
        ConnectionAdmission::new(config.limits.max_connections, !config.behind_tls_proxy);
    core.client_tasks.spawn(http::serve(
        listener,
        ServeContext {
            service: guarded,
            certificates: Arc::clone(&certificates),
            admission: Arc::clone(&admission),
            workers: Arc::clone(&workers),
            tasks: core.client_tasks.clone(),
        },
    ));
    let certificate_watcher = Arc::clone(&certificates).watch_files(core.client_tasks.stop_token());
    core.client_tasks.spawn(certificate_watcher);
    local_socket::listen_stdio(directory, &core.engine, &core.client_tasks);
    data_dir_lock
        .write_address(&address.to_string())
        .context("cannot record the address")?;
    info!(%address, "serving");
    Ok(RunningHub {
        address,
        admin_token: admin,
        core,
        readiness,
        hub,
        certificates,
        admission,
        key_refresh: Mutex::new(key_refresh),
        current_settings: tokio::sync::Mutex::new(Arc::clone(&loaded)),
        startup_settings: loaded,
        _workers: workers,
        _data_dir_lock: data_dir_lock,
        _cleanup: cleanup,
    })
}

impl RunningHub {
    /// Issues a one-time code, valid for ten minutes, that signs the admin in to the
    /// console.
    pub async fn console_code(&self) -> Result<BearerToken, maru_store::Error> {
        let admin = self.admin_token.hash();
        self.hub.sessions.issue_code(admin).await
    }

    /// The catalog of available tools, prompts and resources.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.core.catalog
    }

    /// Whether connections are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.core.config.tls.certificate.is_some()
    }

    /// Whether programs on this machine act as admin without a token.
    pub fn allows_local_admin(&self) -> bool {
        self.core.config.allows_local_admin()
    }

    /// The registered MCP servers.
    pub fn servers(&self) -> &Arc<ServerManager> {
        &self.core.servers
    }

    /// Applies changed settings while the hub runs, and rereads certificates, tokens and
    /// the issuer's keys. An error leaves everything as it was.
    pub async fn reload(&self, new: &LoadedConfig) -> Result<ReloadReport> {
        reload::reload_settings(self, new).await
    }

    /// Stops the hub: fails `/readyz`, waits for the drain notice, lets requests finish
    /// within the grace periods, and closes everything.
    pub async fn stop(self) {
        info!("stopping");
        let notice = self.core.config.limits.drain_notice_timeout();
        self.readiness.drain(notice).await;
        self.core.close().await;
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => anyhow!(
                "cannot listen on {address}: another program uses this port; \
             choose another with --listen {}:PORT, or 0 for any free port",
                address.ip()
            ),
            kind => anyhow!("cannot listen on {address}: {kind}"),
        })
}
