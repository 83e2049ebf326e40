//! The databases that tools read: those of the settings, those that were added while the
//! hub runs, and the sample database.

mod options;
mod preview;

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use maru_http::AddressPolicy;
use maru_postgres::PostgresConnectError;
use maru_runtime::{clock, mask_secrets};
use maru_sources::DataSource;
use maru_store::SourceRow;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::Mutex;
use tracing::warn;

use super::{
    builtin::DataContext, custom::CustomTools, entry::CatalogEntry, input_schema::InputSchema,
};
use maru_config::SourceDefinition;
use options::SourceState;

pub use options::{OpenSource, SampleData, SampleMode, SourceOptions};
pub use preview::SourcePreview;

/// Adds, changes and removes sources, and rebuilds the tools that read them.
#[derive(Debug)]
pub struct SourceManager {
    options: SourceOptions,
    schema: Value,
    state: Mutex<SourceState>,
    context: RwLock<DataContext>,
    custom_tools: OnceLock<Arc<CustomTools>>,
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
    /// No source has the name.
    #[error("there is no source named {0:?}")]
    UnknownSource(String),
    /// The source belongs to the settings or to maru.
    #[error("the source {0:?} is not changed here; change it in maru.yaml")]
    FromSettings(String),
    /// The store did not write the change.
    #[error("the change was not saved")]
    Store(#[from] maru_store::Error),
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

    /// Loads the added sources again, because another hub may have changed them.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let store = &self.options.store;
        let mut state = self.state.lock().await;
        let rows = store.sources().await?;
        let mode = store.hub_setting(SAMPLE_SETTING).await?;
        let mode = SampleMode::parse(mode.as_deref().unwrap_or_default());
        let mut before = mem::take(&mut state.added);
        let mut differs = mem::replace(&mut state.sample_mode, mode) != mode;
        for row in rows {
            let definition: Value = serde_json::from_str(&row.definition).unwrap_or_default();
            let known = before.remove(&row.name);
            let source = match known {
                Some(known) if known.definition == definition => known,
                changed => {
                    differs = true;
                    if let Some(known) = changed {
                        known.tasks.request_stop();
                    }
                    self.options.open_added(&row.name, definition)
                }
            };
            state.added.insert(row.name, source);
        }
        for removed in before.values() {
            differs = true;
            removed.tasks.request_stop();
        }
        if differs {
            self.apply(&state).await;
        }
        Ok(())
    }

    /// Compiles these custom tools again whenever the sources change.
    pub fn set_custom_tools(&self, custom_tools: Arc<CustomTools>) {
        // Set once, when everything is built.
        let _ = self.custom_tools.set(custom_tools);
    }

    /// What the data tools use now.
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

    /// Every source with its origin, without address and password.
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
        self.check_definition(definition, &self.options.address_policy)?;
        self.check_new_name(&name, state.added.keys())?;
        self.save(&mut state, &name, definition.clone()).await
    }

    /// Changes an added source. An address whose password is masked keeps its password.
    pub async fn update(&self, name: &str, definition: &Value) -> Result<Value, SourceError> {
        let mut state = self.state.lock().await;
        let definition = self.with_known_secret(&state, name, definition)?;
        self.check_definition(&definition, &self.options.address_policy)?;
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

    /// Sets when the sample tools are available.
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

    /// Connects with settings without saving them; returns the number of readable tables.
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
        self.check_definition(&definition, &self.options.address_policy)?;
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

    /// Rebuilds the tools for the sources of `state`.
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
        if !definition.is_object() {
            return Err(SourceError::Invalid {
                message: "a source is a JSON object".to_owned(),
                field: None,
            });
        }
        definition["name"] = name.into();
        let known = before.definition["url"].as_str().unwrap_or_default();
        let given = definition["url"].as_str().unwrap_or_default();
        if given.is_empty() || given == mask_secrets(known) {
            definition["url"] = known.into();
        }
        Ok(definition)
    }

    /// Refuses a name that is taken, and a source above the limit.
    fn check_new_name<'a>(
        &self,
        name: &str,
        mut added: impl ExactSizeIterator<Item = &'a String>,
    ) -> Result<(), SourceError> {
        if added.len() >= MAX_SOURCES {
            let message = format!("there are {MAX_SOURCES} sources already");
            return Err(invalid("name", message));
        }
        if self.options.is_fixed(name) || added.any(|it| it == name) {
            return Err(SourceError::NameTaken(name.to_owned()));
        }
        Ok(())
    }

    fn check_definition(
        &self,
        definition: &Value,
        policy: &AddressPolicy,
    ) -> Result<(), SourceError> {
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
            .check_address(definition["url"].as_str().unwrap_or_default(), policy)
            .map_err(|message| invalid("url", message))
    }
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
    let error = source.connect_error();
    json!({
        "name": source.name(),
        "kind": source.system_name(),
        "origin": origin,
        "enabled": true,
        "fault": error.as_ref().map(ToString::to_string),
        "faultCode": error.as_ref().map(PostgresConnectError::code),
        "maxRows": limits.rows,
        "maxBytes": limits.max_bytes,
        "timeoutMs": limits.timeout.as_millis(),
    })
}
