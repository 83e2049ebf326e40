//! The registry of servers, through which all changes go.

mod seeds;
mod stored_servers;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, future::join_all};
use maru_runtime::{clock, tasks::with_timeout};
use maru_store::Store;
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use super::{
    connection::spawn_connection,
    draft::ServerDraft,
    handle::{ServerHandle, ServerStatus},
    lifecycle::ServerState,
    programs::ProgramView,
    registration_error::RegistrationError,
    registration_rules::RegistrationRules,
    registry_file::RegistryFile,
    server::{InvalidField, RegisteredServer, ServerName, ServerOrigin, check_length},
    server_row::server_to_row,
    settings::ConnectionSettings,
    sign_in::{CredentialRegistry, SignInOptions},
};
use maru_tools::ServerConnector;

/// Registers, connects and removes servers.
#[derive(Debug)]
pub struct ServerManager {
    store: Store,
    pub(super) rules: RegistrationRules,
    pub(super) settings: ConnectionSettings,
    max_servers: usize,
    servers: Mutex<BTreeMap<ServerName, ManagedServer>>,
    /// The servers of `maru.yaml` by name.
    seeds: BTreeMap<String, ServerDraft>,
    /// Held during a change, so that changes and writes of the file are serialized.
    registry: tokio::sync::Mutex<RegistryFile>,
}

#[derive(Clone, Debug)]
pub(super) struct ManagedServer {
    server: RegisteredServer,
    pub(super) handle: ServerHandle,
}

/// A registered server with its current status.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// The server as registered.
    pub server: RegisteredServer,
    /// Its current status.
    pub status: ServerStatus,
    /// Whether the description in `maru.yaml` differs; `None` if it is not listed there.
    pub differs_from_config: Option<bool>,
    /// Warnings about the program that it starts.
    pub warnings: Vec<String>,
    /// The program that runs for it, if any.
    pub program: Option<ProgramView>,
}

/// The dependencies and settings of a [`ServerManager`].
#[derive(Debug)]
pub struct ManagerOptions<'a> {
    /// The store of registered servers.
    pub store: Store,
    /// The rules that registrations are checked against.
    pub rules: RegistrationRules,
    /// The settings of connections.
    pub settings: ConnectionSettings,
    /// The most servers that may be registered.
    pub max_servers: usize,
    /// The servers of `maru.yaml`.
    pub seeds: Vec<ServerDraft>,
    /// The path of `mcp.json`.
    pub registry: &'a Path,
    /// The file that records which servers maru wrote into `mcp.json`; `None` if it
    /// writes neither file.
    pub registry_record: Option<&'a Path>,
}

impl ServerManager {
    /// Loads the stored servers, adds those of the files, and starts to connect them.
    pub async fn start(options: ManagerOptions<'_>) -> anyhow::Result<Arc<Self>> {
        let (registry, (listed, refused)) =
            RegistryFile::load(options.registry, options.registry_record)
                .map_err(anyhow::Error::msg)?;
        for (entry, error) in refused {
            warn!(
                "{} {entry} is not used: {error}",
                options.registry.display()
            );
        }
        let manager = Arc::new(Self {
            store: options.store,
            settings: options.settings.with_rules(&options.rules),
            rules: options.rules,
            max_servers: options.max_servers,
            servers: Mutex::default(),
            seeds: options
                .seeds
                .iter()
                .map(|it| (it.name.clone(), it.clone()))
                .collect(),
            registry: tokio::sync::Mutex::new(registry),
        });
        manager.load_stored_servers().await?;
        seeds::seed_servers(&manager, options.seeds, listed).await?;
        if let Some(runs) = &manager.settings.context.single_runs {
            runs.spawn_service(&manager);
        }
        manager.connect_all();
        let weak = Arc::downgrade(&manager);
        let connector = move |name: String| {
            let manager = weak.upgrade();
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
            .set_connector(ServerConnector(Box::new(connector)));
        Ok(manager)
    }

    /// Makes one attempt to connect a server that is disconnected or failed, if
    /// `mcp.reconnection.enabled` allows it, and returns its status. A call to one of its
    /// tools does the same.
    pub async fn ensure_connected(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.reconnect_if_down().await;
        Ok(self.view(entry))
    }

    /// Connects the server of a called tool; the error says why that failed.
    async fn connect_for_call(&self, name: &str) -> Result<bool, String> {
        let Ok(entry) = self.find(name) else {
            return Ok(false);
        };
        entry.handle.reconnect_if_down().await;
        let connected = entry.handle.status().state == ServerState::Connected;
        match entry.handle.failure() {
            Some(reason) if !connected => Err(reason),
            _ => Ok(connected),
        }
    }

    fn connect_all(&self) {
        info!(count = self.lock().len(), "servers are registered");
        self.auto_connect_handles()
            .iter()
            .for_each(ServerHandle::request_connect);
    }

    /// Waits for the first connection attempt of every server with auto-connect.
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
        let auto_connecting = servers
            .values()
            .filter(|it| it.server.auto_connect && it.server.enabled);
        auto_connecting.map(|it| it.handle.clone()).collect()
    }

    /// Returns all servers, sorted by name.
    pub fn list(&self) -> Vec<ServerView> {
        let servers: Vec<ManagedServer> = self.lock().values().cloned().collect();
        servers.into_iter().map(|it| self.view(it)).collect()
    }

    /// Returns the server of this name.
    pub fn get(&self, name: &str) -> Result<ServerView, RegistrationError> {
        self.find(name).map(|entry| self.view(entry))
    }

    /// Checks the description of a server without registering or changing it.
    pub fn check(&self, draft: &ServerDraft) -> Result<(), RegistrationError> {
        let before = self.find(&draft.name).ok().map(|it| it.server.transport);
        self.rules.check_program_change(draft, before.as_ref())?;
        self.rules.parse_name(&draft.name)?;
        let before = before.as_ref();
        let transport = self
            .rules
            .parse_transport(&draft.kind, &draft.config, before)?;
        self.rules
            .check_warnings_accepted(draft, &transport, before)?;
        draft.parse_required_version()?;
        Ok(())
    }

    /// Registers a server, and connects it if auto-connect is set. An attempt that takes
    /// longer than `mcp.connect-wait-ms` continues in the background.
    pub async fn register(
        self: &Arc<Self>,
        draft: &ServerDraft,
        origin: ServerOrigin,
    ) -> Result<ServerView, RegistrationError> {
        self.rules.check_program_change(draft, None)?;
        let (manager, added) = (Arc::clone(self), draft.clone());
        self.run_to_completion(async move {
            let registry = manager.registry.lock().await;
            manager.add(&added, origin).await?;
            manager.save_registry_file(&registry);
            Ok(())
        })
        .await?;
        let entry = self.find(&draft.name)?;
        if draft.auto_connect {
            self.connect_within_wait(&entry).await;
        }
        Ok(self.view(entry))
    }

    /// Replaces the description of a server. It is reconnected only if its transport,
    /// required version or trust policy changed; an attempt that takes longer than
    /// `mcp.connect-wait-ms` continues in the background.
    pub async fn update(
        self: &Arc<Self>,
        name: &str,
        draft: &ServerDraft,
    ) -> Result<ServerView, RegistrationError> {
        let before = self.find(name)?.server.transport;
        self.rules.check_program_change(draft, Some(&before))?;
        let (manager, changed, draft) = (Arc::clone(self), name.to_owned(), draft.clone());
        let reconnect = self
            .run_to_completion(async move {
                let registry = manager.registry.lock().await;
                let reconnect = manager.apply_update(&changed, &draft).await?;
                manager.save_registry_file(&registry);
                Ok(reconnect)
            })
            .await?;
        let entry = self.find(name)?;
        if reconnect {
            self.connect_within_wait(&entry).await;
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
                // The store goes first: if it fails, the server stays.
                manager.settings.pins().forget(&name).await?;
                manager
                    .credentials()
                    .remove_server(&entry.server.id)
                    .await?;
                manager.store.delete_server(&name, clock::now_ms()).await?;
                manager.lock().remove(&entry.server.name);
                manager.settings.changes().send_replace(());
                manager.save_registry_file(&registry);
                Ok(entry)
            })
            .await?;
        entry.handle.shutdown().await;
        Ok(())
    }

    /// Connects a server, waits for the attempt, and returns the resulting status.
    pub async fn connect(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.connect().await;
        Ok(self.view(entry))
    }

    /// Connects a server and waits at most `mcp.connect-wait-ms`; a longer attempt
    /// continues in the background.
    pub async fn connect_or_continue(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        self.connect_within_wait(&entry).await;
        Ok(self.view(entry))
    }

    /// Returns how long a request waits for a server that is connecting.
    pub fn connect_wait(&self) -> Duration {
        self.settings.connect_wait
    }

    async fn connect_within_wait(&self, entry: &ManagedServer) {
        // The connection task continues when nobody waits for it.
        let _ = with_timeout(self.connect_wait(), entry.handle.connect()).await;
    }

    /// Closes the connection to a server, which remains registered.
    pub async fn disconnect(&self, name: &str) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        entry.handle.disconnect().await;
        Ok(self.view(entry))
    }

    /// Enables or disables a server.
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
            self.connect_within_wait(&entry).await;
        }
        Ok(self.view(entry))
    }

    /// Accepts the changed definition of `tool`, or of all withheld tools.
    pub async fn accept_definitions(
        &self,
        name: &str,
        tool: Option<&str>,
    ) -> Result<ServerView, RegistrationError> {
        let entry = self.find(name)?;
        let accepted = self.settings.pins().accept(name, tool).await?;
        if accepted == 0 && tool.is_some() {
            return Err(RegistrationError::NothingToAccept);
        }
        entry.handle.republish().await;
        Ok(self.view(entry))
    }

    /// Returns the credentials of all servers.
    pub(super) fn credentials(&self) -> &CredentialRegistry {
        self.settings.credentials()
    }

    /// Returns where people reach the hub when they sign in.
    pub fn sign_in_options(&self) -> &SignInOptions {
        self.credentials().services().options()
    }

    /// Notifies of any change of a server.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.settings.changes().subscribe()
    }

    /// Returns how often a lost server is reconnected automatically.
    pub fn max_attempts(&self) -> u32 {
        self.settings.max_attempts()
    }

    /// Returns the handle of the server of this name.
    pub fn handle(&self, name: &str) -> Result<ServerHandle, RegistrationError> {
        self.find(name).map(|entry| entry.handle)
    }

    /// Runs a change to its end in a separate task, even if the caller is cancelled.
    pub(super) async fn run_to_completion<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, RegistrationError>> + Send + 'static,
    ) -> Result<T, RegistrationError> {
        let (sender, outcome) = oneshot::channel();
        self.settings.tasks().spawn(async move {
            let _caller_may_have_left = sender.send(change.await);
        });
        outcome.await.expect("the task sends how the change ended")
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
        self.rules
            .check_warnings_accepted(draft, &transport, None)?;
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
            required_version: draft.parse_required_version()?,
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

    /// Changes the description of a server; returns true if it must be connected again.
    async fn apply_update(
        &self,
        name: &str,
        draft: &ServerDraft,
    ) -> Result<bool, RegistrationError> {
        let before = self.find(name)?;
        if draft.name != name {
            return Err(RegistrationError::Invalid(InvalidField {
                field: "name".to_owned(),
                reason: "a server keeps its name; remove it and register it anew".to_owned(),
            }));
        }
        self.rules.parse_name(name)?;
        let stored = Some(&before.server.transport);
        let transport = self
            .rules
            .parse_transport(&draft.kind, &draft.config, stored)?;
        self.rules
            .check_warnings_accepted(draft, &transport, stored)?;
        let server = RegisteredServer {
            description: check_length(draft.description.as_ref(), "description", 500)?,
            version: check_length(draft.version.as_ref(), "version", 50)?,
            auto_connect: draft.auto_connect,
            updated_at: clock::now_ms(),
            trust: draft.trust.unwrap_or(before.server.trust),
            enabled: draft.enabled.unwrap_or(before.server.enabled),
            required_version: draft.parse_required_version()?,
            transport,
            ..before.server.clone()
        };
        if !self.store.update_server(&server_to_row(&server)).await? {
            return Err(RegistrationError::UnknownServer(name.to_owned()));
        }
        Ok(self.replace_server(before, server).await)
    }

    /// Replaces a server in memory; returns true if it must be connected again.
    async fn replace_server(&self, before: ManagedServer, server: RegisteredServer) -> bool {
        let same_connection = server.transport == before.server.transport
            && server.required_version == before.server.required_version;
        if same_connection && server.trust == before.server.trust {
            let (handle, enabled) = (before.handle, server.enabled);
            let switched = enabled != before.server.enabled;
            let connect = switched && enabled && server.auto_connect;
            let entry = ManagedServer {
                server,
                handle: handle.clone(),
            };
            self.lock().insert(entry.server.name.clone(), entry);
            self.settings.changes().send_replace(());
            if switched {
                handle.set_enabled(enabled).await;
            }
            return connect;
        }
        before.handle.shutdown().await;
        let connect = server.enabled && server.auto_connect;
        self.insert_server(server);
        connect
    }

    fn insert_server(&self, server: RegisteredServer) {
        let handle = spawn_connection(server.clone(), &self.settings);
        self.rules.log_warnings(&server, &handle);
        self.lock()
            .insert(server.name.clone(), ManagedServer { server, handle });
        self.settings.changes().send_replace(());
    }

    /// Writes `mcp.json`. A failure is only logged, because the store has the change
    /// already.
    fn save_registry_file(&self, registry: &RegistryFile) {
        let servers: Vec<RegisteredServer> =
            self.lock().values().map(|it| it.server.clone()).collect();
        if let Err(error) = registry.save(&servers) {
            warn!(
                "mcp.json does not list the servers as they are: it cannot be written: {}",
                error.kind()
            );
        }
    }

    pub(super) fn find(&self, name: &str) -> Result<ManagedServer, RegistrationError> {
        let unknown = || RegistrationError::UnknownServer(name.chars().take(70).collect());
        let name = ServerName::parse(name).map_err(|_| unknown())?;
        self.lock().get(&name).cloned().ok_or_else(unknown)
    }

    fn view(&self, entry: ManagedServer) -> ServerView {
        let seed = self.seeds.get(entry.server.name.as_str());
        ServerView {
            differs_from_config: seed.map(|seed| seed.differs_from(&entry.server)),
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
