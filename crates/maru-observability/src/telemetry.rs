//! Traces for an OpenTelemetry collector.
//!
//! The hub describes its work with `tracing` spans. A layer of the process's subscriber
//! turns them into OpenTelemetry spans, and a thread of the SDK sends those as OTLP
//! (protobuf over HTTP). Without a collector there is no layer, and a span costs one read
//! of a cached flag.
//!
//! A collector that does not respond cannot slow calls down: the queue is bounded, and
//! spans that do not fit are dropped.

mod collector_client;
mod propagation;
pub mod spans;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use hyper::header::{HeaderName, HeaderValue};
use maru_http::{AddressPolicy, ClientTls, HttpClient};
use maru_runtime::tasks::Tasks;
use opentelemetry::{KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider},
};
use thiserror::Error;
use tracing::{Subscriber, level_filters::LevelFilter, warn};
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};

use collector_client::CollectorClient;
use maru_config::TelemetrySettings;

pub use propagation::{OutgoingTrace, RemoteTrace, trace_of};
pub use propagation::{TRACEPARENT, TRACESTATE};

/// Spans that may wait to be sent; more are dropped.
const MAX_QUEUED_SPANS: usize = 4096;
/// Spans that are sent together, and how long one waits for others.
const MAX_BATCH_SPANS: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(2);
/// The deadline for sending a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether spans are exported by this process.
static EXPORTS_SPANS: AtomicBool = AtomicBool::new(false);

/// Whether spans are exported by this process. Values that only spans need are computed
/// only then.
pub fn is_enabled() -> bool {
    EXPORTS_SPANS.load(Relaxed)
}

/// Why spans cannot be exported as the settings say.
#[derive(Debug, Error)]
pub enum Error {
    /// The collector may not be reached.
    #[error("telemetry.otlp_endpoint: {0}")]
    Endpoint(#[source] maru_http::Error),
    /// A header has characters that HTTP does not allow.
    #[error("telemetry.headers: {0} cannot be sent as a header")]
    Header(String),
    /// The exporter does not accept the settings.
    #[error("cannot export spans")]
    Exporter(#[source] ExporterBuildError),
}

/// The span exporter of this process.
#[derive(Debug)]
pub struct SpanExport {
    provider: SdkTracerProvider,
    tasks: Tasks,
}

impl SpanExport {
    /// Starts to export, if the settings name a collector. Needs a tokio runtime, which
    /// sends the batches.
    pub fn start(
        settings: &TelemetrySettings,
        policy: &AddressPolicy,
    ) -> Result<Option<Self>, Error> {
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(None);
        };
        let target = policy
            .authorize_configured(endpoint)
            .map_err(Error::Endpoint)?;
        let tasks = Tasks::default();
        let client = HttpClient::new(target, ClientTls::default());
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(CollectorClient::start(client, &tasks))
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_headers(headers(settings)?)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(Error::Exporter)?;
        EXPORTS_SPANS.store(true, Relaxed);
        let provider = tracer_provider(exporter);
        Ok(Some(Self { provider, tasks }))
    }

    /// A layer that turns the hub's own spans into OpenTelemetry spans, without log events.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        let is_own_span = filter_fn(|it| it.is_span() && it.target().starts_with("maru"));
        tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("maru"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(is_own_span.with_max_level_hint(LevelFilter::INFO))
    }

    /// Sends the waiting spans, within the deadline of a batch, and stops.
    pub async fn shutdown(self) {
        let Self { provider, tasks } = self;
        // The SDK blocks until its thread has sent the rest.
        let stopped = tasks
            .spawn_blocking(move || provider.shutdown_with_timeout(EXPORT_TIMEOUT))
            .await;
        if !matches!(stopped, Some(Ok(()))) {
            warn!("the last spans could not be sent to the collector");
        }
        tasks.shutdown().await;
    }
}

fn tracer_provider(exporter: SpanExporter) -> SdkTracerProvider {
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUED_SPANS)
        .with_max_export_batch_size(MAX_BATCH_SPANS)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches);
    // Distinguishes the hubs in one trace.
    let instance = uuid::Uuid::new_v4().to_string();
    let resource = Resource::builder()
        .with_service_name("maru")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance));
    SdkTracerProvider::builder()
        .with_resource(resource.build())
        // The sender of a traceparent decides whether the trace is sampled.
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_span_processor(processor.build())
        .build()
}

/// The headers of the settings. Invalid ones are an error, because the exporter would
/// silently drop them.
fn headers(settings: &TelemetrySettings) -> Result<HashMap<String, String>, Error> {
    let all = settings.headers.iter().map(|(name, value)| {
        let is_valid =
            HeaderName::try_from(name).is_ok() && HeaderValue::from_str(value.reveal()).is_ok();
        if is_valid {
            Ok((name.clone(), value.reveal().to_owned()))
        } else {
            Err(Error::Header(name.clone()))
        }
    });
    all.collect()
}
