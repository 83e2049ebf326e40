//! The servers that are registered: one place that changes them.

mod seeds;
mod validate;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{FutureExt as _, future::join_all};
use maru_protocol::ProtocolVersion;
use maru_runtime::clock;
use maru_store::Store;
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{info, warn};

use self::validate::{check_length, differs_from_seed};
use super::{
    connection::spawn_connection,
    draft::ServerDraft,
    handle::{ServerHandle, ServerStatus},
    lifecycle::ServerState,
    programs::ProgramView,
    registry_file::RegistryFile,
    server::{
        InvalidField, RegisteredServer, RegistrationRules, ServerName, ServerOrigin,
        parse_required_version,
    },
    server_row::{server_from_row, server_to_row},
    settings::ConnectionSettings,
};
use crate::tools::ServerConnector;

/// Registers, connects and removes servers.
#[derive(Debug)]
pub struct ServerManager {
    store: Store,
    pub(super) rules: RegistrationRules,
    pub(super) settings: ConnectionSettings,
    max_servers: usize,
    servers: Mutex<BTreeMap<ServerName, ManagedServer>>,
    /// What `maru.yaml` says.
    seeds: BTreeMap<String, ServerDraft>,
    /// One change at a time; the file changes with it.
    registry: tokio::sync::Mutex<RegistryFile>,
}

#[derive(Clone, Debug)]
pub(super) struct ManagedServer {
    server: RegisteredServer,
    pub(super) handle: ServerHandle,
}

/// A server and how it is.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// As registered.
    pub server: RegisteredServer,
    /// As it is now.
    pub status: ServerStatus,
    /// Whether `maru.yaml` describes it otherwise; `None` if it does not.
    pub differs_from_config: Option<bool>,
    /// What a person should know of the program that it starts.
    pub warnings: Vec<String>,
    /// The program that runs for it.
    pub program: Option<ProgramView>,
}

/// A change that was not made.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// The description is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// The name is in use.
    #[error("a server named {0} is registered already")]
    NameTaken(ServerName),
    /// There is no such server.
    #[error("no server is named {0:?}")]
    UnknownServer(String),
    /// There are too many.
    #[error("there are {0} servers, as many as mcp.security.max-servers allows")]
    TooManyServers(usize),
    /// Nothing of that name waits.
    #[error("no tool of that name waits to be accepted")]
    NothingToAccept,
    /// It is a program, and requests come from other machines.
    #[error(
        "programs are not registered over HTTP while maru serves other machines; put it into maru.yaml, or set allow_stdio_over_http: true"
    )]
    ProgramsNotAllowed,
    /// It does more than start a program, and nobody said that this is meant.
    #[error(
        "{}; send \"acceptWarnings\": true (--accept-warnings on the command line) if that is meant",
        .warnings.join("; ")
    )]
    WarningsNotAccepted {
        /// The member of the description that it is about.
        field: String,
        /// What a person should know of it.
        warnings: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
    /// `mcp.json` could not be written.
    #[error("cannot write mcp.json: {0}")]
    WriteRegistryFile(String),
}

/// What the manager starts with.
#[derive(Debug)]
pub struct ManagerOptions<'a> {
    /// Where servers are kept.
    pub store: Store,
    /// What they are checked against.
    pub rules: RegistrationRules,
    /// How they are connected.
    pub settings: ConnectionSettings,
    /// How many there may be.
    pub max_servers: usize,
    /// The servers of `maru.yaml`.
    pub seeds: Vec<ServerDraft>,
    /// `mcp.json`.
    pub registry: &'a Path,
    /// Whether `mcp.json` is written when servers change.
    pub writes_registry: bool,
}

impl ServerManager {
    /// Reads the store, seeds it from the files, and begins to connect.
    pub async fn start(start: ManagerOptions<'_>) -> anyhow::Result<Arc<Self>> {
        let (registry, (listed, refused)) =
            RegistryFile::load(start.registry, start.writes_registry)
                .map_err(anyhow::Error::msg)?;
        for (entry, why) in refused {
            warn!("{} {entry} is not used: {why}", start.registry.display());
        }
        let manager = Arc::new(Self {
            store: start.store,
            settings: start.settings.with_rules(&start.rules),
            rules: start.rules,
            max_servers: start.max_servers,
            servers: Mutex::default(),
            seeds: start
                .seeds
                .iter()
                .map(|it| (it.name.clone(), it.clone()))
                .collect(),
            registry: tokio::sync::Mutex::new(registry),
        });
        for row in manager.store.servers().await? {
            let name = row.name.clone();
            match server_from_row(row) {
                Ok(server) => manager.insert_server(server),
                Err(why) => warn!("the stored server {name} is not used: {why}"),
            }
        }
        manager.seed_all(start.seeds, listed).await?;
        manager.connect_all();
        let woken = Arc::downgrade(&manager);
        let waker = move |name: String| {
            let manager = woken.upgrade();
            async move {
                match manager {
                    Some(manager) => manager.connect_for_call(&name).await,
                    None => Ok(false),
                }
            }
            .boxed()
        };
        manager
            .settings
            .catalog()
            .set_connector(ServerConnector(Box::new(waker)));
        Ok(manager)
    }

    /// Tries once to connect a server that is closed or has failed, if
    /// `mcp.reconnection.enabled` allows it; how that went is in its status. A call to one
    /// of its tools does the same.
    pub async fn ensure_connected(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.reconnect_if_down().await;
        Ok(self.view(entry))
    }

    /// Connects the server of a tool that is called; says why that failed.
    async fn connect_for_call(&self, name: &str) -> Result<bool, String> {
        let Ok(entry) = self.find(name) else {
            return Ok(false);
        };
        entry.handle.reconnect_if_down().await;
        let connected = entry.handle.status().state == ServerState::Connected;
        match entry.handle.failure() {
            Some(why) if !connected => Err(why),
            _ => Ok(connected),
        }
    }

    fn connect_all(&self) {
        info!(count = self.lock().len(), "servers are registered");
        self.auto_connect_handles()
            .iter()
            .for_each(ServerHandle::request_connect);
    }

    /// Waits for the first attempt at every server that is to be connected.
    pub async fn wait_for_first_connect(&self) {
        join_all(
            self.auto_connect_handles()
                .iter()
                .map(ServerHandle::connect),
        )
        .await;
    }

    fn auto_connect_handles(&self) -> Vec<ServerHandle> {
        let servers = self.lock();
        let wanted = servers
            .values()
            .filter(|it| it.server.auto_connect && it.server.enabled);
        wanted.map(|it| it.handle.clone()).collect()
    }

    /// Every server, by name.
    pub fn list(&self) -> Vec<ServerView> {
        let servers: Vec<ManagedServer> = self.lock().values().cloned().collect();
        servers.into_iter().map(|it| self.view(it)).collect()
    }

    /// One server.
    pub fn get(&self, name: &str) -> Result<ServerView, RegistrationError> {
        self.find(name).map(|entry| self.view(entry))
    }

    /// Registers a server, and connects it if it wants that.
    pub async fn register(
        self: &Arc<Self>,
        draft: &ServerDraft,
        origin: ServerOrigin,
    ) -> Result<ServerView, RegistrationError> {
        self.check_programs_allowed(draft, None)?;
        let (manager, added) = (Arc::clone(self), draft.clone());
        self.run_to_completion(async move {
            let registry = manager.registry.lock().await;
            manager.add(&added, origin).await?;
            manager.save_registry_file(&registry)
        })
        .await?;
        let entry = self.find(&draft.name)?;
        if draft.auto_connect {
            entry.handle.connect().await;
        }
        Ok(self.view(entry))
    }

    /// Replaces the description of a server; its connection is made anew only
    /// if it is reached otherwise.
    pub async fn update(
        self: &Arc<Self>,
        name: &str,
        draft: &ServerDraft,
    ) -> Result<ServerView, RegistrationError> {
        self.check_programs_allowed(draft, Some(&self.find(name)?.server.transport))?;
        let (manager, changed, draft) = (Arc::clone(self), name.to_owned(), draft.clone());
        let reconnect = self
            .run_to_completion(async move {
                let registry = manager.registry.lock().await;
                let reconnect = manager.apply_update(&changed, &draft).await?;
                manager.save_registry_file(&registry)?;
                Ok(reconnect)
            })
            .await?;
        let entry = self.find(name)?;
        if reconnect {
            entry.handle.connect().await;
        }
        Ok(self.view(entry))
    }

    /// Removes a server and closes its connection.
    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<(), RegistrationError> {
        let (manager, name) = (Arc::clone(self), name.to_owned());
        let entry = self
            .run_to_completion(async move {
                let registry = manager.registry.lock().await;
                let entry = manager.find(&name)?;
                // Both are forgotten before it is gone: what fails leaves the server.
                manager.settings.pins().forget(&name).await?;
                manager.store.delete_server(&name, clock::now_ms()).await?;
                manager.lock().remove(&entry.server.name);
                manager.settings.changes().send_replace(());
                if let Err(why) = manager.save_registry_file(&registry) {
                    // It does not come back: the store knows that it was removed.
                    warn!("server {name} is removed, but still listed: {why}");
                }
                Ok(entry)
            })
            .await?;
        entry.handle.shutdown().await;
        Ok(())
    }

    /// Connects a server; how that went is in its status.
    pub async fn connect(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.connect().await;
        Ok(self.view(entry))
    }

    /// Closes the connection to a server, which stays registered.
    pub async fn disconnect(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.disconnect().await;
        Ok(self.view(entry))
    }

    /// Switches a server on or off.
    pub async fn set_enabled(
        self: &Arc<Self>,
        name: &str,
        enabled: bool,
    ) -> Result<ServerView, RegistrationError> {
        let (manager, name) = (Arc::clone(self), name.to_owned());
        let entry = self
            .run_to_completion(async move {
                let _one_change_at_a_time = manager.registry.lock().await;
                let mut entry = manager.find(&name)?;
                if enabled {
                    manager.rules.check_start(&entry.server)?;
                }
                entry.server.enabled = enabled;
                entry.server.updated_at = clock::now_ms();
                manager
                    .store
                    .update_server(&server_to_row(&entry.server))
                    .await?;
                let key = entry.server.name.clone();
                manager.lock().insert(key, entry.clone());
                manager.settings.changes().send_replace(());
                entry.handle.set_enabled(enabled).await;
                Ok(entry)
            })
            .await?;
        if enabled && entry.server.auto_connect {
            entry.handle.connect().await;
        }
        Ok(self.view(entry))
    }

    /// Does all of a change, even when whoever asked for it has left.
    pub(super) async fn run_to_completion<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, RegistrationError>> + Send + 'static,
    ) -> Result<T, RegistrationError> {
        let (tell, told) = oneshot::channel();
        self.settings.tasks().spawn(async move {
            // Nobody may be there to hear it.
            let _ = tell.send(change.await);
        });
        told.await.expect("the change tells how it ended")
    }

    async fn add(
        &self,
        draft: &ServerDraft,
        origin: ServerOrigin,
    ) -> Result<(), RegistrationError> {
        let name = self.rules.parse_name(&draft.name)?;
        if self.lock().contains_key(&name) {
            return Err(RegistrationError::NameTaken(name));
        }
        let transport = self
            .rules
            .parse_transport(&draft.kind, &draft.config, None)?;
        self.check_warnings_accepted(draft, &transport, None)?;
        let count = self.lock().len();
        if count >= self.max_servers {
            return Err(RegistrationError::TooManyServers(count));
        }
        let server = RegisteredServer {
            id: uuid::Uuid::new_v4().to_string(),
            name,
            description: check_length(draft.description.as_ref(), "description", 500)?,
            transport,
            version: check_length(draft.version.as_ref(), "version", 50)?,
            auto_connect: draft.auto_connect,
            enabled: draft.enabled.unwrap_or(true),
            origin,
            trust: draft.trust.unwrap_or_default(),
            required_version: draft_required_version(draft)?,
            created_at: clock::now_ms(),
            updated_at: clock::now_ms(),
        };
        if self.store.insert_server(&server_to_row(&server)).await? {
            self.insert_server(server);
        } else {
            return Err(RegistrationError::NameTaken(server.name));
        }
        Ok(())
    }

    /// True when the connection has to be made anew.
    async fn apply_update(
        &self,
        name: &str,
        draft: &ServerDraft,
    ) -> Result<bool, RegistrationError> {
        let before = self.find(name)?;
        if draft.name != name {
            let why = "a server keeps its name; remove it and register it anew".to_owned();
            return Err(RegistrationError::Invalid(InvalidField {
                field: "name".to_owned(),
                why,
            }));
        }
        self.rules.parse_name(name)?;
        let stored = Some(&before.server.transport);
        let transport = self
            .rules
            .parse_transport(&draft.kind, &draft.config, stored)?;
        self.check_warnings_accepted(draft, &transport, stored)?;
        let server = RegisteredServer {
            description: check_length(draft.description.as_ref(), "description", 500)?,
            version: check_length(draft.version.as_ref(), "version", 50)?,
            auto_connect: draft.auto_connect,
            updated_at: clock::now_ms(),
            trust: draft.trust.unwrap_or(before.server.trust),
            enabled: draft.enabled.unwrap_or(before.server.enabled),
            required_version: draft_required_version(draft)?,
            transport,
            ..before.server.clone()
        };
        if !self.store.update_server(&server_to_row(&server)).await? {
            return Err(RegistrationError::UnknownServer(name.to_owned()));
        }
        let same = server.transport == before.server.transport
            && server.required_version == before.server.required_version;
        if same && server.trust == before.server.trust {
            let (handle, enabled) = (before.handle, server.enabled);
            let switched = enabled != before.server.enabled;
            let connect = switched && enabled && server.auto_connect;
            let told = handle.clone();
            self.lock()
                .insert(server.name.clone(), ManagedServer { server, handle });
            self.settings.changes().send_replace(());
            if switched {
                told.set_enabled(enabled).await;
            }
            return Ok(connect);
        }
        before.handle.shutdown().await;
        let connect = server.enabled && server.auto_connect;
        self.insert_server(server);
        Ok(connect)
    }

    fn insert_server(&self, server: RegisteredServer) {
        let handle = spawn_connection(server.clone(), &self.settings);
        self.log_warnings(&server, &handle);
        self.lock()
            .insert(server.name.clone(), ManagedServer { server, handle });
        self.settings.changes().send_replace(());
    }

    fn save_registry_file(&self, registry: &RegistryFile) -> Result<(), RegistrationError> {
        let servers: Vec<RegisteredServer> =
            self.lock().values().map(|it| it.server.clone()).collect();
        registry
            .save(&servers)
            .map_err(|error| RegistrationError::WriteRegistryFile(error.kind().to_string()))
    }

    pub(super) fn find(&self, name: &str) -> Result<ManagedServer, RegistrationError> {
        let shown = || RegistrationError::UnknownServer(name.chars().take(70).collect());
        let name = ServerName::parse(name).map_err(|_| shown())?;
        self.lock().get(&name).cloned().ok_or_else(shown)
    }

    fn view(&self, entry: ManagedServer) -> ServerView {
        let seed = self.seeds.get(entry.server.name.as_str());
        ServerView {
            differs_from_config: seed.map(|seed| differs_from_seed(seed, &entry.server)),
            status: entry.handle.status(),
            program: entry.handle.program(),
            warnings: self.rules.warnings(&entry.server.transport),
            server: entry.server,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerName, ManagedServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn draft_required_version(draft: &ServerDraft) -> Result<Option<ProtocolVersion>, InvalidField> {
    draft
        .required_version
        .as_deref()
        .map(parse_required_version)
        .transpose()
}
