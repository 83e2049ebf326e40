//! `/api/call-usage`: which tools, servers and callers cost most, over an hour to 30 days.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use maru_store::{CallUsageFilter, CallUsageRow};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_observability::{audit::USAGE_SLOT_MINUTES, journal::MinuteStats};
use maru_runtime::clock::now_ms;

/// The maximum number of names in each list of a response.
const MAX_NAMES: usize = 500;
/// A range: its name, its minutes, and the minutes of a bar of the chart.
const RANGES: [(&str, i64, i64); 5] = [
    ("1h", 60, USAGE_SLOT_MINUTES),
    ("6h", 360, 10),
    ("24h", 1440, 30),
    ("7d", 10_080, 180),
    ("30d", 43_200, 720),
];

/// The query of `GET /api/call-usage`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallUsageQuery {
    range: Option<String>,
    tool: Option<String>,
    server: Option<String>,
    caller: Option<String>,
}

/// Calls, failures and durations of a tool, a server, a caller or a time.
#[derive(Debug)]
struct UsageSum {
    stats: MinuteStats,
    micros: i64,
}

/// `GET /api/call-usage`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    query: Result<Query<CallUsageQuery>, QueryRejection>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => return json_error(StatusCode::BAD_REQUEST, &error.body_text(), None),
    };
    let range = query.range.as_deref().unwrap_or("1h");
    let Some((_, minutes, span)) = RANGES.iter().find(|(name, ..)| *name == range) else {
        let message = format!("range: {range:?} is none of 1h, 6h, 24h, 7d and 30d");
        return json_error(StatusCode::BAD_REQUEST, &message, Some("range"));
    };
    let given = |it: Option<String>| it.filter(|it| !it.is_empty());
    let now = now_ms() / 60_000;
    let mut filter = CallUsageFilter {
        from: now - minutes - (now - minutes) % span,
        tool: given(query.tool),
        server: given(query.server),
        caller: given(query.caller),
    };
    if principal.role() != AccessRole::Admin {
        filter.caller = Some(principal.name().to_owned());
    }
    let by_name = hub.audit.usage_by_name(&filter).await;
    let by_slot = hub.audit.usage_by_slot(&filter, *span).await;
    match (by_name, by_slot) {
        (Ok(by_name), Ok(by_slot)) => {
            let mut body = names_json(&by_name);
            body["from"] = (filter.from * 60_000).into();
            body["to"] = (now * 60_000).into();
            body["spanMinutes"] = (*span).into();
            body["kept"] = hub.audit.records_calls().into();
            body["slots"] = slots_json(&by_slot, filter.from, now, *span);
            reply::json(StatusCode::OK, body.to_string())
        }
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!("failed to read the usage of calls: {error}");
            let message = error.public_message();
            json_error(StatusCode::SERVICE_UNAVAILABLE, &message, None)
        }
    }
}

fn names_json(rows: &[CallUsageRow]) -> Value {
    let list = |name: fn(&CallUsageRow) -> (&str, &str)| {
        let mut sums: BTreeMap<(&str, &str), UsageSum> = BTreeMap::new();
        for row in rows {
            sums.entry(name(row)).or_default().add(row);
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(_, it)| std::cmp::Reverse(it.micros));
        sums.truncate(MAX_NAMES);
        let sums = sums.iter().map(|((name, server), sum)| {
            let mut json = sum.to_json();
            json["name"] = (*name).into();
            json["server"] = (*server).into();
            json
        });
        Value::from_iter(sums)
    };
    let mut total = UsageSum::default();
    rows.iter().for_each(|it| total.add(it));
    json!({
        "total": total.to_json(),
        "tools": list(|it| (it.tool.as_str(), it.server.as_str())),
        "servers": list(|it| (it.server.as_str(), it.server.as_str())),
        "callers": list(|it| (it.caller.as_str(), "")),
    })
}

/// An entry for every slot of the range, also for those without calls.
fn slots_json(rows: &[CallUsageRow], from: i64, to: i64, span: i64) -> Value {
    let mut sums: BTreeMap<i64, UsageSum> = BTreeMap::new();
    let mut slot = from;
    while slot <= to {
        sums.insert(slot, UsageSum::default());
        slot += span;
    }
    for row in rows {
        if let Some(sum) = sums.get_mut(&row.slot) {
            sum.add(row);
        }
    }
    let slots = sums.iter().map(|(slot, sum)| {
        let mut json = sum.to_json();
        json["at"] = (slot * 60_000).into();
        json
    });
    slots.collect()
}

impl Default for UsageSum {
    fn default() -> Self {
        Self {
            stats: MinuteStats::empty(0),
            micros: 0,
        }
    }
}

impl UsageSum {
    fn add(&mut self, row: &CallUsageRow) {
        let count = |it: i64| u32::try_from(it).unwrap_or(u32::MAX);
        let (calls, failures) = (count(row.calls), count(row.failures));
        self.stats.add_bucket(row.bucket, calls, failures);
        self.micros += row.micros;
    }

    fn to_json(&self) -> Value {
        let millis = |it: f64| (it * 100.0).round() / 100.0;
        json!({
            "calls": self.stats.calls,
            "errors": self.stats.errors,
            "totalMilliseconds": millis(self.micros as f64 / 1000.0),
            "p50": self.stats.quantile(0.5).map(millis),
            "p95": self.stats.quantile(0.95).map(millis),
        })
    }
}
