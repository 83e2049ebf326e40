//! `/api/call-usage`: which tools, servers and callers cost most, over an hour to 30 days.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use maru_store::{CallFilter, CallUsageFilter, CallUsageRow};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubState, calls::CallQuery, servers::json_error};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_observability::{
    audit::{USAGE_SLOT_MINUTES, usage_of},
    journal::MinuteStats,
};
use maru_runtime::clock::{DAY_MS, now_ms};

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

/// How far back calls are counted.
const MAX_RANGE_MS: i64 = 30 * DAY_MS;
/// Above this, only the newest calls that match are counted: the sums by time and name do not
/// have what these filters look at.
const MAX_COUNTED_CALLS: usize = 5000;

/// The query of `GET /api/call-usage`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallUsageQuery {
    range: Option<String>,
    /// Instead of a range.
    since: Option<String>,
    until: Option<String>,
    tool: Option<String>,
    server: Option<String>,
    caller: Option<String>,
    outcome: Option<String>,
    text: Option<String>,
    /// Milliseconds.
    slower: Option<f64>,
}

/// From when to when calls are counted, in minutes since 1970, and the minutes of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CountedTime {
    from: i64,
    until: i64,
    span: i64,
}

/// What was counted.
struct CountedCalls {
    by_name: Vec<CallUsageRow>,
    by_slot: Vec<CallUsageRow>,
    /// When the first call was, if earlier ones were not counted, in milliseconds since 1970.
    first_counted: Option<i64>,
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
    let parsed = query
        .map_err(|it| it.body_text())
        .and_then(|Query(it)| it.parse(now_ms()));
    let (time, mut filter) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return json_error(StatusCode::BAD_REQUEST, &message, None),
    };
    if principal.role() != AccessRole::Admin {
        filter.caller = Some(principal.name().to_owned());
    }
    let counted = if is_in_sums(&filter) {
        read_sums(&hub, &filter, time).await
    } else {
        count_calls(&hub, &filter, time).await
    };
    match counted {
        Ok(counted) => {
            let mut body = names_json(&counted.by_name);
            body["from"] = (time.from * 60_000).into();
            body["to"] = (time.until * 60_000).into();
            body["spanMinutes"] = time.span.into();
            body["kept"] = hub.audit.records_calls().into();
            body["firstCounted"] = counted.first_counted.into();
            body["slots"] = slots_json(&counted.by_slot, time);
            reply::json(StatusCode::OK, body.to_string())
        }
        Err(error) => {
            tracing::error!("failed to read the usage of calls: {error}");
            let message = error.public_message();
            json_error(StatusCode::SERVICE_UNAVAILABLE, &message, None)
        }
    }
}

impl CallUsageQuery {
    fn parse(self, now: i64) -> Result<(CountedTime, CallFilter), String> {
        let range = self.range;
        let query = CallQuery {
            since: self.since,
            until: self.until,
            tool: self.tool,
            server: self.server,
            caller: self.caller,
            outcome: self.outcome,
            text: self.text,
            slower: self.slower,
            ..CallQuery::default()
        };
        let mut filter = query.into_filter(now)?;
        let time = match (filter.since, filter.until) {
            (None, None) => CountedTime::of_range(range.as_deref().unwrap_or("1h"), now)?,
            (since, until) => {
                let until = until.unwrap_or(now).min(now);
                CountedTime::between(since.unwrap_or(i64::MIN), until)
            }
        };
        filter.since = Some(filter.since.unwrap_or(i64::MIN).max(time.from * 60_000));
        filter.limit = MAX_COUNTED_CALLS;
        Ok((time, filter))
    }
}

impl CountedTime {
    fn of_range(range: &str, now: i64) -> Result<Self, String> {
        let Some((_, minutes, span)) = RANGES.iter().find(|(name, ..)| *name == range) else {
            return Err(format!(
                "range: {range:?} is none of 1h, 6h, 24h, 7d and 30d"
            ));
        };
        let until = now / 60_000;
        let from = until - minutes;
        Ok(Self {
            from: from - from % span,
            until,
            span: *span,
        })
    }

    /// At most 30 days before `until`; the bars are those of the range that is as long.
    fn between(since: i64, until: i64) -> Self {
        let since = since.clamp(until.saturating_sub(MAX_RANGE_MS), until);
        let (from, until) = (since / 60_000, until / 60_000);
        let length = until - from;
        let range = RANGES.iter().find(|(_, minutes, _)| *minutes >= length);
        let (_, _, span) = range.unwrap_or(&RANGES[RANGES.len() - 1]);
        Self {
            from: from - from % span,
            until,
            span: *span,
        }
    }
}

/// Whether the sums have all that the filter looks at.
fn is_in_sums(filter: &CallFilter) -> bool {
    let looks_at_outcome = filter.failed || !filter.outcomes.is_empty();
    filter.text.is_none() && filter.min_micros.is_none() && !looks_at_outcome
}

async fn read_sums(
    hub: &HubState,
    filter: &CallFilter,
    time: CountedTime,
) -> Result<CountedCalls, maru_store::Error> {
    let sums = CallUsageFilter {
        from: time.from,
        until: Some(time.until + 1),
        tool: filter.tool.clone(),
        server: filter.server.clone(),
        caller: filter.caller.clone(),
    };
    Ok(CountedCalls {
        by_name: hub.audit.usage_by_name(&sums).await?,
        by_slot: hub.audit.usage_by_slot(&sums, time.span).await?,
        first_counted: None,
    })
}

async fn count_calls(
    hub: &HubState,
    filter: &CallFilter,
    time: CountedTime,
) -> Result<CountedCalls, maru_store::Error> {
    let page = hub.audit.search_calls(filter).await?;
    let calls = page.calls.iter().map(|it| usage_of(it, time.span));
    let calls: Vec<CallUsageRow> = calls.collect();
    let last = page.calls.last().map(|it| it.at);
    let first_counted = page.searched_to.or(last);
    Ok(CountedCalls {
        by_name: calls.clone(),
        by_slot: calls,
        first_counted: first_counted.filter(|_| page.next_before.is_some()),
    })
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
fn slots_json(rows: &[CallUsageRow], time: CountedTime) -> Value {
    let mut sums: BTreeMap<i64, UsageSum> = BTreeMap::new();
    let mut slot = time.from;
    while slot <= time.until {
        sums.insert(slot, UsageSum::default());
        slot += time.span;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_a_range_or_between_two_moments() {
        let now = 1_000_000 * 60_000;
        let time = |query: CallUsageQuery| query.parse(now).map(|(time, _)| time);
        let range = CallUsageQuery {
            range: Some("6h".to_owned()),
            ..CallUsageQuery::default()
        };
        let expected = CountedTime {
            from: 999_640,
            until: 1_000_000,
            span: 10,
        };
        assert_eq!(time(range), Ok(expected));
        let between = |since: i64, until: i64| CallUsageQuery {
            since: Some(since.to_string()),
            until: Some(until.to_string()),
            ..CallUsageQuery::default()
        };
        let an_hour = between(now - 7_200_000, now - 3_600_000);
        let expected = CountedTime {
            from: 999_880,
            until: 999_940,
            span: 5,
        };
        assert_eq!(time(an_hour), Ok(expected));
        // Neither years nor a reversed range makes more bars.
        let years = time(between(0, i64::MAX)).unwrap();
        assert_eq!((years.until - years.from) / years.span, 60);
        let reversed = time(between(now, now - 1)).unwrap();
        assert!(reversed.from <= reversed.until, "{reversed:?}");
        let unknown = CallUsageQuery {
            range: Some("1y".to_owned()),
            ..CallUsageQuery::default()
        };
        assert!(time(unknown).unwrap_err().contains("none of 1h"));
    }
}
