//! The OpenAI door: `/v1/chat/completions`, `/v1/models`, `/v1/embeddings`.
//!
//! What goes out is strict whatever came in: section by section what real
//! clients need, see `chunk`.

mod agent;
mod chat;
mod chunk;
mod described;
mod embeddings;
mod error;
mod mode;
mod models;
mod wire;

pub(super) use chat::{post, post_known};
pub(super) use embeddings::create as embed;
pub(super) use error::refuse;
pub(super) use models::{list, show, status};
pub(super) use wire::conversation as messages;
