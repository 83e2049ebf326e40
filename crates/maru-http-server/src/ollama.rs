//! Ollama's API: `/api/chat`, `/api/generate`, `/api/embed`, `/api/tags`, `/api/show`,
//! `/api/ps` and `/api/version`.

mod chat_request;
mod embed;
mod models;
mod writer;

pub(super) use embed::{embed, embed_one};
pub(super) use models::{list, running, show, version};
pub(super) use writer::{OllamaChatWriter, OllamaGenerateWriter};
