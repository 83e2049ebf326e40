//! The OpenAI endpoint: `/v1/chat/completions`, `/v1/completions`, `/v1/models`,
//! `/v1/embeddings`.
//!
//! What goes out is strict whatever a backend sent; `chunk` says what clients need.

mod chat_request;
mod chunk;
mod embeddings;
mod error;
mod models;
mod text_completion;

pub(super) use chat_request::parse_conversation as messages;
pub(super) use chunk::ChatCompletionWriter;
pub(super) use embeddings::{create as embed, embed_texts};
pub(super) use models::{all_models, list, show};
pub(super) use text_completion::TextCompletionWriter;
