//! What every part of maru stands on: tasks that end together, worker threads, bounded
//! queues, the clock, and secrets that are never printed.

#![forbid(unsafe_code)]

pub mod clock;
mod mask;
pub mod message_queue;
mod secret;
pub mod tasks;
pub mod workers;

pub use mask::{MASK, mask_arguments, mask_secrets, masked_argument_values};
pub use secret::SecretString;
