//! Anthropic's Messages API: `/v1/messages` and `/v1/messages/count_tokens`.

mod content_blocks;
mod error;
mod message_request;
mod message_writer;
mod models;
mod offered_tools;
mod token_count;

pub(super) use message_writer::MessageWriter;
pub(super) use models::{is_anthropic_client, model_json, models_json};
pub(super) use token_count::count as count_tokens;
