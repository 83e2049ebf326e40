//! The runtime services that every other crate of maru uses.
//!
//! - [`tasks::Tasks`] spawns tasks and waits for all of them at shutdown.
//! - [`workers::WorkerPool`] spreads client connections over single-threaded runtimes.
//! - [`message_queue`] is a channel bounded by count and bytes whose senders give up on a
//!   receiver that stopped reading.
//! - [`traffic_budget::TrafficBudget`] bounds what a peer may send unasked.
//! - [`memory::MemoryShare`] bounds what all large requests in progress keep.
//! - [`clock`] reads and formats the time.
//! - [`SecretString`] and [`mask_secrets`] keep secrets out of logs, errors and pages.
//! - [`ServerCertificateVerifier`] verifies TLS servers by a rule of the caller.
//!
//! ```ignore
//! let tasks = Tasks::default();
//! let stop = tasks.stop_token();
//! tasks.spawn(async move { stop.cancelled().await });
//! tasks.shutdown().await; // cancels the token, then waits for the task
//! ```
//!
//! Test with `cargo nextest run -p maru-runtime`; the tests need no network.

#![forbid(unsafe_code)]

pub mod clock;
pub mod files;
mod mask;
pub mod memory;
pub mod message_queue;
pub mod permissions;
mod secret;
mod server_certificate;
pub mod tasks;
pub mod traffic_budget;
pub mod workers;

pub use mask::{MASK, mask_arguments, mask_secrets, masked_argument_values};
pub use secret::SecretString;
pub use server_certificate::{ServerCertificate, ServerCertificateVerifier};
