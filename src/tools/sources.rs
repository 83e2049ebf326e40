//! The databases that tools read: those of the settings, those that were added while
//! the hub runs, and the sample.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use maru_http::AddressPolicy;
use maru_runtime::{MASK, clock, mask_secrets, tasks::Tasks};
use maru_sources::{DataSource, QueryObserver};
use maru_store::{SourceRow, Store};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::Mutex;
use tracing::warn;

use super::{
    builtin::{self, DataContext},
    custom::CustomTools,
    entry::CatalogEntry,
    input_schema::InputSchema,
};
use crate::config::SourceDefinition;

/// Adds, changes and removes sources, and rebuilds the tools that read them.
#[derive(Debug)]
pub struct SourceManager {
    options: SourceOptions,
    schema: Value,
    state: Mutex<SourceState>,
    context: RwLock<DataContext>,
    custom_tools: OnceLock<Arc<CustomTools>>,
}

/// What the manager is built from.
#[derive(Debug)]
pub struct SourceOptions {
    /// Keeps the added sources.
    pub store: Store,
    /// Ends with the hub.
    pub tasks: Tasks,
    /// Opens a source from its settings.
    pub open: OpenSource,
    /// Observes the queries of every source.
    pub observer: QueryObserver,
    /// Sources of the settings, in order.
    pub from_settings: Vec<DataSource>,
    /// The sample source and its tools, unless the settings switch them off.
    pub sample: Option<SampleData>,
    /// maru's own tools that read no source.
    pub other_entries: Vec<Arc<CatalogEntry>>,
    /// Embedder, index and collection of the data tools.
    pub context: DataContext,
    /// Which hosts an added source may be at.
    pub address_policy: AddressPolicy,
    /// Whether SQLite files may be added.
    pub allows_files: bool,
    /// The hub's own files, which are no sources.
    pub data_dir: PathBuf,
}

/// Opens a source from its settings.
pub type OpenSource = fn(&SourceDefinition, &Tasks) -> anyhow::Result<DataSource>;

/// The sample database and the tools over it.
#[derive(Debug)]
pub struct SampleData {
    /// The database.
    pub source: DataSource,
    /// Its tools.
    pub entries: Vec<Arc<CatalogEntry>>,
}

/// When the sample tools are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleMode {
    /// While no other source is set up.
    Auto,
    /// Always.
    On,
    /// Never, and the sample source is not there either.
    Off,
}

/// Why a change of the sources was refused.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The settings cannot be used as they are.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// The member of the settings.
        field: Option<&'static str>,
    },
    /// Another source has the name.
    #[error("a source named {0:?} exists already")]
    NameTaken(String),
    /// There is no source of the name.
    #[error("there is no source named {0:?}")]
    UnknownSource(String),
    /// The source belongs to the settings or to maru.
    #[error("the source {0:?} is not changed here; change it in maru.yaml")]
    FromSettings(String),
    /// The store did not write the change.
    #[error("the change was not saved")]
    Store(#[from] maru_store::Error),
}

#[derive(Debug)]
struct SourceState {
    added: BTreeMap<String, AddedSource>,
    sample_mode: SampleMode,
}

/// A source that was added while the hub runs.
#[derive(Debug)]
struct AddedSource {
    definition: Value,
    opened: Result<DataSource, String>,
    /// Ends what the source has running.
    tasks: Tasks,
}

const SAMPLE_SETTING: &str = "sample_data";
/// The name of the sample source.
const SAMPLE_NAME: &str = "sample";
const RESERVED_NAMES: &[&str] = &[SAMPLE_NAME, "test"];
const MAX_SOURCES: usize = 100;

impl SourceManager {
    /// Loads the stored sources. One that cannot be opened is listed with the reason.
    pub async fn load(options: SourceOptions) -> Result<Self, maru_store::Error> {
        let rows = options.store.sources().await?;
        let mode = options.store.hub_setting(SAMPLE_SETTING).await?;
        let mut state = SourceState {
            added: BTreeMap::new(),
            sample_mode: SampleMode::parse(mode.as_deref().unwrap_or_default()),
        };
        for row in rows {
            let definition = serde_json::from_str(&row.definition).unwrap_or_default();
            let source = options.open_added(&row.name, definition);
            if let Err(reason) = &source.opened {
                warn!("the source {:?} cannot be used: {reason}", row.name);
            }
            state.added.insert(row.name, source);
        }
        let context = RwLock::new(options.build_context(&state));
        Ok(Self {
            schema: schemars::schema_for!(SourceDefinition).to_value(),
            state: Mutex::new(state),
            context,
            custom_tools: OnceLock::new(),
            options,
        })
    }

    /// Has the custom tools compiled again whenever the sources change.
    pub fn set_custom_tools(&self, custom_tools: Arc<CustomTools>) {
        // Set once, when everything is built.
        let _ = self.custom_tools.set(custom_tools);
    }

    /// What the data tools work on now.
    pub fn context(&self) -> DataContext {
        let context = self.context.read();
        context.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// maru's own tools for the sources as they are now.
    pub async fn builtin_entries(&self) -> Vec<Arc<CatalogEntry>> {
        let state = self.state.lock().await;
        self.options.build_entries(&state, &self.context())
    }

    /// The JSON Schema of a source's settings.
    pub fn settings_schema(&self) -> &Value {
        &self.schema
    }

    /// Every source with its origin; no address and no password.
    pub async fn list(&self) -> Vec<Value> {
        let state = self.state.lock().await;
        let from_settings = self.options.from_settings.iter();
        let from_settings = from_settings.map(|it| source_json(it, "settings"));
        let added = state.added.iter().map(|(name, it)| match &it.opened {
            Ok(source) => source_json(source, "console"),
            Err(reason) => {
                json!({"name": name, "origin": "console", "enabled": false, "fault": reason, "maxRows": 0, "maxBytes": 0, "timeoutMs": 0})
            }
        });
        let sample = self.options.sample.iter().map(|sample| {
            let mut shown = source_json(&sample.source, SAMPLE_NAME);
            shown["enabled"] = (state.sample_mode != SampleMode::Off).into();
            shown["mode"] = state.sample_mode.as_str().into();
            shown["toolsEnabled"] = self.options.offers_sample_tools(&state).into();
            shown
        });
        from_settings.chain(added).chain(sample).collect()
    }

    /// The settings of an added source, secrets masked.
    pub async fn show(&self, name: &str) -> Result<Value, SourceError> {
        let state = self.state.lock().await;
        let Some(source) = state.added.get(name) else {
            return Err(self.options.not_added(name));
        };
        let mut shown = source.definition.clone();
        shown["url"] = mask_secrets(shown["url"].as_str().unwrap_or_default()).into();
        Ok(shown)
    }

    /// Adds a source and makes it available at once.
    pub async fn add(&self, definition: &Value) -> Result<Value, SourceError> {
        let mut state = self.state.lock().await;
        let name = definition["name"].as_str().unwrap_or_default().to_owned();
        self.check_definition(definition)?;
        if self.options.is_fixed(&name) || state.added.contains_key(&name) {
            return Err(SourceError::NameTaken(name));
        }
        if state.added.len() >= MAX_SOURCES {
            return Err(invalid(
                "name",
                format!("there are {MAX_SOURCES} sources already"),
            ));
        }
        self.save(&mut state, &name, definition.clone()).await
    }

    /// Changes an added source. An address whose password is masked keeps its password.
    pub async fn update(&self, name: &str, definition: &Value) -> Result<Value, SourceError> {
        let mut state = self.state.lock().await;
        let definition = self.with_known_secret(&state, name, definition)?;
        self.check_definition(&definition)?;
        self.save(&mut state, name, definition).await
    }

    /// Removes an added source; the database itself is not touched.
    pub async fn remove(&self, name: &str) -> Result<(), SourceError> {
        let mut state = self.state.lock().await;
        if !state.added.contains_key(name) {
            return Err(self.options.not_added(name));
        }
        self.options.store.delete_source(name).await?;
        if let Some(source) = state.added.remove(name) {
            source.tasks.request_stop();
        }
        self.apply(&state).await;
        Ok(())
    }

    /// Says when the sample tools are available.
    pub async fn set_sample_mode(&self, mode: SampleMode) -> Result<(), SourceError> {
        let mut state = self.state.lock().await;
        if self.options.sample.is_none() {
            return Err(SourceError::FromSettings(SAMPLE_NAME.to_owned()));
        }
        let store = &self.options.store;
        store.put_hub_setting(SAMPLE_SETTING, mode.as_str()).await?;
        state.sample_mode = mode;
        self.apply(&state).await;
        Ok(())
    }

    /// Connects with settings that need not be saved; the number of tables that can be
    /// read.
    pub async fn test(&self, definition: &Value) -> Result<usize, SourceError> {
        let name = definition["name"].as_str().unwrap_or_default();
        let definition = {
            let state = self.state.lock().await;
            if state.added.contains_key(name) {
                self.with_known_secret(&state, name, definition)?
            } else {
                definition.clone()
            }
        };
        self.check_definition(&definition)?;
        let source = self.options.open_added(name, definition);
        let tables = match &source.opened {
            Ok(source) => source.tables().await.map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        };
        source.tasks.request_stop();
        tables
            .map(|it| it.len())
            .map_err(|message| SourceError::Invalid {
                message,
                field: None,
            })
    }

    async fn save(
        &self,
        state: &mut SourceState,
        name: &str,
        definition: Value,
    ) -> Result<Value, SourceError> {
        let source = self.options.open_added(name, definition);
        let opened = match &source.opened {
            Ok(opened) => opened.clone(),
            Err(reason) => return Err(invalid("url", reason.clone())),
        };
        let row = SourceRow {
            name: name.to_owned(),
            definition: source.definition.to_string(),
            updated_at: clock::now_ms(),
        };
        self.options.store.put_source(&row).await?;
        if let Some(before) = state.added.insert(name.to_owned(), source) {
            before.tasks.request_stop();
        }
        self.apply(state).await;
        Ok(source_json(&opened, "console"))
    }

    /// Makes the sources of `state` those that tools read.
    async fn apply(&self, state: &SourceState) {
        let context = self.options.build_context(state);
        let entries = self.options.build_entries(state, &context);
        let sources = Arc::clone(&context.sources);
        {
            let mut current = self.context.write().unwrap_or_else(PoisonError::into_inner);
            *current = context;
        }
        if let Some(custom_tools) = self.custom_tools.get() {
            custom_tools.replace_sources(entries, sources).await;
        }
    }

    fn with_known_secret(
        &self,
        state: &SourceState,
        name: &str,
        definition: &Value,
    ) -> Result<Value, SourceError> {
        let Some(before) = state.added.get(name) else {
            return Err(self.options.not_added(name));
        };
        let mut definition = definition.clone();
        definition["name"] = name.into();
        let known = before.definition["url"].as_str().unwrap_or_default();
        let given = definition["url"].as_str().unwrap_or_default();
        if given.is_empty() || given == mask_secrets(known) {
            definition["url"] = known.into();
        }
        Ok(definition)
    }

    fn check_definition(&self, definition: &Value) -> Result<(), SourceError> {
        if let Some(schema) = InputSchema::new("source", &self.schema) {
            schema
                .validate(definition)
                .map_err(|message| SourceError::Invalid {
                    message,
                    field: None,
                })?;
        }
        let name = definition["name"].as_str().unwrap_or_default();
        check_name(name)?;
        self.options
            .check_address(definition["url"].as_str().unwrap_or_default())
            .map_err(|message| invalid("url", message))
    }
}

impl SourceOptions {
    fn open_added(&self, name: &str, definition: Value) -> AddedSource {
        let tasks = Tasks::default();
        let (own, hub_stop) = (tasks.clone(), self.tasks.stop_token());
        self.tasks.spawn(async move {
            let source_stop = own.stop_token();
            tokio::select! {
                () = hub_stop.cancelled() => (),
                () = source_stop.cancelled() => (),
            }
            own.shutdown().await;
        });
        let mut named = definition.clone();
        named["name"] = name.into();
        let parsed = serde_json::from_value::<SourceDefinition>(named);
        let opened = match parsed {
            Ok(parsed) => (self.open)(&parsed, &tasks)
                .map(|it| it.with_observer(self.observer.clone()))
                .map_err(|error| format!("{error:#}")),
            Err(_) if maru_store::is_sealed(definition.as_str().unwrap_or_default()) => {
                Err("its settings are sealed with another key".to_owned())
            }
            Err(_) => Err("its settings cannot be read".to_owned()),
        };
        AddedSource {
            definition,
            opened,
            tasks,
        }
    }

    fn build_context(&self, state: &SourceState) -> DataContext {
        let added = state
            .added
            .values()
            .filter_map(|it| it.opened.as_ref().ok());
        let sample = self.sample.iter().map(|it| &it.source);
        let sample = sample.filter(|_| state.sample_mode != SampleMode::Off);
        let sources = self.from_settings.iter().chain(added).chain(sample);
        DataContext {
            sources: sources.cloned().collect(),
            ..self.context.clone()
        }
    }

    fn build_entries(&self, state: &SourceState, context: &DataContext) -> Vec<Arc<CatalogEntry>> {
        let mut entries = self.other_entries.clone();
        if let Some(sample) = self
            .sample
            .as_ref()
            .filter(|_| self.offers_sample_tools(state))
        {
            entries.extend(sample.entries.iter().cloned());
        }
        entries.extend(builtin::data(context));
        entries
    }

    fn offers_sample_tools(&self, state: &SourceState) -> bool {
        self.sample.is_some()
            && match state.sample_mode {
                SampleMode::On => true,
                SampleMode::Off => false,
                SampleMode::Auto => self.from_settings.is_empty() && state.added.is_empty(),
            }
    }

    fn is_fixed(&self, name: &str) -> bool {
        self.from_settings.iter().any(|it| it.name() == name)
    }

    fn not_added(&self, name: &str) -> SourceError {
        if self.is_fixed(name) || name == SAMPLE_NAME {
            SourceError::FromSettings(name.to_owned())
        } else {
            SourceError::UnknownSource(name.chars().take(100).collect())
        }
    }

    /// Refuses what an admin over HTTP may not reach: the hub's own files, files at all
    /// where other machines reach the hub, and hosts that the settings do not list.
    fn check_address(&self, url: &str) -> Result<(), String> {
        if url.contains(MASK) {
            return Err("type the password: a masked one was given".to_owned());
        }
        let is_postgres = url.starts_with("postgres://") || url.starts_with("postgresql://");
        if !is_postgres {
            return self.check_file(Path::new(url.trim_start_matches("sqlite://")));
        }
        for host in postgres_hosts(url)? {
            let host = match host.parse::<IpAddr>() {
                Ok(IpAddr::V6(address)) => format!("[{address}]"),
                _ => host,
            };
            // The policy knows hosts of HTTP; the port of the database is no concern of it.
            let probe = format!("http://{host}:80/");
            self.address_policy.authorize(&probe).map_err(|error| {
                error.to_string().replace(
                    &format!("the address {probe:?}"),
                    &format!("the host {host:?}"),
                )
            })?;
        }
        Ok(())
    }

    fn check_file(&self, path: &Path) -> Result<(), String> {
        if !self.allows_files {
            return Err(
                "files are added in maru.yaml where other machines reach this hub".to_owned(),
            );
        }
        let real = path
            .canonicalize()
            .map_err(|_| "there is no such file".to_owned())?;
        let own = self.data_dir.canonicalize();
        if own.is_ok_and(|own| real.starts_with(own)) {
            return Err("the hub's own files are no source".to_owned());
        }
        Ok(())
    }
}

impl SampleMode {
    /// The mode of this name; anything else is `Auto`.
    pub fn parse(name: &str) -> Self {
        match name {
            "on" => Self::On,
            "off" => Self::Off,
            _ => Self::Auto,
        }
    }

    /// Its name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The hosts of a PostgreSQL address, by the rules that the driver reads it with.
fn postgres_hosts(url: &str) -> Result<Vec<String>, String> {
    let address = maru_postgres::PostgresAddress::parse(url).map_err(|error| error.to_string())?;
    let hosts = address.hosts();
    if hosts.iter().any(|it| it.starts_with('/')) {
        return Err("sockets of this machine are set in maru.yaml".to_owned());
    }
    Ok(hosts)
}

fn check_name(name: &str) -> Result<(), SourceError> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic());
    if !begins || name.len() > 64 || !name.chars().all(plain) {
        let message = "a name begins with a letter and has at most 64 of a-z, A-Z, 0-9, - and _";
        return Err(invalid("name", message.to_owned()));
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(invalid("name", format!("the name {name} is reserved")));
    }
    Ok(())
}

fn invalid(field: &'static str, message: String) -> SourceError {
    SourceError::Invalid {
        message,
        field: Some(field),
    }
}

fn source_json(source: &DataSource, origin: &str) -> Value {
    let limits = source.limits();
    json!({
        "name": source.name(),
        "kind": source.system_name(),
        "origin": origin,
        "enabled": true,
        "fault": null,
        "maxRows": limits.rows,
        "maxBytes": limits.max_bytes,
        "timeoutMs": limits.timeout.as_millis(),
    })
}
