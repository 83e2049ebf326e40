//! The OpenAI endpoint, in front of models on the wire.

mod answers;
mod anthropic_backend;
pub(crate) mod chat_client;
pub(crate) mod control_tokens;
mod evil;
mod failover;
pub(crate) mod fake_model;
mod gemini;
mod modes;
mod queue;
mod real_model;
mod reasoning_start;
mod requests;
mod sdk;
mod streamed_arguments;
mod text_completions;
mod tool_choice;
mod tool_support;
