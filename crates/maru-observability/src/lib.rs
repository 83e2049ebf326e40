//! Records of calls and changes: the journal in memory, the audit log in the store, metrics
//! for Prometheus, traces for an OpenTelemetry collector.

#![forbid(unsafe_code)]

pub mod audit;
pub mod journal;
pub mod metrics;
pub mod telemetry;
