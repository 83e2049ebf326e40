//! Servers that misbehave: every call ends in time, everyone else is served,
//! and nothing of a server that is gone stays behind.

mod children;
mod client_floods;
mod evil_http;
mod floods;
mod harness;
mod http;
mod program_limits;
mod reconnect;
mod stdio;
mod warden;

pub(crate) use evil_http::free_port;
pub(crate) use harness::PYTHON;
