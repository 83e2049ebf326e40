//! Counts since the start, for those who collect them over time.

use std::{sync::Arc, time::Duration};

use ahash::AHashMap;

use super::{CallRecord, ToolCallOutcome};

/// How many tools are counted one by one; the others as one.
const MAX_TOOLS: usize = 2000;
const OTHER_TOOLS: &str = "(others)";

/// Upper bounds of the steps in which times are counted, in seconds.
pub const LATENCY_BOUNDS_SECONDS: [f64; 13] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// Counts by server and tool.
#[derive(Debug, Default)]
pub struct CallTotals {
    tools: AHashMap<Arc<str>, ToolTotal>,
}

/// One tool.
#[derive(Clone, Debug, Default)]
pub struct ToolTotal {
    /// The server it belongs to.
    pub server: Arc<str>,
    /// Calls by how they ended, in the order of [`Outcome::ALL`].
    pub outcomes: [u64; 5],
    /// Calls by how long they took; the last step has no bound.
    pub latency_counts: [u64; LATENCY_BOUNDS_SECONDS.len() + 1],
    /// All times together.
    pub total_duration: Duration,
}

impl CallTotals {
    pub(super) fn count(&mut self, record: &CallRecord) {
        let asked = &record.asked;
        if !self.tools.contains_key(&asked.tool) {
            // Nobody was asked: the name is the caller's own.
            let known = !asked.server.is_empty() && self.tools.len() < MAX_TOOLS;
            let (name, server) = if known {
                (Arc::clone(&asked.tool), Arc::clone(&asked.server))
            } else {
                (OTHER_TOOLS.into(), "".into())
            };
            let total = self.tools.entry(name).or_default();
            total.server = server;
            return total.count(record);
        }
        if let Some(total) = self.tools.get_mut(&asked.tool) {
            total.count(record);
        }
    }

    /// Every tool that was called, by name.
    pub fn sorted(&self) -> Vec<(Arc<str>, ToolTotal)> {
        let all = self.tools.iter();
        let mut all: Vec<_> = all
            .map(|(name, it)| (Arc::clone(name), it.clone()))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

impl ToolTotal {
    fn count(&mut self, record: &CallRecord) {
        let outcome = ToolCallOutcome::ALL
            .iter()
            .position(|it| *it == record.outcome);
        self.outcomes[outcome.unwrap_or_default()] += 1;
        let seconds = record.duration.as_secs_f64();
        let step = LATENCY_BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.latency_counts[step] += 1;
        self.total_duration += record.duration;
    }
}
