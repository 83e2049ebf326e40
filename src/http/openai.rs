//! The OpenAI endpoint: `/v1/chat/completions`, `/v1/models`, `/v1/embeddings`.
//!
//! What goes out is strict whatever a backend sent; `chunk` says what clients need.

mod agent_models;
mod call_text;
mod chat;
mod chat_request;
mod chunk;
mod embeddings;
mod error;
mod models;
mod prompt_tools;

pub(super) use call_text::maru_command;
pub(super) use chat::post;
pub(super) use chat_request::parse_conversation as messages;
pub(super) use embeddings::create as embed;
pub(super) use error::rejection_response;
pub(super) use models::{list, queue_status, show};
