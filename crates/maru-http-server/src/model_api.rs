//! What every client API of a model has in common: the request is read, the client mode is
//! chosen, the model or the agent is asked, and the response is sent whole or as a stream.
//!
//! A client API is a [`ClientApi`]: a parser in front and a writer behind.

mod agent_models;
mod api_error;
mod call_text;
mod client_api;
mod client_mode;
mod conversation;
mod endpoint;
mod prompt_tools;
mod request_members;
mod response_sequence;
mod response_stream;

pub(super) use agent_models::AGENT_MODEL_PREFIX;
pub(super) use api_error::ApiError;
pub(super) use client_api::{ClientApi, ParsedRequest, ResponseEnd, ResponsePiece};
pub(super) use conversation::{
    AssistantItems, ConversationBuilder, ResultContent, call_json, image_part, text_part,
};
pub(super) use endpoint::{post, read_request};
pub(super) use request_members::{
    MAX_MESSAGES, MAX_TOOLS, check_members, check_numbers, parse_model, parse_stream,
};
