//! `/api/calls` and `/api/stats`: recent calls and their statistics.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{
    extract::{Path, Query, Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_observability::journal::{CallRecord, CallSeries, MinuteStats, mask_secrets, now_millis};

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 500;
/// The maximum number of tools, and of servers, in one response.
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
    let is_match =
        |record: &CallRecord| may_see(principal, record) && matches_query(record, &query);
    let journal = hub.engine.catalog().journal();
    let mut records = journal.recent(number("before"), limit + 1, is_match);
    let more = records.len() > limit;
    records.truncate(limit);
    let calls: Vec<Value> = records.iter().map(|it| summary(it)).collect();
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
    let record = hub.engine.catalog().journal().get(id);
    let Some(record) = record.filter(|it| may_see(principal, it)) else {
        let message = "the journal no longer has this call";
        return json_error(StatusCode::NOT_FOUND, message, None);
    };
    let mut shown = summary(&record);
    shown["arguments"] = mask_secrets(&record.request.arguments).into();
    shown["result"] = mask_secrets(&record.result).into();
    shown["cut"] = json!({
        "arguments": record.argument_bytes > record.request.arguments.len(),
        "result": record.result_bytes > record.result.len(),
    });
    reply::json(StatusCode::OK, shown.to_string())
}

/// The JSON of a call without its arguments and result.
pub(super) fn summary(record: &CallRecord) -> Value {
    json!({
        "id": record.id,
        "time": record.ended_at,
        "tool": &*record.request.tool,
        "server": &*record.request.server,
        "principal": &*record.request.principal,
        "client": record.request.client.as_deref(),
        "outcome": record.outcome.as_str(),
        "milliseconds": millis(record.duration.as_secs_f64()),
        "upstreamMilliseconds": millis(record.server_duration.as_secs_f64()),
        "argumentBytes": record.argument_bytes,
        "resultBytes": record.result_bytes,
    })
}

fn may_see(principal: Option<&Principal>, record: &CallRecord) -> bool {
    principal
        .is_some_and(|it| it.role() == AccessRole::Admin || it.name() == &*record.request.principal)
}

fn matches_query(record: &CallRecord, query: &HashMap<String, String>) -> bool {
    let request = &record.request;
    query.iter().all(|(name, wanted)| match name.as_str() {
        "tool" => request.tool.contains(wanted.as_str()),
        "server" => *request.server == **wanted,
        "client" => {
            let client = request.client.as_deref().unwrap_or_default();
            client.contains(wanted.as_str()) || *request.principal == **wanted
        }
        "outcome" => wanted.split(',').any(|it| it == record.outcome.as_str()),
        "slower" => {
            let least = wanted.parse().unwrap_or(0.0);
            record.duration.as_secs_f64() * 1000.0 >= least
        }
        _ => true,
    })
}

/// `GET /api/stats`: statistics of up to an hour by minute, server and tool.
pub(super) async fn stats(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let minutes = query.get("minutes").and_then(|it| it.parse::<u64>().ok());
    let minutes = minutes.unwrap_or(60).clamp(5, 60);
    let from = (now_millis() / 60_000).saturating_sub(minutes);
    let server = query.get("server");
    let is_selected = |it: &CallSeries| server.is_none_or(|name| *it.server == **name);
    let body = hub.engine.catalog().journal().read_stats(|stats| {
        let series_json = |name: &str, series: &CallSeries| {
            let by_minute_stats: Vec<MinuteStats> = series.minutes_after(from).cloned().collect();
            let mut json = stats_json(&series.summary(from));
            json["name"] = name.into();
            json["server"] = (*series.server).into();
            json["total"] = series.total.into();
            json["minutes"] = by_minute(&by_minute_stats, from, minutes);
            json
        };
        let list_json = |all: &ahash::AHashMap<Arc<str>, CallSeries>| -> Vec<Value> {
            let mut selected: Vec<_> = all.iter().filter(|(_, it)| is_selected(it)).collect();
            selected.sort_by_key(|(name, it)| {
                (std::cmp::Reverse(it.summary(from).calls), Arc::clone(name))
            });
            selected
                .into_iter()
                .take(MAX_SERIES)
                .map(|(name, it)| series_json(name, it))
                .collect()
        };
        let servers = stats.servers.values().filter(|it| is_selected(it));
        let minutes_of_all = sum_by_minute(servers.flat_map(|it| it.minutes_after(from)));
        let mut total = MinuteStats::empty(from);
        minutes_of_all.iter().for_each(|it| total.add(it));
        let mut body = stats_json(&total);
        body["from"] = ((from + 1) * 60_000).into();
        body["minutes"] = by_minute(&minutes_of_all, from, minutes);
        body["servers"] = list_json(&stats.servers).into();
        body["tools"] = list_json(&stats.tools).into();
        body
    });
    reply::json(StatusCode::OK, body.to_string())
}

fn sum_by_minute<'a>(stats: impl Iterator<Item = &'a MinuteStats>) -> Vec<MinuteStats> {
    let mut sums: BTreeMap<u64, MinuteStats> = BTreeMap::new();
    for minute in stats {
        sums.entry(minute.minute)
            .and_modify(|it| it.add(minute))
            .or_insert_with(|| minute.clone());
    }
    sums.into_values().collect()
}

/// The statistics of a server over the last 30 minutes, with its calls per minute.
pub(super) fn recent_stats(hub: &HubState, server: &str) -> Value {
    const RECENT_MINUTES: u64 = 30;
    let from = (now_millis() / 60_000).saturating_sub(RECENT_MINUTES);
    hub.engine.catalog().journal().read_stats(|stats| {
        let Some(series) = stats.servers.get(server) else {
            return Value::Null;
        };
        let mut calls = vec![0; 30];
        for minute in series.minutes_after(from) {
            let index = usize::try_from(minute.minute - from - 1).unwrap_or(usize::MAX);
            if let Some(count) = calls.get_mut(index) {
                *count = minute.calls;
            }
        }
        let mut recent = stats_json(&series.summary(from));
        recent["perMinute"] = calls.into();
        recent
    })
}

fn stats_json(stats: &MinuteStats) -> Value {
    json!({
        "calls": stats.calls,
        "errors": stats.errors,
        "p50": stats.quantile(0.5).map(|it| millis(it / 1000.0)),
        "p95": stats.quantile(0.95).map(|it| millis(it / 1000.0)),
    })
}

/// One list per figure, with an entry for each of `minutes` minutes after `from`.
fn by_minute(stats: &[MinuteStats], from: u64, minutes: u64) -> Value {
    let at = |offset: u64| stats.iter().find(|it| it.minute == from + 1 + offset);
    let column = |read: &dyn Fn(&MinuteStats) -> Value, default: Value| -> Value {
        (0..minutes)
            .map(|it| at(it).map_or_else(|| default.clone(), read))
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

/// Milliseconds with two decimals.
fn millis(seconds: f64) -> f64 {
    (seconds * 100_000.0).round() / 100.0
}
