//! All integration tests, in one binary.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod cli;
mod clients;
mod conformance;
mod docs;
mod doors;
mod fixture;
mod hostile;
mod hub;
mod modern;
mod sessions;
mod tidy;
mod wire;
