//! The OpenAI door, in front of models on the wire.

mod answers;
pub(crate) mod backend;
pub(crate) mod client;
mod evil;
mod modes;
mod queue;
mod real;
mod requests;
mod sdk;
