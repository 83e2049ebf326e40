//! The export of spans, which belongs to the process and not to one hub.

use super::address_policy;
use crate::{
    config::Config,
    observability::telemetry::{Error, SpanExport},
};

/// Exports spans, if the settings name a collector. Whoever runs the hub adds the layer
/// of the export to the subscriber of the process.
pub fn start_span_export(config: &Config) -> Result<Option<SpanExport>, Error> {
    let policy = address_policy(config, Some(config.listen.port()));
    SpanExport::start(&config.telemetry, &policy)
}
