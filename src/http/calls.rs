//! `/api/calls`, `/api/stats` and `/api/clients`: what was called, by whom, how it went.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Path, Query, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use crate::{
    auth::{AccessRole, Principal},
    downstream::http::reply,
    observability::journal::{CallRecord, CallSeries, MinuteStats, mask_secrets, now_millis},
};

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 500;
/// The most tools that one answer has figures of.
const MAX_SERIES: usize = 200;

/// `GET /api/calls`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Response {
    let number = |name: &str| query.get(name).and_then(|it| it.parse::<u64>().ok());
    let limit = number("limit").map_or(DEFAULT_PAGE_SIZE, |it| {
        usize::try_from(it).unwrap_or(DEFAULT_PAGE_SIZE)
    });
    let limit = limit.clamp(1, MAX_PAGE_SIZE);
    let principal = request.extensions().get::<Principal>();
    let wanted = |record: &CallRecord| may_see(principal, record) && matches_query(record, &query);
    let journal = hub.engine.catalog().journal();
    let mut found = journal.recent(number("before"), limit + 1, wanted);
    let more = found.len() > limit;
    found.truncate(limit);
    let calls: Vec<Value> = found.iter().map(|it| summary(it)).collect();
    reply::json(
        StatusCode::OK,
        json!({"calls": calls, "more": more}).to_string(),
    )
}

/// `GET /api/calls/{id}`.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Path(id): Path<u64>,
    request: Request,
) -> Response {
    let principal = request.extensions().get::<Principal>();
    let found = hub.engine.catalog().journal().get(id);
    let Some(record) = found.filter(|it| may_see(principal, it)) else {
        let why = "this call is not kept any more";
        return json_error(StatusCode::NOT_FOUND, why, None);
    };
    let mut shown = summary(&record);
    shown["arguments"] = mask_secrets(&record.asked.arguments).into();
    shown["result"] = mask_secrets(&record.result).into();
    shown["cut"] = json!({
        "arguments": record.argument_bytes > record.asked.arguments.len(),
        "result": record.result_bytes > record.result.len(),
    });
    reply::json(StatusCode::OK, shown.to_string())
}

/// A call, as lists show it.
pub(super) fn summary(record: &CallRecord) -> Value {
    json!({
        "id": record.id,
        "time": record.ended_at,
        "tool": &*record.asked.tool,
        "server": &*record.asked.server,
        "principal": &*record.asked.principal,
        "client": record.asked.client.as_deref(),
        "outcome": record.outcome.as_str(),
        "milliseconds": millis(record.duration.as_secs_f64()),
        "upstreamMilliseconds": millis(record.server_duration.as_secs_f64()),
        "argumentBytes": record.argument_bytes,
        "resultBytes": record.result_bytes,
    })
}

fn may_see(principal: Option<&Principal>, record: &CallRecord) -> bool {
    principal
        .is_some_and(|it| it.role() == AccessRole::Admin || it.name() == &*record.asked.principal)
}

fn matches_query(record: &CallRecord, query: &HashMap<String, String>) -> bool {
    let asked = &record.asked;
    query.iter().all(|(name, wanted)| match name.as_str() {
        "tool" => asked.tool.contains(wanted.as_str()),
        "server" => *asked.server == **wanted,
        "client" => {
            let client = asked.client.as_deref().unwrap_or_default();
            client.contains(wanted.as_str()) || *asked.principal == **wanted
        }
        "outcome" => wanted.split(',').any(|it| it == record.outcome.as_str()),
        "slower" => {
            let least = wanted.parse().unwrap_or(0.0);
            record.duration.as_secs_f64() * 1000.0 >= least
        }
        _ => true,
    })
}

/// `GET /api/stats`: the last hour, by minute.
pub(super) async fn stats(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let minutes = query.get("minutes").and_then(|it| it.parse::<u64>().ok());
    let minutes = minutes.unwrap_or(60).clamp(5, 60);
    let from = (now_millis() / 60_000).saturating_sub(minutes);
    let shown = hub.engine.catalog().journal().read_stats(|stats| {
        let server = query.get("server");
        let chosen = |it: &CallSeries| server.is_none_or(|name| *it.server == **name);
        let series = |name: &str, it: &CallSeries| {
            let mut shown = stats_json(&it.summary(from));
            shown["name"] = name.into();
            shown["server"] = (*it.server).into();
            shown["total"] = it.total.into();
            shown["minutes"] = by_minute(
                &it.minutes_after(from).cloned().collect::<Vec<_>>(),
                from,
                minutes,
            );
            shown
        };
        let of = |all: &ahash::AHashMap<Arc<str>, CallSeries>| -> Vec<Value> {
            let mut found: Vec<_> = all.iter().filter(|(_, it)| chosen(it)).collect();
            found.sort_by_key(|(name, it)| {
                (std::cmp::Reverse(it.summary(from).calls), Arc::clone(name))
            });
            found
                .into_iter()
                .take(MAX_SERIES)
                .map(|(name, it)| series(name, it))
                .collect()
        };
        let all: Vec<MinuteStats> = {
            let mut sums: std::collections::BTreeMap<u64, MinuteStats> = Default::default();
            for minute in stats
                .servers
                .values()
                .filter(|it| chosen(it))
                .flat_map(|it| it.minutes_after(from))
            {
                sums.entry(minute.minute)
                    .and_modify(|it| it.add(minute))
                    .or_insert_with(|| minute.clone());
            }
            sums.into_values().collect()
        };
        let mut total = MinuteStats::empty(from);
        all.iter().for_each(|it| total.add(it));
        let mut shown = stats_json(&total);
        shown["from"] = ((from + 1) * 60_000).into();
        shown["minutes"] = by_minute(&all, from, minutes);
        shown["servers"] = of(&stats.servers).into();
        shown["tools"] = of(&stats.tools).into();
        shown
    });
    reply::json(StatusCode::OK, shown.to_string())
}

/// Calls of each of the last 30 minutes, and how long they took.
pub(super) fn recent_stats(hub: &HubState, server: &str) -> Value {
    const RECENT_MINUTES: u64 = 30;
    let from = (now_millis() / 60_000).saturating_sub(RECENT_MINUTES);
    hub.engine.catalog().journal().read_stats(|stats| {
        let Some(series) = stats.servers.get(server) else {
            return Value::Null;
        };
        let mut calls = vec![0; 30];
        for minute in series.minutes_after(from) {
            let at = usize::try_from(minute.minute - from - 1).unwrap_or(usize::MAX);
            if let Some(slot) = calls.get_mut(at) {
                *slot = minute.calls;
            }
        }
        let mut shown = stats_json(&series.summary(from));
        shown["perMinute"] = calls.into();
        shown
    })
}

fn stats_json(all: &MinuteStats) -> Value {
    json!({
        "calls": all.calls,
        "errors": all.errors,
        "p50": all.quantile(0.5).map(|it| millis(it / 1000.0)),
        "p95": all.quantile(0.95).map(|it| millis(it / 1000.0)),
    })
}

fn by_minute(found: &[MinuteStats], from: u64, minutes: u64) -> Value {
    let at = |offset: u64| found.iter().find(|it| it.minute == from + 1 + offset);
    let column = |read: &dyn Fn(&MinuteStats) -> Value, none: Value| -> Value {
        (0..minutes)
            .map(|it| at(it).map_or_else(|| none.clone(), read))
            .collect()
    };
    let quantile = |share: f64| {
        move |it: &MinuteStats| it.quantile(share).map(|it| millis(it / 1000.0)).into()
    };
    json!({
        "calls": column(&|it| it.calls.into(), 0.into()),
        "errors": column(&|it| it.errors.into(), 0.into()),
        "p50": column(&quantile(0.5), Value::Null),
        "p95": column(&quantile(0.95), Value::Null),
    })
}

/// Milliseconds with as many digits as mean something.
fn millis(seconds: f64) -> f64 {
    (seconds * 100_000.0).round() / 100.0
}
