//! The servers that are registered: one place that changes them.

mod judge;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{FutureExt as _, future::join_all};
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{
    connection::{Settings, spawn},
    draft::Draft,
    lifecycle::State,
    registry::Registry,
    row::{read, row},
    server::{Invalid, Origin, Rules, Server, ServerName, Transport},
    shared::{Handle, Status},
};
use crate::{
    clock,
    store::{self, Store},
    tool::Waker,
};

/// Registers, connects and removes servers.
#[derive(Debug)]
pub struct Manager {
    store: Store,
    pub(super) rules: Rules,
    pub(super) settings: Settings,
    max_servers: usize,
    servers: Mutex<BTreeMap<ServerName, Entry>>,
    /// What `maru.yaml` says.
    seeds: BTreeMap<String, Draft>,
    /// One change at a time; the file changes with it.
    registry: tokio::sync::Mutex<Registry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    server: Server,
    pub(super) handle: Handle,
}

/// A server and how it is.
#[derive(Clone, Debug)]
pub struct View {
    /// As registered.
    pub server: Server,
    /// As it is now.
    pub status: Status,
    /// Whether `maru.yaml` describes it otherwise; `None` if it does not.
    pub differs: Option<bool>,
}

/// A change that was not made.
#[derive(Debug, Error)]
pub enum Unchanged {
    /// The description is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The name is in use.
    #[error("a server named {0} is registered already")]
    Taken(ServerName),
    /// There is no such server.
    #[error("no server is named {0:?}")]
    Unknown(String),
    /// There are too many.
    #[error("there are {0} servers, as many as mcp.security.max-servers allows")]
    Full(usize),
    /// Nothing of that name waits.
    #[error("no tool of that name waits to be accepted")]
    NothingToAccept,
    /// It is a program, and requests come from other machines.
    #[error(
        "programs are not registered over HTTP while maru serves other machines; put it into maru.yaml, or set allow_stdio_over_http: true"
    )]
    Programs,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// `mcp.json` could not be written.
    #[error("cannot write mcp.json: {0}")]
    File(String),
}

/// What the manager starts with.
#[derive(Debug)]
pub struct Start<'a> {
    /// Where servers are kept.
    pub store: Store,
    /// What they are checked against.
    pub rules: Rules,
    /// How they are connected.
    pub settings: Settings,
    /// How many there may be.
    pub max_servers: usize,
    /// The servers of `maru.yaml`.
    pub seeds: Vec<Draft>,
    /// `mcp.json`.
    pub registry: &'a Path,
}

impl Manager {
    /// Reads the store, seeds it from the files, and begins to connect.
    pub async fn start(start: Start<'_>) -> anyhow::Result<Arc<Self>> {
        let (registry, (listed, refused)) =
            Registry::load(start.registry).map_err(anyhow::Error::msg)?;
        for (entry, why) in refused {
            warn!("{} {entry} is not used: {why}", start.registry.display());
        }
        let manager = Arc::new(Self {
            store: start.store,
            rules: start.rules,
            settings: start.settings,
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
            match read(row) {
                Ok(server) => manager.put(server),
                Err(why) => warn!("the stored server {name} is not used: {why}"),
            }
        }
        for (at, draft) in start.seeds.into_iter().enumerate() {
            let seeded = manager.seed(&draft, Origin::File).await;
            seeded.map_err(|why| anyhow::anyhow!("mcp.servers.{at} ({}): {why}", draft.name))?;
        }
        manager.load(listed).await?;
        manager.connect_all();
        let woken = Arc::downgrade(&manager);
        let waker = move |name: String| {
            let manager = woken.upgrade();
            async move {
                match manager {
                    Some(manager) => manager.wake(&name).await,
                    None => false,
                }
            }
            .boxed()
        };
        manager.settings.catalog().set_waker(Waker(Box::new(waker)));
        Ok(manager)
    }

    /// Connects a server whose tool is called while it is closed or has failed.
    async fn wake(&self, name: &str) -> bool {
        let Ok(entry) = self.find(name) else {
            return false;
        };
        match entry.handle.status().state {
            State::Disconnected | State::Failed | State::Waiting { .. } => {
                entry.handle.connect().await
            }
            _ => false,
        }
    }

    /// Servers of `mcp.json`: new ones are registered, and those that came from
    /// there follow its address.
    async fn load(&self, listed: Vec<Draft>) -> Result<(), Unchanged> {
        for draft in listed {
            let known = self.find(&draft.name).ok();
            let moved = known
                .as_ref()
                .is_some_and(|it| it.server.transport.url() != draft.config["url"].as_str());
            let done = match &known {
                Some(it) if moved && it.server.origin == Origin::Import => {
                    self.change(&draft.name, &draft).await.map(drop)
                }
                Some(_) => Ok(()),
                None => self.seed(&draft, Origin::Import).await,
            };
            match done {
                Err(why @ (Unchanged::Invalid(_) | Unchanged::Full(_))) => {
                    warn!("the entry {:?} of mcp.json is not used: {why}", draft.name);
                    self.registry.lock().await.refuse(&draft);
                }
                done => done?,
            }
        }
        let registry = self.registry.lock().await;
        self.save(&registry)
    }

    fn connect_all(&self) {
        info!(count = self.lock().len(), "servers are registered");
        self.to_connect().iter().for_each(Handle::connect_soon);
    }

    /// Waits for the first attempt at every server that is to be connected.
    pub async fn settled(&self) {
        join_all(self.to_connect().iter().map(Handle::connect)).await;
    }

    fn to_connect(&self) -> Vec<Handle> {
        let servers = self.lock();
        let wanted = servers
            .values()
            .filter(|it| it.server.auto_connect && it.server.enabled);
        wanted.map(|it| it.handle.clone()).collect()
    }

    /// Every server, by name.
    pub fn list(&self) -> Vec<View> {
        let servers: Vec<Entry> = self.lock().values().cloned().collect();
        servers.into_iter().map(|it| self.view(it)).collect()
    }

    /// One server.
    pub fn get(&self, name: &str) -> Result<View, Unchanged> {
        self.find(name).map(|entry| self.view(entry))
    }

    /// Registers a server, and connects it if it wants that.
    pub async fn register(
        self: &Arc<Self>,
        draft: &Draft,
        origin: Origin,
    ) -> Result<View, Unchanged> {
        self.check_programs(draft, None)?;
        let (manager, added) = (Arc::clone(self), draft.clone());
        self.finish(async move {
            let registry = manager.registry.lock().await;
            manager.add(&added, origin).await?;
            manager.save(&registry)
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
    pub async fn update(self: &Arc<Self>, name: &str, draft: &Draft) -> Result<View, Unchanged> {
        self.check_programs(draft, Some(&self.find(name)?.server.transport))?;
        let (manager, changed, draft) = (Arc::clone(self), name.to_owned(), draft.clone());
        let reconnect = self
            .finish(async move {
                let registry = manager.registry.lock().await;
                let reconnect = manager.change(&changed, &draft).await?;
                manager.save(&registry)?;
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
    pub async fn remove(self: &Arc<Self>, name: &str) -> Result<(), Unchanged> {
        let (manager, name) = (Arc::clone(self), name.to_owned());
        let entry = self
            .finish(async move {
                let registry = manager.registry.lock().await;
                let entry = manager.find(&name)?;
                // The file first: left over there, the server would come back.
                let others = manager.addresses(Some(&entry.server.name));
                save(&registry, &others)?;
                manager.store.delete_server(&name).await?;
                manager.settings.pins().forget(&name).await?;
                manager.lock().remove(&entry.server.name);
                manager.settings.changes().send_replace(());
                Ok(entry)
            })
            .await?;
        entry.handle.end().await;
        Ok(())
    }

    /// Connects a server; how that went is in its status.
    pub async fn connect(&self, name: &str) -> Result<View, Unchanged> {
        let entry = self.find(name)?;
        entry.handle.connect().await;
        Ok(self.view(entry))
    }

    /// Closes the connection to a server, which stays registered.
    pub async fn disconnect(&self, name: &str) -> Result<View, Unchanged> {
        let entry = self.find(name)?;
        entry.handle.disconnect().await;
        Ok(self.view(entry))
    }

    /// Switches a server on or off.
    pub async fn set_enabled(
        self: &Arc<Self>,
        name: &str,
        enabled: bool,
    ) -> Result<View, Unchanged> {
        let (manager, name) = (Arc::clone(self), name.to_owned());
        let entry = self
            .finish(async move {
                let _one_change_at_a_time = manager.registry.lock().await;
                let mut entry = manager.find(&name)?;
                entry.server.enabled = enabled;
                entry.server.updated_at = clock::now();
                manager.store.update_server(&row(&entry.server)).await?;
                let key = entry.server.name.clone();
                manager.lock().insert(key, entry.clone());
                manager.settings.changes().send_replace(());
                match enabled {
                    true => entry.handle.enable().await,
                    false => entry.handle.disable().await,
                }
                Ok(entry)
            })
            .await?;
        if enabled && entry.server.auto_connect {
            entry.handle.connect().await;
        }
        Ok(self.view(entry))
    }

    /// Does all of a change, even when whoever asked for it has left.
    pub(super) async fn finish<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Unchanged>> + Send + 'static,
    ) -> Result<T, Unchanged> {
        let (tell, told) = oneshot::channel();
        self.settings.tasks().spawn(async move {
            // Nobody may be there to hear it.
            let _ = tell.send(change.await);
        });
        told.await.expect("the change tells how it ended")
    }

    async fn seed(&self, draft: &Draft, origin: Origin) -> Result<(), Unchanged> {
        match self.add(draft, origin).await {
            // The store may have been changed since; it is right.
            Err(Unchanged::Taken(_)) => Ok(()),
            done => done,
        }
    }

    async fn add(&self, draft: &Draft, origin: Origin) -> Result<(), Unchanged> {
        let name = self.rules.name(&draft.name)?;
        if self.lock().contains_key(&name) {
            return Err(Unchanged::Taken(name));
        }
        let transport = self.rules.transport(&draft.kind, &draft.config, None)?;
        let count = self.lock().len();
        if count >= self.max_servers {
            return Err(Unchanged::Full(count));
        }
        let server = Server {
            id: uuid::Uuid::new_v4().to_string(),
            name,
            description: short(draft.description.as_ref(), "description", 500)?,
            transport,
            version: short(draft.version.as_ref(), "version", 50)?,
            auto_connect: draft.auto_connect,
            enabled: true,
            origin,
            trust: draft.trust.unwrap_or_default(),
            created_at: clock::now(),
            updated_at: clock::now(),
        };
        match self.store.insert_server(&row(&server)).await? {
            true => self.put(server),
            false => return Err(Unchanged::Taken(server.name)),
        }
        Ok(())
    }

    /// True when the connection has to be made anew.
    async fn change(&self, name: &str, draft: &Draft) -> Result<bool, Unchanged> {
        let before = self.find(name)?;
        if draft.name != name {
            let why = "a server keeps its name; remove it and register it anew".to_owned();
            return Err(Unchanged::Invalid(Invalid {
                field: "name".to_owned(),
                why,
            }));
        }
        let transport =
            self.rules
                .transport(&draft.kind, &draft.config, Some(&before.server.transport))?;
        let server = Server {
            description: short(draft.description.as_ref(), "description", 500)?,
            version: short(draft.version.as_ref(), "version", 50)?,
            auto_connect: draft.auto_connect,
            updated_at: clock::now(),
            trust: draft.trust.unwrap_or(before.server.trust),
            transport,
            ..before.server.clone()
        };
        if !self.store.update_server(&row(&server)).await? {
            return Err(Unchanged::Unknown(name.to_owned()));
        }
        let same = server.transport == before.server.transport;
        if same && server.trust == before.server.trust {
            let handle = before.handle;
            self.lock()
                .insert(server.name.clone(), Entry { server, handle });
            self.settings.changes().send_replace(());
            return Ok(false);
        }
        before.handle.end().await;
        let connect = server.enabled && server.auto_connect;
        self.put(server);
        Ok(connect)
    }

    fn put(&self, server: Server) {
        let handle = spawn(server.clone(), &self.settings);
        self.lock()
            .insert(server.name.clone(), Entry { server, handle });
        self.settings.changes().send_replace(());
    }

    fn save(&self, registry: &Registry) -> Result<(), Unchanged> {
        save(registry, &self.addresses(None))
    }

    fn addresses(&self, without: Option<&ServerName>) -> Vec<(ServerName, Option<String>)> {
        let servers = self.lock();
        let kept = servers
            .values()
            .filter(|it| Some(&it.server.name) != without);
        kept.map(|it| {
            (
                it.server.name.clone(),
                it.server.transport.url().map(str::to_owned),
            )
        })
        .collect()
    }

    pub(super) fn find(&self, name: &str) -> Result<Entry, Unchanged> {
        let shown = || Unchanged::Unknown(name.chars().take(70).collect());
        let name = ServerName::parse(name).map_err(|_| shown())?;
        self.lock().get(&name).cloned().ok_or_else(shown)
    }

    fn view(&self, entry: Entry) -> View {
        let seed = self.seeds.get(entry.server.name.as_str());
        View {
            differs: seed.map(|seed| differs(seed, &entry.server)),
            status: entry.handle.status(),
            server: entry.server,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServerName, Entry>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn save(registry: &Registry, servers: &[(ServerName, Option<String>)]) -> Result<(), Unchanged> {
    let entries = servers
        .iter()
        .map(|(name, url)| (name.as_str(), url.as_deref()));
    registry
        .save(entries)
        .map_err(|error| Unchanged::File(error.kind().to_string()))
}

fn differs(seed: &Draft, server: &Server) -> bool {
    let transport = Transport::read(&seed.kind, &seed.config, None);
    transport.as_ref() != Ok(&server.transport)
        || seed.description != server.description
        || seed.auto_connect != server.auto_connect
        || seed.version != server.version
}

fn short(text: Option<&String>, field: &str, limit: usize) -> Result<Option<String>, Invalid> {
    match text {
        Some(text) if text.chars().count() > limit => {
            let why = format!("may have {limit} characters at most");
            Err(Invalid {
                field: field.to_owned(),
                why,
            })
        }
        text => Ok(text.cloned()),
    }
}
