//! Servers that misbehave: every call ends in time, everyone else is served,
//! and nothing of a server that is gone stays behind.

mod bench;
mod bounds;
mod children;
mod evil;
mod floods;
mod http;
mod reconnect;
mod stdio;
mod warden;

pub(crate) use bench::PYTHON;
pub(crate) use evil::free_port;
