//! W3C Trace Context in HTTP headers and in `_meta`, of requests to the hub and of its own.

use hyper::HeaderMap;
use maru_protocol::{object_members, parse_json_string};
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{SpanContext, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::is_enabled;

/// Names the trace and the span that a request is part of.
pub const TRACEPARENT: &str = "traceparent";
/// Vendor-specific additions to it.
pub const TRACESTATE: &str = "tracestate";
/// The longest `tracestate` that is forwarded; the specification requires no more.
const MAX_STATE_BYTES: usize = 512;

/// The trace of a request to the hub, and the caller's span in it.
#[derive(Clone, Debug)]
pub struct RemoteTrace(Context);

/// The trace of a request of the hub, as it is sent to a server.
#[derive(Debug, Default)]
pub struct OutgoingTrace {
    /// Version, trace, span and flags.
    pub traceparent: String,
    /// Vendor-specific additions.
    pub tracestate: Option<String>,
}

impl RemoteTrace {
    /// The trace that the headers of a request name.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        Self::extract(TraceCarrier {
            traceparent: Some(text(TRACEPARENT)?),
            tracestate: text(TRACESTATE),
        })
    }

    /// The trace that `_meta`, a JSON object, names.
    pub fn from_meta(meta: &str) -> Option<Self> {
        // A fast path: most requests have none.
        memchr::memmem::find(meta.as_bytes(), TRACEPARENT.as_bytes())?;
        let mut carrier = TraceCarrier::default();
        for (name, raw) in object_members(meta)? {
            match &*name {
                TRACEPARENT => carrier.traceparent = parse_json_string(raw).map(Into::into),
                TRACESTATE => carrier.tracestate = parse_json_string(raw).map(Into::into),
                _ => (),
            }
        }
        Self::extract(carrier)
    }

    fn extract(mut carrier: TraceCarrier) -> Option<Self> {
        carrier.tracestate.take_if(|it| it.len() > MAX_STATE_BYTES);
        let propagator = TraceContextPropagator::new();
        let context = propagator.extract_with_context(&Context::new(), &carrier);
        let is_valid = context.span().span_context().is_valid();
        is_valid.then(|| Self(context))
    }

    /// Makes `span` part of the trace, below the caller's span.
    pub fn adopt(self, span: &Span) {
        // Fails if spans are not exported, which does no harm.
        let _ = span.set_parent(self.0);
    }

    /// Whether the current span is part of the trace.
    pub fn is_current(&self) -> bool {
        trace_of(&Span::current()) == Some(self.trace_halves())
    }

    /// The trace id, in two halves.
    pub fn trace_halves(&self) -> [u64; 2] {
        trace_halves(self.0.span().span_context())
    }
}

/// The trace id of `span`, in two halves; `None` if spans are not exported.
pub fn trace_of(span: &Span) -> Option<[u64; 2]> {
    if !is_enabled() || span.is_disabled() {
        return None;
    }
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| trace_halves(context))
}

impl OutgoingTrace {
    /// The trace of the current span; `None` if spans are not exported.
    pub fn current() -> Option<Self> {
        if !is_enabled() {
            return None;
        }
        let mut trace = Self::default();
        TraceContextPropagator::new().inject_context(&Span::current().context(), &mut trace);
        Some(trace).filter(|it| !it.traceparent.is_empty())
    }

    /// The names and values for headers and `_meta`.
    pub fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let state = self.tracestate.as_deref().map(|it| (TRACESTATE, it));
        std::iter::once((TRACEPARENT, self.traceparent.as_str())).chain(state)
    }
}

impl Injector for OutgoingTrace {
    fn set(&mut self, key: &str, value: String) {
        match key {
            TRACEPARENT => self.traceparent = value,
            TRACESTATE => self.tracestate = Some(value).filter(|it| !it.is_empty()),
            _ => (),
        }
    }
}

/// The two values as the propagator reads them.
#[derive(Default)]
struct TraceCarrier {
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl Extractor for TraceCarrier {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            TRACEPARENT => self.traceparent.as_deref(),
            TRACESTATE => self.tracestate.as_deref(),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT, TRACESTATE]
    }
}

fn trace_halves(context: &SpanContext) -> [u64; 2] {
    let bytes = context.trace_id().to_bytes();
    let (halves, _) = bytes.as_chunks::<8>();
    [halves[0], halves[1]].map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn trace_of_the_client_is_read_however_its_json_is_spaced() {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for meta in [
            format!("{{\"x\":1,\"traceparent\":\"{parent}\"}}"),
            format!("{{\"x\": 1, \"traceparent\": \"{parent}\", \"tracestate\": \"a=b\"}}"),
            format!("{{ \"traceparent\"\n:\t\"{parent}\" }}"),
        ] {
            let trace = RemoteTrace::from_meta(&meta).unwrap();
            assert_eq!(
                trace.trace_halves(),
                [0x4bf9_2f35_77b3_4da6, 0xa3ce_929d_0e0e_4736]
            );
        }
    }

    #[test]
    fn nonsense_names_no_trace() {
        for wrong in [
            "{}".to_owned(),
            "{\"note\":\"traceparent\"}".to_owned(),
            "{\"traceparent\":7}".to_owned(),
            format!(
                "{{\"traceparent\":\"00-{}-00f067aa0ba902b7-01\"}}",
                "0".repeat(32)
            ),
            format!(
                "{{\"traceparent\":\"00-{}-00f067aa0ba902b7-01\"}}",
                "G".repeat(32)
            ),
            format!("{{\"inner\":{{\"traceparent\":\"00-{TRACE}-00f067aa0ba902b7-01\"}}}}"),
        ] {
            assert!(RemoteTrace::from_meta(&wrong).is_none(), "{wrong}");
        }
    }
}
