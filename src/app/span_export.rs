//! Starts the export of spans, which belongs to the process and not to one hub.

use super::address_policy;
use crate::{
    config::Config,
    observability::telemetry::{Error, SpanExport},
};

/// Starts to export spans if the settings name a collector. The caller adds the export's
/// layer to the subscriber of the process.
pub fn start_span_export(config: &Config) -> Result<Option<SpanExport>, Error> {
    let policy = address_policy(config, Some(config.listen.port()));
    SpanExport::start(&config.telemetry, &policy)
}
