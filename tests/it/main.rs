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

mod access;
mod agent;
mod audit;
mod circles;
mod cli;
mod client_conformance;
mod clients;
mod conformance;
mod connections;
mod console;
mod custom;
mod data;
mod docs;
mod door;
mod doors;
mod expression;
mod failing;
mod faults;
mod fixture;
mod fixture_server;
mod fuzz;
mod hostile;
mod hub;
mod kill9;
mod modern;
mod openai;
mod postgres;
mod programs;
mod questions;
mod rates;
mod registry;
mod rest;
mod results;
mod retrieval;
mod secrets;
mod servers;
mod sessions;
mod signals;
mod source;
mod store;
mod telemetry;
mod tidy;
mod trust;
mod upstream;
mod wire;
