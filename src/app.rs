//! What is built, in which order it starts, and how it stops.

mod data;
mod directory;
mod local;
mod reload;

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Write as _},
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, RwLock, atomic::AtomicUsize},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use tokio::{net::TcpListener, time};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    access::{Access, OAuth, Sessions, Token, admin_token},
    agent::{Agent, Parts, ask_agent},
    api::{
        self, Admission, Certificates, Changeable, Events, Gate, Guarded, Readiness, Serving,
        TurnedAway,
    },
    audit::Audit,
    config::{Config, Loaded, Secret, environment, rows},
    downstream::Engine,
    lanes::Lanes,
    llm::{Gateway, Models},
    outbound::{Policy, Tls},
    retrieval::Index,
    source::{Sqlite, write_sample},
    store::{Seal, Store},
    tasks::Tasks,
    telemetry,
    tool::{
        Catalog, Quota, ResultSizes, Switches,
        builtin::{self, Data},
        custom::Workshop,
    },
    upstream::{Draft, Manager, ProgramRules, Rules, Settings, Start},
};

use directory::{Files, Traceless};
pub use local::{HTTP_SOCKET, join};

/// File of the data directory that says where its hub listens; locked by the
/// hub while it runs, so that nobody trusts what a dead one wrote.
const HUB_FILE: &str = "hub";
const STORE_FILE: &str = "maru.db";
const SEAL_FILE: &str = "seal-key";
const SAMPLE_FILE: &str = "sample.db";
const REGISTRY_FILE: &str = "mcp.json";
/// How soon a token that another hub took back is refused here.
const RELOAD: Duration = Duration::from_secs(5);
/// How long servers get to end: twice as long as a program that has to be told twice.
const BACK: Duration = Duration::from_secs(8);

/// Everything below the doors.
#[derive(Debug)]
pub struct Core {
    /// What is on offer.
    pub catalog: Arc<Catalog>,
    /// Answers MCP clients.
    pub engine: Arc<Engine>,
    /// The servers whose tools are offered too.
    pub servers: Arc<Manager>,
    /// The models that clients may ask for.
    pub models: Arc<Models>,
    /// Lets them use tools.
    pub agent: Arc<Agent>,
    /// Spawns and stops what clients see.
    tasks: Tasks,
    /// The same for what stands behind, which stops later.
    back: Tasks,
    data: Data,
    workshop: Arc<Workshop>,
    quota: Arc<Quota>,
    audit: Arc<Audit>,
    store: Store,
    config: Config,
    /// Removed at the end where nothing is kept.
    _files: Files,
}

/// A hub that serves.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// Signs the admin in.
    pub admin: Token,
    core: Core,
    readiness: Arc<Readiness>,
    hub: Arc<api::Hub>,
    certificates: Arc<Certificates>,
    admission: Arc<Admission>,
    /// Ends the task that reads the issuer's keys.
    key_refresh: Mutex<CancellationToken>,
    /// The settings that the hub was started with.
    started: Arc<Loaded>,
    /// The settings in force since the last reload.
    current: tokio::sync::Mutex<Arc<Loaded>>,
    /// Serve connections.
    _lanes: Arc<Lanes>,
    /// Holds the lock.
    _hub_file: File,
    /// Removes what was made where nothing is kept; last.
    _traceless: Option<Traceless>,
}

impl Core {
    /// Opens the data directory, builds the catalog and begins to connect
    /// servers. `own_port`: where this very process listens.
    pub async fn open(config: Config, own_port: Option<u16>) -> Result<Self> {
        directory::prepare(&config.data_dir)?;
        let files = Files::of(&config)?;
        let store = open_store(&config).await?;
        let (tasks, back) = (Tasks::default(), Tasks::default());
        let limits = &config.limits;
        let sizes = ResultSizes::from(&config);
        let catalog = Arc::new(Catalog::new(limits.tool_timeout(), sizes));
        let mut offers = Vec::new();
        if config.sample_data {
            let path = files.path(SAMPLE_FILE);
            let opened = write_sample(&path).and_then(|()| Sqlite::open(&path, &tasks));
            let source = opened
                .with_context(|| format!("cannot use the sample data in {}", path.display()))?;
            offers.extend(builtin::samples(&source));
        }
        let policy = policy(&config, own_port);
        let data = data::open(&config, &files, &policy, &tasks).await?;
        offers.extend(builtin::data(&data));
        let off = store.tools_off().await?;
        catalog.switch(Switches::from_iter(off));
        let (ask, slot) = ask_agent();
        if config.agent.ask_agent {
            offers.push(ask);
        }
        let workshop = Workshop::open(
            store.clone(),
            Arc::clone(&catalog),
            offers,
            Arc::clone(&data.sources),
            tasks.clone(),
        );
        let workshop = Arc::new(workshop.await?);
        let quota =
            Arc::new(Quota::load(store.clone(), limits.calls_per_minute.map(i64::from)).await?);
        catalog.set_quota(Arc::clone(&quota));
        let models = Gateway::open(&config.models, &config.ollama, &policy, &Tls::default())?;
        let models = Arc::new(Models::new(models));
        let journal = catalog.journal();
        let audit = Audit::start(store.clone(), &config.audit, journal, &back);
        let collector = config
            .telemetry
            .otlp_endpoint
            .as_deref()
            .unwrap_or_default();
        let policy_of_traces = data::listing_url(&policy, collector);
        telemetry::start(&config.telemetry, &policy_of_traces, journal, &back)
            .map_err(anyhow::Error::msg)?;
        let servers = open_servers(&config, &store, policy, &catalog, &back).await?;
        let agent = Agent::new(Parts {
            models: Arc::clone(&models),
            catalog: Arc::clone(&catalog),
            servers: Arc::clone(&servers),
            embedder: data.index.embedder().clone(),
            store: store.clone(),
            settings: config.agent.clone(),
            tasks: tasks.clone(),
        });
        slot.fill(&agent);
        let engine = Engine::start(Arc::clone(&catalog), *limits, &tasks);
        Ok(Self {
            catalog,
            engine,
            servers,
            models,
            agent,
            tasks,
            back,
            data,
            workshop,
            quota,
            audit,
            store,
            config,
            _files: files,
        })
    }

    /// Ends everything, within the grace period.
    pub async fn close(self) {
        let drain = self.engine.limits().drain();
        if time::timeout(drain, self.tasks.close()).await.is_err() {
            warn!("not everything ended within {drain:?}; the rest is dropped");
        }
        if time::timeout(BACK, self.back.close()).await.is_err() {
            warn!("not every server was closed within {BACK:?}");
        }
    }
}

/// The index of documents, for the command line.
pub async fn open_index(config: &Config) -> Result<Index> {
    directory::prepare(&config.data_dir)?;
    let files = Files::kept(&config.data_dir);
    data::open_index(config, &files, &policy(config, None)).await
}

fn policy(config: &Config, own_port: Option<u16>) -> Policy {
    Policy {
        local: config.is_local(),
        own_port,
        allowed: config.outbound.allowed_hosts.clone(),
    }
}

async fn open_store(config: &Config) -> Result<Store> {
    let store = match config.store_url.as_ref().map(Secret::reveal) {
        None => {
            let path = config.data_dir.join(STORE_FILE);
            directory::make_file(&path)
                .with_context(|| format!("cannot make the database {}", path.display()))?;
            Store::open(&path).await?
        }
        Some("memory") => Store::in_memory().await?,
        Some(url) => Store::connect(url).await?,
    };
    let path = match &config.seal_key_file {
        // What is in memory needs no seal, and its key would stay behind.
        _ if config.keeps_nothing() => return Ok(store),
        Some(path) => path.clone(),
        // A hub elsewhere, or one whose data directory is gone, must read it too.
        None if store.is_shared() => {
            warn!(
                "secrets of servers stand in the database as they are; set seal_key_file to seal them"
            );
            return Ok(store);
        }
        None => config.data_dir.join(SEAL_FILE),
    };
    let seal = Seal::open_file(&path)
        .with_context(|| format!("cannot use the key of secrets {}", path.display()))?;
    Ok(store.sealed(seal).await?)
}

async fn open_servers(
    config: &Config,
    store: &Store,
    policy: Policy,
    catalog: &Arc<Catalog>,
    tasks: &Tasks,
) -> Result<Arc<Manager>> {
    let mcp = &config.mcp;
    let environment: Vec<_> = environment().into_iter().collect();
    let path = environment.iter().find(|(name, _)| name == "PATH");
    let search_path = path.map_or_else(String::new, |(_, value)| value.clone());
    let mut policy = policy;
    policy.allow_local(mcp.servers.iter().filter_map(|it| it.url.as_deref()));
    let settings = Settings::new(
        mcp,
        (Arc::clone(catalog), store.clone()),
        policy.clone(),
        environment,
        tasks.clone(),
    )
    .guarded_by(config.warden.clone())
    .limited_by(&config.limits);
    let beside = config.directory.as_ref().unwrap_or(&config.data_dir);
    Manager::start(Start {
        store: store.clone(),
        rules: Rules {
            names: mcp.security.allowed_server_names.clone(),
            programs: ProgramRules::new(mcp, !config.is_local(), &search_path),
            programs_refused: !config.is_local() && !config.allow_stdio_over_http,
            policy,
        },
        settings,
        max_servers: mcp.security.max_servers,
        seeds: mcp.servers.iter().map(Draft::from).collect(),
        registry: &beside.join(REGISTRY_FILE),
        writes_registry: !config.keeps_nothing(),
    })
    .await
}

/// Where the hub that runs on this data directory listens, if one does.
pub fn running_hub(data_dir: &Path) -> Option<String> {
    let path = data_dir.join(HUB_FILE);
    match File::open(&path).ok()?.try_lock_shared() {
        Err(TryLockError::WouldBlock) => fs::read_to_string(path).ok(),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// Starts a hub.
pub async fn start(config: Config) -> Result<Running> {
    start_loaded(Loaded::from(config)).await
}

/// Starts a hub with settings that know where each value comes from.
pub async fn start_loaded(loaded: Loaded) -> Result<Running> {
    let loaded = Arc::new(loaded);
    let config = loaded.config.clone();
    let traceless = config
        .keeps_nothing()
        .then(|| Traceless::note(&config.data_dir));
    directory::prepare(&config.data_dir)?;
    let certificates = Certificates::load(&config.tls)?;
    let hub_file = lock(&config.data_dir)?;
    let listener = bind(config.listen).await?;
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    let core = Core::open(config, Some(address.port())).await?;
    let config = &core.config;
    let directory = &config.data_dir;
    let admin = admin_token(directory, &core.store)
        .await
        .with_context(|| format!("cannot keep the admin token in {}", directory.display()))?;
    let sessions = Sessions::load(&core.store).await?;
    let readiness = Arc::new(Readiness::default());
    let hub = Arc::new(api::Hub {
        engine: Arc::clone(&core.engine),
        servers: Arc::clone(&core.servers),
        data: core.data.clone(),
        workshop: Arc::clone(&core.workshop),
        quota: Arc::clone(&core.quota),
        models: Arc::clone(&core.models),
        agent: Arc::clone(&core.agent),
        audit: Arc::clone(&core.audit),
        turned_away: TurnedAway::default(),
        access: access(config, &core.store, &core.tasks).await?,
        changeable: RwLock::new(Changeable {
            gate: Gate::new(address, !config.is_local(), &config.http),
            chat: Arc::new(config.chat.clone()),
            settings: Arc::new(rows(&loaded)),
        }),
        max_body_bytes: AtomicUsize::new(config.limits.max_body_bytes),
        is_encrypted: config.tls.certificate.is_some() || config.behind_tls_proxy,
        sends_hsts: config.tls.certificate.is_some(),
        sessions,
        events: Events::new(&core.tasks),
        store: core.store.clone(),
        port: address.port(),
        readiness: Arc::clone(&readiness),
        switching: tokio::sync::Mutex::default(),
    });
    let pump = api::pump(Arc::clone(&hub), core.tasks.stop());
    core.tasks.spawn(pump);
    let key_refresh = keep_keys_fresh(&hub.access, &core.tasks);
    let guarded = Guarded::new(Arc::clone(&hub));
    local::listen_http(directory, guarded.clone(), &core.tasks);
    let lanes = Arc::new(Lanes::start(&core.tasks).context("cannot start threads")?);
    // Behind a proxy every client has its address.
    let admission = Admission::new(config.limits.max_connections, !config.behind_tls_proxy);
    core.tasks.spawn(api::serve(
        listener,
        Serving {
            service: guarded,
            certificates: Arc::clone(&certificates),
            admission: Arc::clone(&admission),
            lanes: Arc::clone(&lanes),
            tasks: core.tasks.clone(),
        },
    ));
    let watching = Arc::clone(&certificates).watch(core.tasks.stop());
    core.tasks.spawn(watching);
    local::listen(directory, &core.engine, &core.tasks);
    (&hub_file)
        .write_all(address.to_string().as_bytes())
        .context("cannot note the address")?;
    info!(%address, "serving");
    Ok(Running {
        address,
        admin,
        core,
        readiness,
        hub,
        certificates,
        admission,
        key_refresh: Mutex::new(key_refresh),
        current: tokio::sync::Mutex::new(Arc::clone(&loaded)),
        started: loaded,
        _lanes: lanes,
        _hub_file: hub_file,
        _traceless: traceless,
    })
}

/// Who may come in. Tokens may be changed by another hub on the same database.
async fn access(config: &Config, store: &Store, tasks: &Tasks) -> Result<Arc<Access>> {
    let oauth = oauth(config)?;
    let access = Access::load(store.clone(), config.needs_token(), oauth).await?;
    let access = Arc::new(access);
    if let Some(oauth) = access.oauth() {
        oauth.refresh().await;
    }
    if store.is_shared() {
        let (access, stop) = (Arc::clone(&access), tasks.stop());
        tasks.spawn(async move {
            while time::timeout(RELOAD, stop.cancelled()).await.is_err() {
                if let Err(error) = access.reload().await {
                    warn!(%error, "the tokens could not be read again");
                }
            }
        });
    }
    Ok(access)
}

fn oauth(config: &Config) -> Result<Option<OAuth>> {
    let settings = &config.oauth;
    let place = settings.jwks_url.as_deref().unwrap_or_default();
    let oauth = OAuth::new(settings, &data::listing_url(&policy(config, None), place));
    oauth.map_err(anyhow::Error::msg)
}

/// Reads the keys of the issuer again and again, until what it gives is cancelled.
fn keep_keys_fresh(access: &Access, tasks: &Tasks) -> CancellationToken {
    let stop = tasks.stop().child_token();
    if let Some(oauth) = access.oauth() {
        tasks.spawn(oauth.keep_fresh(stop.clone()));
    }
    stop
}

impl Running {
    /// A code that signs the admin in to the console, once, within ten minutes.
    pub fn console_code(&self) -> Token {
        self.hub.sessions.code(self.admin.hash())
    }

    /// What is on offer.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.core.catalog
    }

    /// Whether connections are encrypted.
    pub fn is_secure(&self) -> bool {
        self.core.config.tls.certificate.is_some()
    }

    /// The servers whose tools are offered too.
    pub fn servers(&self) -> &Arc<Manager> {
        &self.core.servers
    }

    /// Tells probes of `/readyz`, then stops accepting, lets requests finish and closes
    /// everything; bounded.
    pub async fn stop(self) {
        info!("stopping");
        let notice = self.core.config.limits.drain_notice();
        self.readiness.drain(notice).await;
        self.core.close().await;
    }
}

fn lock(data_dir: &Path) -> Result<File> {
    let path = data_dir.join(HUB_FILE);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)?;
    if file.try_lock().is_err() {
        let address = fs::read_to_string(&path).unwrap_or_default();
        return Err(anyhow!(
            "a hub at {address} already runs on the data directory {}; stop it, or choose another with --data-dir DIR",
            data_dir.display()
        ));
    }
    file.set_len(0)?;
    Ok(file)
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
