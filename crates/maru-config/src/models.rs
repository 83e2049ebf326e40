//! Settings of models and of how tool calls reach clients.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretString;

/// A model, or a family of models, behind the OpenAI-compatible endpoint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelDefinition {
    /// Model name in client requests; `*` matches any text. The first entry that matches is used. Further entries with the same name are used, in their order, when its backend fails.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// Further names of this model, for clients that know only certain models. Needs `model`, unless `name` has no `*`.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// API of the backend: `openai` for Ollama, llama.cpp, vLLM, LM Studio, OpenAI and compatible servers, `gemini`, or `anthropic` for Anthropic and servers with its Messages API.
    #[serde(default)]
    pub backend: BackendApi,
    /// URL that paths such as `/chat/completions` are appended to. The default is that of OpenAI, Google or Anthropic.
    #[serde(default)]
    pub base_url: Option<String>,
    /// API key of the backend.
    #[serde(default)]
    pub api_key: Option<SecretString>,
    /// Model name sent to the backend, by default the name in the client's request. `*` is replaced by what it matched in `name`.
    #[serde(default)]
    pub model: Option<String>,
    /// How the model gets tools: `native` in the request, `prompt` described in the text, `constrained` described in the text with constrained output, or `auto`.
    #[serde(default)]
    pub tool_mode: ToolMode,
    /// Syntax in which the model writes tool calls; `auto` detects it.
    #[serde(default = "default_dialect")]
    pub dialect: String,
    /// Whether the model's text begins inside its reasoning, because its chat template has opened the reasoning and the text only closes it: `always`, `never`, or `auto` to go by its last answer.
    #[serde(default)]
    pub starts_in_reasoning: StartsInReasoning,
    /// How the client gets tool calls: `openai`, `xml` or `shell`.
    #[serde(default)]
    pub client_mode: Option<ClientMode>,
    /// Requests that may start within any minute.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100_000))]
    pub requests_per_minute: Option<u32>,
    /// Requests that may run at the same time.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub max_concurrent: Option<u32>,
    /// Requests that may wait in the queue; any further request gets 429.
    #[serde(default = "default_max_waiting")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_waiting: u32,
    /// Milliseconds that one answer may take, including the queue, retries and the whole stream.
    #[serde(default = "default_timeout_ms")]
    #[schemars(range(min = 100, max = 3_600_000))]
    pub timeout_ms: u64,
    /// Milliseconds that a stream may be silent once it has begun. Raise it for models that think for long without sending anything.
    #[serde(default = "default_idle_timeout_ms")]
    #[schemars(range(min = 100, max = 3_600_000))]
    pub idle_timeout_ms: u64,
    /// Milliseconds for which a backend that failed three times in a row is used last, where other entries have the same name.
    #[serde(default = "default_cooldown_ms")]
    #[schemars(range(min = 100, max = 3_600_000))]
    pub cooldown_ms: u64,
    /// What the backend charges per million tokens, in the currency of `usage.currency`: `{input: 3, cached: 0.3, output: 15}`. `cached` is for tokens of the prompt that the backend had cached, by default as much as `input`. Without it a request costs nothing.
    #[serde(default)]
    pub price: Option<ModelPrice>,
}

/// What a model costs per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Tokens of the prompt.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub input: f64,
    /// Tokens of the response, reasoning included.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub output: f64,
    /// Tokens of the prompt that the backend had cached.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub cached: Option<f64>,
}

/// How clients of `/v1/chat/completions` get tool calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatSettings {
    /// Client mode by token name: `openai`, `xml` or `shell`. The name `local` is for callers without a token.
    pub client_modes: BTreeMap<String, ClientMode>,
    /// Whether a request may select the mode `shell` with the header `X-Maru-Client-Mode`.
    pub allow_shell: bool,
}

/// The API of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BackendApi {
    /// `/chat/completions`.
    #[default]
    Openai,
    /// `generateContent` and `streamGenerateContent`.
    Gemini,
    /// `/messages`.
    Anthropic,
}

/// How a model gets tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolMode {
    /// Native if a probe shows that the tools reach the model, constrained or prompt otherwise.
    #[default]
    Auto,
    /// In the request.
    Native,
    /// Described in the text.
    Prompt,
    /// Described in the text, with output constrained to a call or an answer.
    Constrained,
}

/// Whether the text of a model begins inside its reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum StartsInReasoning {
    /// If its last answer did. A stream is then held back until the reasoning ends.
    #[default]
    Auto,
    /// In every answer. A stream has the reasoning while the model writes it.
    Always,
    /// In no answer: a stream is never held back.
    Never,
}

/// How a client gets tool calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ClientMode {
    /// As `tool_calls`.
    #[default]
    Openai,
    /// In the text, one tag per tool.
    Xml,
    /// In the text, a `maru call` command in a code block.
    Shell,
}

fn default_dialect() -> String {
    "auto".to_owned()
}

fn default_max_waiting() -> u32 {
    100
}

fn default_idle_timeout_ms() -> u64 {
    120_000
}

fn default_cooldown_ms() -> u64 {
    30_000
}

fn default_timeout_ms() -> u64 {
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
            dialect: default_dialect(),
            starts_in_reasoning: StartsInReasoning::default(),
            client_mode: None,
            requests_per_minute: None,
            max_concurrent: None,
            max_waiting: default_max_waiting(),
            timeout_ms: default_timeout_ms(),
            idle_timeout_ms: default_idle_timeout_ms(),
            cooldown_ms: default_cooldown_ms(),
            price: None,
        }
    }
}
