//! One request, wherever it goes: in the journal, the audit, traces and logs.

use std::{
    fmt,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The number of a request: that of its trace, if the client began one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// In two halves, as databases that know 64 bits are told it.
    trace: [u64; 2],
    /// The span of the client that asked, if it said so.
    pub parent_span: Option<u64>,
}

/// Tells apart what two hubs, or two runs, give out.
static RUN_ID: LazyLock<u64> = LazyLock::new(|| {
    let mut bytes = [0; 8];
    // Without chance the numbers of two runs are the same, which is no harm.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes) | 1
});
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl RequestId {
    /// A new one.
    pub fn next() -> Self {
        let number = NEXT_NUMBER.fetch_add(1, Relaxed);
        Self {
            trace: [*RUN_ID, number],
            parent_span: None,
        }
    }

    /// As a number, in two halves.
    pub fn as_halves(self) -> [u64; 2] {
        self.trace
    }

    /// The one that the client's `_meta` names as `traceparent`, or a new one.
    pub fn from_meta(meta: Option<&str>) -> Self {
        const TRACEPARENT_KEY: &str = "\"traceparent\":\"";
        let named = meta.and_then(|meta| {
            let at = meta.find(TRACEPARENT_KEY)? + TRACEPARENT_KEY.len();
            Self::parse_traceparent(meta.get(at..at + 55)?)
        });
        named.unwrap_or_else(Self::next)
    }

    /// Reads `00-TRACE-SPAN-FLAGS` (W3C Trace Context).
    fn parse_traceparent(text: &str) -> Option<Self> {
        let hex = |part: &str| {
            part.bytes()
                .all(|it| it.is_ascii_digit() || matches!(it, b'a'..=b'f'))
        };
        let parts: Vec<&str> = text.split('-').collect();
        let [_, trace, span, _] = parts[..] else {
            return None;
        };
        if trace.len() != 32 || span.len() != 16 || !hex(trace) || !hex(span) {
            return None;
        }
        let half = |digits| u64::from_str_radix(digits, 16).ok();
        let trace = [half(&trace[..16])?, half(&trace[16..])?];
        let trace = Some(trace).filter(|it| *it != [0, 0])?;
        let parent = u64::from_str_radix(span, 16).ok().filter(|it| *it != 0);
        Some(Self {
            trace,
            parent_span: parent,
        })
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
        let meta =
            |trace: &str| format!("{{\"x\":1,\"traceparent\":\"00-{trace}-00f067aa0ba902b7-01\"}}");
        let id = RequestId::from_meta(Some(&meta(trace)));
        assert_eq!(id.to_string(), trace);
        assert_eq!(id.parent_span, Some(0x00f0_67aa_0ba9_02b7));
        for wrong in ["0".repeat(32), "G".repeat(32), "4bf9".to_owned()] {
            let id = RequestId::from_meta(Some(&meta(&wrong)));
            assert_eq!(id.parent_span, None, "{wrong}");
            assert_eq!(id.to_string().len(), 32);
        }
        assert_ne!(RequestId::next(), RequestId::next());
    }
}
