//! Models that are added, changed, tested and removed while the hub runs, beside those of
//! the settings.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use maru_config::{MASK, ModelDefinition, parse_model_definition};
use maru_http::{AddressPolicy, ClientTls};
use maru_observability::metrics::ModelMetrics;
use maru_runtime::clock;
use maru_store::{ModelRow, Store};
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use super::{
    ChatMessage, ChatRequest, ChatRole, Error, Gateway, ModelOrigin, ReloadableGateway,
    UsageLedger, model_entry::ModelEntry,
};

/// The most models that can be added.
const MAX_ADDED_MODELS: usize = 200;
/// How long a test may take: a local server loads the model first.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);
/// The most tokens of the answer to a test.
const TEST_TOKENS: u32 = 64;
/// How many of a backend's models a test shows.
const MAX_SHOWN_MODELS: usize = 50;

/// Builds the gateway from the settings and the added models.
#[derive(Debug)]
pub struct ModelManager {
    store: Store,
    metrics: ModelMetrics,
    usage: Arc<UsageLedger>,
    gateway: Arc<ReloadableGateway>,
    state: Mutex<ModelState>,
}

/// The settings of models.
#[derive(Clone, Debug)]
pub struct ModelSettings {
    /// `models`.
    pub models: Vec<ModelDefinition>,
    /// The Ollama that is used where nothing is configured.
    pub ollama: String,
    /// Which addresses may be reached.
    pub policy: AddressPolicy,
}

#[derive(Debug)]
struct ModelState {
    settings: ModelSettings,
    added: BTreeMap<String, AddedModel>,
}

#[derive(Debug)]
struct AddedModel {
    /// Its settings with the key.
    definition: Value,
    /// Or why it cannot be used.
    parsed: Result<ModelDefinition, String>,
}

/// What a model answered.
#[derive(Clone, Debug)]
pub struct ModelTest {
    /// The name that was asked for.
    pub model: String,
    /// What the model wrote.
    pub text: String,
    /// How long it took.
    pub duration: Duration,
    /// Names of models that the entry serves.
    pub models: Vec<String>,
}

/// Why the models could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadModelsError {
    /// The settings cannot be used.
    #[error(transparent)]
    Settings(#[from] Error),
    /// The store did not answer.
    #[error("failed to load the added models")]
    Store(#[from] maru_store::Error),
}

/// Why a change of the models, or a test, was refused.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The settings cannot be used as they are.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// The member of the settings.
        field: Option<&'static str>,
    },
    /// Another model has the name.
    #[error("a model named {0:?} exists already")]
    NameTaken(String),
    /// No added model has the name.
    #[error("there is no model named {0:?}")]
    UnknownModel(String),
    /// The model belongs to the settings.
    #[error("the model {0:?} is not changed here; change it in maru.yaml")]
    FromSettings(String),
    /// The model did not answer.
    #[error("{0}")]
    Failed(String),
    /// The store did not write the change.
    #[error("the change was not saved")]
    Store(#[from] maru_store::Error),
}

impl ModelManager {
    /// Opens the models of the settings and the stored ones. A stored one that cannot be
    /// used is listed with the reason.
    pub async fn load(
        store: Store,
        settings: ModelSettings,
        metrics: &ModelMetrics,
        usage: &Arc<UsageLedger>,
    ) -> Result<Self, LoadModelsError> {
        let added = load_added(&store, &settings).await?;
        let state = ModelState { settings, added };
        let gateway = open_gateway(&state, metrics, usage)?;
        Ok(Self {
            store,
            metrics: metrics.clone(),
            usage: Arc::clone(usage),
            gateway: Arc::new(ReloadableGateway::new(gateway)),
            state: Mutex::new(state),
        })
    }

    /// The gateway in use.
    pub fn gateway(&self) -> &Arc<ReloadableGateway> {
        &self.gateway
    }

    /// Replaces the settings. An error leaves everything as it was.
    pub async fn configure(&self, settings: ModelSettings) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let before = std::mem::replace(&mut state.settings, settings);
        let opened = self.apply(&state);
        if opened.is_err() {
            state.settings = before;
        }
        opened
    }

    /// Loads the added models again, because another hub may have changed them.
    pub async fn reload(&self) -> Result<(), LoadModelsError> {
        let mut state = self.state.lock().await;
        state.added = load_added(&self.store, &state.settings).await?;
        Ok(self.apply(&state)?)
    }

    /// Added models that cannot be used, each with the reason.
    pub async fn faults(&self) -> Vec<(String, String)> {
        let state = self.state.lock().await;
        let faults = state.added.iter().filter_map(|(name, it)| {
            let reason = it.parsed.as_ref().err()?;
            Some((name.clone(), reason.clone()))
        });
        faults.collect()
    }

    /// The settings of the added models, keys masked.
    pub async fn list(&self) -> Vec<Value> {
        let state = self.state.lock().await;
        state.added.values().map(AddedModel::masked).collect()
    }

    /// The settings of an added model, its key masked.
    pub async fn show(&self, name: &str) -> Result<Value, ModelError> {
        let state = self.state.lock().await;
        let model = state.added.get(name);
        model
            .map(AddedModel::masked)
            .ok_or_else(|| state.not_added(name))
    }

    /// Adds a model; it can be used at once.
    pub async fn add(&self, definition: &Value) -> Result<Value, ModelError> {
        let mut state = self.state.lock().await;
        let model = AddedModel::check(definition.clone(), &state.settings)?;
        let name = model.name();
        if state.added.contains_key(&name) || state.is_configured(&name) {
            return Err(ModelError::NameTaken(name));
        }
        if state.added.len() >= MAX_ADDED_MODELS {
            let message = format!("there are {MAX_ADDED_MODELS} added models already");
            return Err(invalid("name", message));
        }
        self.save(&mut state, name, model).await
    }

    /// Changes an added model. A masked key stays what it is.
    pub async fn update(&self, name: &str, definition: &Value) -> Result<Value, ModelError> {
        let mut state = self.state.lock().await;
        let Some(before) = state.added.get(name) else {
            return Err(state.not_added(name));
        };
        let mut definition = before.with_known_key(definition)?;
        if let Some(members) = definition.as_object_mut() {
            members.insert("name".to_owned(), name.into());
        }
        let model = AddedModel::check(definition, &state.settings)?;
        self.save(&mut state, name.to_owned(), model).await
    }

    /// Removes an added model. Requests in progress finish.
    pub async fn remove(&self, name: &str) -> Result<(), ModelError> {
        let mut state = self.state.lock().await;
        if !state.added.contains_key(name) {
            return Err(state.not_added(name));
        }
        self.store.delete_model(name).await?;
        state.added.remove(name);
        self.apply_added(&state);
        Ok(())
    }

    /// Checks settings without saving them.
    pub async fn check(&self, definition: &Value) -> Result<(), ModelError> {
        let state = self.state.lock().await;
        state.checked(definition).map(drop)
    }

    /// Sends a short question with settings that need not be saved. Of a family of models,
    /// `model` is asked, or the first that the backend lists.
    pub async fn test(
        &self,
        definition: &Value,
        model: Option<&str>,
    ) -> Result<ModelTest, ModelError> {
        let entry = {
            let state = self.state.lock().await;
            let checked = state.checked(definition)?;
            checked.open(&state.settings)?
        };
        let gateway = Gateway::from_entries(vec![entry], None);
        let started_at = Instant::now();
        let listed = gateway.list_models().await;
        let mut models: Vec<String> = listed.into_iter().map(|it| it.name).collect();
        let Some(asked) = model.map(str::to_owned).or_else(|| models.first().cloned()) else {
            return Err(ModelError::Failed(
                "the backend listed no models; check base_url and api_key, or name a model"
                    .to_owned(),
            ));
        };
        models.truncate(MAX_SHOWN_MODELS);
        let response = gateway.complete_chat(test_request(&asked), TEST_TIMEOUT);
        let response = response
            .await
            .map_err(|error| ModelError::Failed(with_cause(&error)))?;
        Ok(ModelTest {
            model: asked,
            text: response.text,
            duration: started_at.elapsed(),
            models,
        })
    }

    async fn save(
        &self,
        state: &mut ModelState,
        name: String,
        model: AddedModel,
    ) -> Result<Value, ModelError> {
        let row = ModelRow {
            name: name.clone(),
            definition: model.definition.to_string(),
            updated_at: clock::now_ms(),
        };
        self.store.put_model(&row).await?;
        let shown = model.masked();
        state.added.insert(name, model);
        self.apply_added(state);
        Ok(shown)
    }

    /// Applies a change of added models, which cannot make the settings invalid.
    fn apply_added(&self, state: &ModelState) {
        if let Err(error) = self.apply(state) {
            warn!("the changed models cannot be used: {error}");
        }
    }

    fn apply(&self, state: &ModelState) -> Result<(), Error> {
        let gateway = open_gateway(state, &self.metrics, &self.usage)?;
        self.gateway.replace(gateway);
        Ok(())
    }
}

impl ModelSettings {
    /// Says what is wrong with them, if anything.
    pub fn check(&self) -> Result<(), Error> {
        let tls = ClientTls::default();
        Gateway::open_configured(&self.models, &self.ollama, &self.policy, &tls).map(drop)
    }
}

impl ModelState {
    /// The settings of a model that may be added already and then keeps its masked key.
    fn checked(&self, definition: &Value) -> Result<AddedModel, ModelError> {
        let name = definition["name"].as_str().unwrap_or_default();
        let definition = match self.added.get(name) {
            Some(known) => known.with_known_key(definition)?,
            None => definition.clone(),
        };
        AddedModel::check(definition, &self.settings)
    }

    fn is_configured(&self, name: &str) -> bool {
        let mut models = self.settings.models.iter();
        models.any(|it| it.name == name || it.aliases.iter().any(|it| it == name))
    }

    fn not_added(&self, name: &str) -> ModelError {
        if self.is_configured(name) {
            ModelError::FromSettings(name.to_owned())
        } else {
            ModelError::UnknownModel(name.chars().take(200).collect())
        }
    }
}

impl AddedModel {
    /// Checks settings as strictly as those of a file, and their address as the policy says.
    fn check(mut definition: Value, settings: &ModelSettings) -> Result<Self, ModelError> {
        let key = definition["api_key"].as_str().unwrap_or_default();
        if key.contains(MASK) || key.contains("${") {
            let message = "type the key: a placeholder was given";
            return Err(invalid("api_key", message.to_owned()));
        }
        let Some(members) = definition.as_object_mut() else {
            return Err(ModelError::Invalid {
                message: "a model is a JSON object".to_owned(),
                field: None,
            });
        };
        members.retain(|name, it| !(it.is_null() || name == "api_key" && *it == ""));
        let parsed =
            parse_model_definition(&definition).map_err(|message| ModelError::Invalid {
                message,
                field: None,
            })?;
        let model = Self {
            definition,
            parsed: Ok(parsed),
        };
        model.open(settings)?;
        Ok(model)
    }

    fn name(&self) -> String {
        self.definition["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    fn open(&self, settings: &ModelSettings) -> Result<ModelEntry, ModelError> {
        let failed = |message: String| ModelError::Invalid {
            message,
            field: None,
        };
        let parsed = self.parsed.as_ref().map_err(|it| failed(it.clone()))?;
        let tls = ClientTls::default();
        ModelEntry::open(parsed, ModelOrigin::Console, &settings.policy, &tls).map_err(failed)
    }

    /// `definition` with the key of this model where it has a mask or no key. The key goes
    /// to no other address than the one it was typed for.
    fn with_known_key(&self, definition: &Value) -> Result<Value, ModelError> {
        let mut definition = definition.clone();
        let given = &definition["api_key"];
        if !given.is_null() && *given != MASK {
            return Ok(definition);
        }
        let known = self.definition["api_key"].clone();
        let address = |it: &Value| {
            let backend = it["backend"].as_str().unwrap_or("openai").to_owned();
            (backend, it["base_url"].as_str().map(str::to_owned))
        };
        if !known.is_null() && address(&definition) != address(&self.definition) {
            let message = "type the key again: the address changed";
            return Err(invalid("api_key", message.to_owned()));
        }
        if let Some(members) = definition.as_object_mut() {
            members.insert("api_key".to_owned(), known);
        }
        Ok(definition)
    }

    fn masked(&self) -> Value {
        let mut shown = self.definition.clone();
        if shown.get("api_key").is_some() {
            shown["api_key"] = MASK.into();
        }
        shown
    }
}

async fn load_added(
    store: &Store,
    settings: &ModelSettings,
) -> Result<BTreeMap<String, AddedModel>, maru_store::Error> {
    let rows = store.models().await?.into_iter();
    let added = rows.map(|row| {
        let model = read_row(&row, settings);
        if let Err(reason) = &model.parsed {
            warn!("the model {:?} cannot be used: {reason}", row.name);
        }
        (row.name, model)
    });
    Ok(added.collect())
}

fn read_row(row: &ModelRow, settings: &ModelSettings) -> AddedModel {
    let unusable = |reason: String| AddedModel {
        definition: json!({"name": row.name}),
        parsed: Err(reason),
    };
    if maru_store::is_sealed(&row.definition) {
        return unusable("its settings are sealed with another key".to_owned());
    }
    let Ok(definition) = serde_json::from_str::<Value>(&row.definition) else {
        return unusable("its settings cannot be read".to_owned());
    };
    match AddedModel::check(definition.clone(), settings) {
        Ok(model) => model,
        Err(error) => AddedModel {
            definition,
            parsed: Err(error.to_string()),
        },
    }
}

/// Added models with a name of their own come first, so that a `*` of the settings does not
/// hide them; added families of models come last.
fn open_gateway(
    state: &ModelState,
    metrics: &ModelMetrics,
    usage: &Arc<UsageLedger>,
) -> Result<Gateway, Error> {
    let settings = &state.settings;
    let tls = ClientTls::default();
    let added = state.added.values();
    let added = added.filter_map(|it| it.open(settings).ok());
    let (mut families, mut entries): (Vec<_>, Vec<_>) =
        added.partition(|it| it.names.has_wildcard());
    let has_models = !settings.models.is_empty() || !families.is_empty() || !entries.is_empty();
    let configured =
        Gateway::open_configured(&settings.models, &settings.ollama, &settings.policy, &tls)?;
    // The Ollama that nobody named is the last resort.
    if settings.models.is_empty() {
        entries.append(&mut families);
    }
    entries.extend(configured);
    entries.append(&mut families);
    let fallback_url = (!has_models).then(|| settings.ollama.clone());
    let gateway = Gateway::from_entries(entries, fallback_url);
    Ok(gateway.with_metrics(metrics).with_usage(usage))
}

fn test_request(model: &str) -> ChatRequest {
    ChatRequest {
        model: model.to_owned(),
        messages: vec![ChatMessage::text(ChatRole::User, "Say ok.")],
        other: Map::from_iter([("max_tokens".to_owned(), TEST_TOKENS.into())]),
        ..ChatRequest::default()
    }
}

/// The error and its cause, without a backend's own words.
fn with_cause(error: &Error) -> String {
    match error {
        Error::Unreachable { source, .. } => format!("{error}: {source}"),
        error => error.to_string(),
    }
}

fn invalid(field: &'static str, message: String) -> ModelError {
    ModelError::Invalid {
        message,
        field: Some(field),
    }
}
