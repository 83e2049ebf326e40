//! The models that clients may ask for, and how they are served.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretString;

/// A model, or a family of models, behind the OpenAI-compatible endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelDefinition {
    /// What clients ask for; `*` stands for any text. The first entry that matches is used.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// Further names for the same, for clients that know only certain models. Needs `model`, unless `name` has no `*`.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// What the backend speaks: `openai` for Ollama, llama.cpp, vLLM, LM Studio, OpenAI and all that follow it, or `gemini`.
    #[serde(default)]
    pub backend: BackendApi,
    /// Address that paths such as `/chat/completions` are added to. Without it, OpenAI's or Google's own.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Key of the backend.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// What the backend is asked for, by default the client's name. `*` stands for what it stood for in `name`.
    #[serde(default)]
    pub model: Option<String>,
    /// How tools reach the model: `native` in the request, `prompt` described in the text, `constrained` described and its output held to their form, or `auto`.
    #[serde(default)]
    pub tool_mode: ToolMode,
    /// How the model writes calls; `auto` finds out.
    #[serde(default = "auto")]
    pub dialect: String,
    /// How calls reach the client: `openai`, `xml` or `shell`.
    #[serde(default)]
    pub client_mode: Option<ClientMode>,
    /// Requests that may begin within any minute.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    pub requests_per_minute: Option<u32>,
    /// Requests that may be in progress at once.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub max_concurrent: Option<u32>,
    /// Requests that may wait for their turn; one more is answered with 429.
    #[serde(default = "hundred")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_waiting: u32,
    /// Milliseconds that one answer may take: waiting, further attempts and the whole stream.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 100, max = 3_600_000))]
    pub timeout_ms: u64,
}

/// How calls reach clients.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatSettings {
    /// Client mode by name of the token: `openai`, `xml` or `shell`; `local` for callers without one.
    pub client_modes: BTreeMap<String, ClientMode>,
    /// Whether a request may choose the mode `shell` by its header `X-Maru-Client-Mode`.
    pub allow_shell: bool,
}

/// What a backend speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BackendApi {
    /// `/chat/completions`.
    #[default]
    Openai,
    /// `generateContent` and `streamGenerateContent`.
    Gemini,
}

/// How tools reach a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolMode {
    /// Native, and as a prompt for models that take no tools.
    #[default]
    Auto,
    /// In the request.
    Native,
    /// Described in the text.
    Prompt,
    /// Described in the text, the output held to their form.
    Constrained,
}

/// How calls reach a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientMode {
    /// As `tool_calls`.
    #[default]
    Openai,
    /// In the text, a tag per tool.
    Xml,
    /// In the text, a fenced `maru call`.
    Shell,
}

fn auto() -> String {
    "auto".to_owned()
}

fn hundred() -> u32 {
    100
}

fn ten_minutes() -> u64 {
    600_000
}

impl Default for ModelDefinition {
    fn default() -> Self {
        Self {
            name: "*".to_owned(),
            aliases: Vec::new(),
            backend: BackendApi::default(),
            base_url: None,
            api_key: None,
            model: None,
            tool_mode: ToolMode::default(),
            dialect: auto(),
            client_mode: None,
            requests_per_minute: None,
            max_concurrent: None,
            max_waiting: hundred(),
            timeout_ms: ten_minutes(),
        }
    }
}
