//! Language models behind one interface: whatever protocol a backend uses and in
//! whatever syntax its model writes tool calls, callers get the same events.
//!
//! [`Gateway::start_chat`] finds the model, waits in its queue, sends the request and
//! returns a [`ChatStream`] that the caller drives. No task stands in between: dropping
//! the stream closes the backend's connection and releases the permit.

#![forbid(unsafe_code)]

mod anthropic;
mod backend_client;
mod backend_health;
mod call_stream;
mod chat;
mod constrained;
mod decoder;
mod gateway;
mod gemini;
mod history;
mod listing;
mod model_call;
mod model_entry;
mod model_manager;
mod model_names;
mod native_calls;
mod openai;
mod prompt;
mod queue;
mod reasoning_start;
mod reloadable;
mod request_options;
mod request_recorder;
mod stream;
mod tool_support;
mod usage;
mod usage_ledger;

use std::time::Duration;

use thiserror::Error;

pub use chat::{
    ChatEvent, ChatMessage, ChatRequest, ChatResponse, ChatRole, ChatTool, ChatToolCall,
    FinishReason, IS_ERROR, InvalidNativeCall, InvalidToolCall, REASONING_BLOCKS, TextPrompt,
    ToolChoice, random_id,
};
pub use gateway::{Gateway, ModelOrigin, ModelStatus};
pub use listing::ModelInfo;
pub use model_manager::{LoadModelsError, ModelError, ModelManager, ModelSettings, ModelTest};
pub use reloadable::ReloadableGateway;
pub use request_options::ChatRequestOptions;
pub use stream::ChatStream;
pub use usage::TokenUsage;
pub use usage_ledger::{BudgetStatus, EmbeddingMeter, SaveBudgetError, UsageChange, UsageLedger};

/// Why a request failed, before or during its response. Quotes neither a backend's messages nor
/// a key.
#[derive(Debug, Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error("models.{at} ({name}): {reason}")]
    InvalidSetting {
        /// Which entry.
        at: usize,
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No entry of the settings matches.
    #[error("the model \"{0}\" is not configured; see `models` in maru.yaml and GET /v1/models")]
    UnknownModel(String),
    /// Its backends continue no texts.
    #[error(
        "the backend of the model \"{0}\" takes only conversations; use /v1/chat/completions, or a model with `backend: openai`"
    )]
    ChatOnly(String),
    /// Nothing is configured and the default is not there.
    #[error(
        "no model is configured, and no Ollama answers at {0}; start one, or add `models` to maru.yaml (docs/models.md shows how)"
    )]
    NoModels(String),
    /// Too many wait already, or the wait would be too long.
    #[error("the queue of the model \"{model}\" is full: {waiting} wait; try again later")]
    QueueFull {
        /// The name that clients use.
        model: String,
        /// How many wait.
        waiting: usize,
        /// When to try again.
        retry_after: Duration,
    },
    /// A budget has not enough left.
    #[error("the budget \"{budget}\" does not allow this request: {reason}")]
    BudgetExceeded {
        /// The name of the budget.
        budget: String,
        /// What is used of it, and when it resets.
        reason: String,
        /// Until it resets.
        retry_after: Duration,
    },
    /// No connection, or it broke.
    #[error("the backend of the model \"{model}\" cannot be used")]
    Unreachable {
        /// The name that clients use.
        model: String,
        /// What happened.
        #[source]
        source: maru_http::Error,
    },
    /// It answered with an error.
    #[error("the backend of the model \"{model}\" answered with HTTP {status}{}", format_error_code(.code.as_deref()))]
    Status {
        /// The name that clients use.
        model: String,
        /// The status.
        status: u16,
        /// The name of the error, if it is nothing but a name.
        code: Option<String>,
        /// When the backend allows another request.
        retry_after: Option<Duration>,
    },
    /// It answered with something else than its protocol allows.
    #[error("the backend of the model \"{model}\" sent {what}")]
    InvalidResponse {
        /// The name that clients use.
        model: String,
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// It took too long.
    #[error(
        "the backend of the model \"{model}\" did not finish within {limit:?}; see timeout_ms of the model"
    )]
    Timeout {
        /// The name that clients use.
        model: String,
        /// How long it may take.
        limit: Duration,
    },
    /// A stream that had begun sent nothing for too long.
    #[error(
        "the backend of the model \"{model}\" sent nothing for {limit:?}; see idle_timeout_ms of the model"
    )]
    Silent {
        /// The name that clients use.
        model: String,
        /// How long it may be silent.
        limit: Duration,
    },
}

impl Error {
    /// Whether another backend of the same model may answer instead.
    fn allows_failover(&self) -> bool {
        match self {
            Self::QueueFull { .. } => true,
            Self::Status { status: 404, .. } => true,
            error => error.is_backend_failure(),
        }
    }

    /// Whether the backend is at fault, not the request.
    fn is_backend_failure(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::InvalidResponse { .. } | Self::Silent { .. } => true,
            Self::Status { status, .. } => {
                matches!(status, 401..=403 | 408 | 429 | 500..=599)
            }
            _ => false,
        }
    }

    /// When the backend wants to be asked again.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::QueueFull { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

fn format_error_code(code: Option<&str>) -> String {
    code.map_or(String::new(), |it| format!(" ({it})"))
}
