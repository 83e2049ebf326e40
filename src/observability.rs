//! What is remembered and told of every call: the journal in memory, the audit log in the
//! store, metrics for Prometheus, traces for a collector.

pub mod audit;
pub mod journal;
pub mod metrics;
pub mod telemetry;
