//! All integration tests, in one binary.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![expect(
    clippy::needless_pass_by_value,
    clippy::large_enum_variant,
    reason = "tests are to be read, not to be fast"
)]

mod agent;
mod cli;
mod client_conformance;
mod clients;
mod conformance;
mod console;
mod custom;
mod data;
mod docs;
mod door;
mod doors;
mod expression;
mod faults;
mod fixture;
mod fixture_server;
mod hostile;
mod hub;
mod kill9;
mod modern;
mod openai;
mod postgres;
mod registry;
mod retrieval;
mod servers;
mod sessions;
mod source;
mod store;
mod tidy;
mod upstream;
mod wire;
