//! Calls by tool, outcome and duration.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use ahash::AHashMap;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{OTHER_NAMES, latency_histogram};
use crate::journal::{CallRecord, ToolCallOutcome};

/// How many tools have their own labels; all others share one.
const MAX_TOOLS: usize = 2000;

/// The calls of every tool.
#[derive(Debug)]
pub(super) struct ToolCallMetrics {
    calls: Family<ToolOutcomeLabels, Counter>,
    durations: Family<ToolLabels, Histogram, fn() -> Histogram>,
    /// The counters of each tool, so that a call needs one look-up.
    tools: RwLock<AHashMap<Arc<str>, Arc<CountedTool>>>,
}

/// The counters of one tool.
#[derive(Debug)]
struct CountedTool {
    labels: ToolLabels,
    /// In the order of [`ToolCallOutcome::ALL`]; created at the first call with that outcome.
    outcomes: [OnceLock<Counter>; ToolCallOutcome::ALL.len()],
    duration: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    server: Arc<str>,
    tool: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolOutcomeLabels {
    server: Arc<str>,
    tool: Arc<str>,
    outcome: &'static str,
}

impl Default for ToolCallMetrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(latency_histogram),
            tools: RwLock::default(),
        }
    }
}

impl ToolCallMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "maru_tool_calls",
            "Calls by tool and how they ended",
            self.calls.clone(),
        );
        registry.register(
            "maru_tool_call_duration_seconds",
            "How long calls took",
            self.durations.clone(),
        );
    }

    pub(super) fn count(&self, record: &CallRecord) {
        let tool = self.find(&record.request.tool);
        let tool = tool.unwrap_or_else(|| self.add(&record.request.tool, &record.request.server));
        let outcomes = ToolCallOutcome::ALL.iter().zip(&tool.outcomes);
        for (outcome, counter) in outcomes.filter(|(it, _)| **it == record.outcome) {
            counter.get_or_init(|| self.counter(&tool, *outcome)).inc();
        }
        tool.duration.observe(record.duration.as_secs_f64());
    }

    fn find(&self, tool: &str) -> Option<Arc<CountedTool>> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.get(tool).cloned()
    }

    /// Adds a tool at its first call.
    fn add(&self, tool: &Arc<str>, server: &Arc<str>) -> Arc<CountedTool> {
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        // Without a server the tool is unknown, and its name comes from the caller.
        let is_known = !server.is_empty() && tools.len() < MAX_TOOLS;
        let labels = if is_known {
            ToolLabels {
                server: Arc::clone(server),
                tool: Arc::clone(tool),
            }
        } else {
            ToolLabels {
                server: "".into(),
                tool: OTHER_NAMES.into(),
            }
        };
        let added = tools.entry(Arc::clone(&labels.tool)).or_insert_with(|| {
            Arc::new(CountedTool {
                duration: self.durations.get_or_create_owned(&labels),
                labels,
                outcomes: Default::default(),
            })
        });
        Arc::clone(added)
    }

    fn counter(&self, tool: &CountedTool, outcome: ToolCallOutcome) -> Counter {
        self.calls.get_or_create_owned(&ToolOutcomeLabels {
            server: Arc::clone(&tool.labels.server),
            tool: Arc::clone(&tool.labels.tool),
            outcome: outcome.as_str(),
        })
    }
}
