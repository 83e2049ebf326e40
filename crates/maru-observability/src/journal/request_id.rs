//! The id of a request in the journal, the audit log, traces and logs.

use std::{
    fmt,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tracing::Span;

use crate::telemetry::{RemoteTrace, trace_of};

/// The id of a request: its trace id, if the client sent one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Two halves, because databases have no integers of 128 bits.
    trace: [u64; 2],
}

/// Makes the ids of two hubs, or of two runs, different.
static RUN_ID: LazyLock<u64> = LazyLock::new(|| {
    let mut bytes = [0; 8];
    // Without random bytes the ids of two runs are equal, which does no harm.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes) | 1
});
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl RequestId {
    /// A new id.
    pub fn next() -> Self {
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        Self {
            trace: [*RUN_ID, number],
        }
    }

    /// The id in two halves.
    pub fn as_halves(self) -> [u64; 2] {
        self.trace
    }

    /// The trace id in the client's `_meta`, or a new id.
    pub fn from_meta(meta: Option<&str>) -> Self {
        let trace = meta.and_then(RemoteTrace::from_meta);
        trace.map_or_else(Self::next, |it| Self {
            trace: it.trace_halves(),
        })
    }

    /// The trace id of `span`; `None` if spans are not exported.
    pub fn of_span(span: &Span) -> Option<Self> {
        trace_of(span).map(|trace| Self { trace })
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.trace;
        write!(out, "{high:016x}{low:016x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_of_the_client_goes_on_and_nonsense_does_not() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let meta = |trace: &str| format!("{{\"traceparent\": \"00-{trace}-00f067aa0ba902b7-01\"}}");
        let id = RequestId::from_meta(Some(&meta(trace)));
        assert_eq!(id.to_string(), trace);
        for wrong in ["0".repeat(32), "G".repeat(32), "4bf9".to_owned()] {
            let id = RequestId::from_meta(Some(&meta(&wrong)));
            assert_ne!(id.to_string(), wrong);
            assert_eq!(id.to_string().len(), 32);
        }
        assert_ne!(RequestId::next(), RequestId::next());
    }
}
