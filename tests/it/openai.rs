//! The OpenAI endpoint, in front of models on the wire.

mod answers;
pub(crate) mod chat_client;
mod evil;
pub(crate) mod fake_model;
mod modes;
mod queue;
mod real_model;
mod requests;
mod sdk;
