//! How many bytes of rows the server expects to make one value of.

use serde_json::Value as Json;

use super::{growth, value_growth::ValueGrowth};

/// How many rows a recursion is taken to have at least.
const RECURSION_ROWS: f64 = 300_000.0;

/// Reads from a plan how many bytes of rows are made one value.
pub(super) struct CollectedBytes {
    growth: ValueGrowth,
    /// Whether the server cannot know how many rows there are.
    has_recursion: bool,
}

impl CollectedBytes {
    /// The most bytes of rows that one value is made of, by the plan of a statement.
    pub(super) fn estimate(plan: &Json, growth: ValueGrowth) -> f64 {
        let estimate = Self {
            growth,
            has_recursion: has_node(plan, "Recursive Union"),
        };
        estimate.largest(plan)
    }

    /// The most that one node of a plan, or one below it, makes one value of.
    fn largest(&self, node: &Json) -> f64 {
        let groups = match node["Strategy"].as_str() {
            Some("Sorted") => node["Plan Rows"].as_f64().unwrap_or(1.0).max(1.0),
            _ => 1.0,
        };
        let calls = output_calls_collecting(node);
        let mut most = 0.0_f64;
        for child in plan_children(node) {
            let subplan = child["Subplan Name"].as_str();
            if calls || subplan.is_some_and(|it| !it.starts_with("CTE ")) {
                most = most.max(self.bytes_of_rows(child, groups));
            }
            most = most.max(self.largest(child));
        }
        most
    }

    /// The bytes of the rows of a node, divided among groups. The server counts a text that
    /// the statement makes as 32 bytes.
    fn bytes_of_rows(&self, node: &Json, groups: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (factor, bytes) = (self.growth.factor as f64, self.growth.bytes as f64);
        let is_recursive = self.has_recursion && has_node(node, "CTE Scan");
        let least = if is_recursive { RECURSION_ROWS } else { 0.0 };
        let rows = node["Plan Rows"].as_f64().unwrap_or(0.0) / groups;
        let width = node["Plan Width"].as_f64().unwrap_or(0.0).max(8.0);
        rows.max(least) * width.max(bytes) * factor
    }
}

/// Whether a node makes one value of many rows, and not only counts or adds them.
fn output_calls_collecting(node: &Json) -> bool {
    let is_aggregate = ["Aggregate", "WindowAgg"]
        .iter()
        .any(|it| node["Node Type"] == *it);
    let output = node["Output"].as_array().map_or(&[][..], Vec::as_slice);
    let mut output = output.iter().filter_map(Json::as_str);
    is_aggregate && output.any(growth::text_calls_collecting)
}

fn plan_children(node: &Json) -> &[Json] {
    node["Plans"].as_array().map_or(&[], Vec::as_slice)
}

fn has_node(node: &Json, kind: &str) -> bool {
    node["Node Type"] == kind || plan_children(node).iter().any(|it| has_node(it, kind))
}
