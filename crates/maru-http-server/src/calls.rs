//! `/api/calls` and `/api/stats`: calls and their statistics.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::{
    Extension,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::Response,
};
use maru_store::{AuditRow, CallFilter};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_observability::{
    audit::error_text,
    journal::{CallRecord, CallSeries, MinuteStats, ToolCallOutcome, mask_secrets, now_millis},
};
use maru_runtime::clock::{DAY_MS, now_ms};

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 500;
/// The maximum number of tools, and of servers, in one response.
const MAX_SERIES: usize = 200;

/// The query of `GET /api/calls`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallQuery {
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) server: Option<String>,
    pub(super) caller: Option<String>,
    pub(super) outcome: Option<String>,
    pub(super) text: Option<String>,
    /// Milliseconds.
    pub(super) slower: Option<f64>,
    pub(super) limit: Option<usize>,
    pub(super) cursor: Option<i64>,
}

/// `GET /api/calls`: searches the calls in the store, or those in memory if none are kept.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    query: Result<Query<CallQuery>, QueryRejection>,
    principal: Option<Extension<Principal>>,
) -> Response {
    let filter = query.map_err(|it| it.body_text());
    let filter = filter.and_then(|Query(it)| it.into_filter(now_ms()));
    let mut filter = match filter {
        Ok(filter) => filter,
        Err(message) => return json_error(StatusCode::BAD_REQUEST, &message, None),
    };
    match principal.map(|it| it.0) {
        Some(it) if it.role() == AccessRole::Admin => (),
        Some(it) => {
            let own = it.name().to_owned();
            if filter.caller.as_ref().is_some_and(|it| *it != own) {
                let message = format!("you see only your own calls, those of {own}");
                return json_error(StatusCode::FORBIDDEN, &message, None);
            }
            filter.caller = Some(own);
        }
        None => return json_error(StatusCode::UNAUTHORIZED, "sign in to see calls", None),
    }
    let found = if hub.audit.records_calls() {
        hub.audit.search_calls(&filter).await.map(Some)
    } else {
        Ok(None)
    };
    let (_, lost) = hub.audit.queue_depth();
    let body = match found {
        Ok(Some(page)) => json!({
            "calls": page.calls.iter().map(stored_json).collect::<Vec<_>>(),
            "cursor": page.next_before,
            "searchedTo": page.searched_to,
            "kept": true,
            "lost": lost,
        }),
        Ok(None) => search_memory(&hub, &filter, lost),
        Err(error) => {
            tracing::error!("failed to search the calls: {error}");
            search_memory(&hub, &filter, lost)
        }
    };
    reply::json(StatusCode::OK, body.to_string())
}

fn search_memory(hub: &HubState, filter: &CallFilter, lost: u64) -> Value {
    let journal = hub.engine.catalog().journal();
    let before = filter.before.and_then(|it| u64::try_from(it).ok());
    let is_match = |it: &CallRecord| matches_filter(it, filter);
    let records = journal.recent(before, filter.limit, is_match);
    let is_full = records.len() == filter.limit;
    json!({
        "calls": records.iter().map(|it| summary(hub, it)).collect::<Vec<_>>(),
        "cursor": records.last().filter(|_| is_full).map(|it| it.id),
        "searchedTo": null,
        "kept": false,
        "lost": lost,
    })
}

/// `GET /api/calls/{id}`, where the id is the number of the call, and `@` and the name of the
/// hub that numbered it if there are several.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Path(id): Path<String>,
    principal: Option<Extension<Principal>>,
) -> Response {
    let principal = principal.map(|it| it.0);
    let (number, call_hub) = id.split_once('@').unwrap_or((&id, ""));
    let Ok(number) = number.parse() else {
        return json_error(
            StatusCode::BAD_REQUEST,
            "is no number of a call",
            Some("id"),
        );
    };
    let is_own = call_hub.is_empty() || hub.own_name() == Some(call_hub);
    if is_own && let Some(record) = hub.engine.catalog().journal().get(number) {
        if may_see(principal.as_ref(), &record.request.principal) {
            return reply::json(StatusCode::OK, record_json(&hub, &record).to_string());
        }
        return call_not_found();
    }
    match hub.audit.find_call(number, call_hub).await {
        Ok(Some(row)) if may_see(principal.as_ref(), &row.principal) => {
            let mut shown = stored_json(&row);
            shown["arguments"] = row.arguments.as_str().into();
            shown["result"] = Value::Null;
            let kept = i64::try_from(row.arguments.len()).unwrap_or(i64::MAX);
            let sent = row.call.map_or(0, |it| it.argument_bytes);
            shown["cut"] =
                json!({"arguments": row.arguments.ends_with('…') && sent > kept, "result": true});
            reply::json(StatusCode::OK, shown.to_string())
        }
        Ok(_) => call_not_found(),
        Err(error) => {
            tracing::error!("failed to read a call: {error}");
            json_error(
                StatusCode::SERVICE_UNAVAILABLE,
                &error.public_message(),
                None,
            )
        }
    }
}

fn call_not_found() -> Response {
    let message = "this call is not kept any more, or it is the call of someone else";
    json_error(StatusCode::NOT_FOUND, message, None)
}

/// The JSON of a call in memory, with its arguments and result.
fn record_json(hub: &HubState, record: &CallRecord) -> Value {
    let mut shown = summary(hub, record);
    shown["arguments"] = mask_secrets(&record.request.arguments).into();
    shown["result"] = mask_secrets(&record.result).into();
    shown["cut"] = json!({
        "arguments": record.argument_bytes > record.request.arguments.len(),
        "result": record.result_bytes > record.result.len(),
    });
    shown
}

/// The JSON of a call without its arguments and result.
pub(super) fn summary(hub: &HubState, record: &CallRecord) -> Value {
    json!({
        "id": record.id,
        "hub": hub.own_name(),
        "time": record.ended_at,
        "tool": &*record.request.tool,
        "server": &*record.request.server,
        "principal": &*record.request.principal,
        "client": record.request.client.as_deref(),
        "outcome": record.outcome.as_str(),
        "error": error_text(record),
        "milliseconds": millis(record.duration.as_secs_f64()),
        "upstreamMilliseconds": millis(record.server_duration.as_secs_f64()),
        "argumentBytes": record.argument_bytes,
        "resultBytes": record.result_bytes,
        "request": record.request.request_id.to_string(),
    })
}

/// The same members of a call in the store.
pub(super) fn stored_json(row: &AuditRow) -> Value {
    let call = row.call.clone().unwrap_or_default();
    let micros = |it: i64| millis(it as f64 / 1_000_000.0);
    json!({
        "id": call.number,
        "hub": Some(&row.hub).filter(|it| !it.is_empty()),
        "time": row.at,
        "tool": row.target,
        "server": call.server,
        "principal": row.principal,
        "client": row.client,
        "outcome": row.outcome,
        "error": call.error,
        "milliseconds": micros(row.took_micros),
        "upstreamMilliseconds": micros(call.server_micros),
        "argumentBytes": call.argument_bytes,
        "resultBytes": call.result_bytes,
        "request": row.request,
    })
}

fn may_see(principal: Option<&Principal>, caller: &str) -> bool {
    principal.is_some_and(|it| it.role() == AccessRole::Admin || it.name() == caller)
}

fn matches_filter(record: &CallRecord, filter: &CallFilter) -> bool {
    let request = &record.request;
    let at = i64::try_from(record.ended_at).unwrap_or(i64::MAX);
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|it| it == found);
    let outcome = record.outcome.as_str();
    is(&filter.tool, &request.tool)
        && is(&filter.server, &request.server)
        && is(&filter.caller, &request.principal)
        && filter.since.is_none_or(|it| at >= it)
        && filter.until.is_none_or(|it| at < it)
        && (filter.outcomes.is_empty() || filter.outcomes.iter().any(|it| it == outcome))
        && (!filter.failed || record.outcome.is_error())
        && filter
            .min_micros
            .is_none_or(|it| record.duration.as_micros() >= it.unsigned_abs().into())
        && filter
            .text
            .as_deref()
            .is_none_or(|it| contains_text(record, &it.to_lowercase()))
}

fn contains_text(record: &CallRecord, wanted: &str) -> bool {
    let request = &record.request;
    let contains = |it: &str| it.to_lowercase().contains(wanted);
    contains(&request.tool)
        || contains(request.client.as_deref().unwrap_or_default())
        || contains(&mask_secrets(&request.arguments))
        || error_text(record).is_some_and(|it| contains(&it))
}

impl CallQuery {
    pub(super) fn into_filter(self, now: i64) -> Result<CallFilter, String> {
        let given = |it: Option<String>| it.filter(|it| !it.is_empty());
        let mut outcomes = Vec::new();
        let mut failed = false;
        for name in given(self.outcome).iter().flat_map(|it| it.split(',')) {
            if name == "error" {
                failed = true;
            } else if ToolCallOutcome::ALL.iter().any(|it| it.as_str() == name) {
                outcomes.push(name.to_owned());
            } else {
                return Err(format!(
                    "outcome: {name:?} is none of ok, failed, refused, timed_out, cancelled and error (failed, refused or timed out)"
                ));
            }
        }
        let is_error = |it: &String| matches!(it.as_str(), "failed" | "refused" | "timed_out");
        if failed && !outcomes.iter().all(is_error) {
            return Err("outcome: error cannot be combined with ok or cancelled".to_owned());
        }
        if failed {
            outcomes.clear();
        } else {
            // The index of failed calls serves these, too.
            failed = !outcomes.is_empty() && outcomes.iter().all(is_error);
        }
        Ok(CallFilter {
            since: time_parameter("since", self.since, now)?,
            until: time_parameter("until", self.until, now)?,
            tool: given(self.tool),
            server: given(self.server),
            caller: given(self.caller),
            outcomes,
            failed,
            text: given(self.text),
            min_micros: self.slower.map(|it| (it * 1000.0) as i64),
            before: self.cursor,
            limit: self
                .limit
                .unwrap_or(DEFAULT_PAGE_SIZE)
                .clamp(1, MAX_PAGE_SIZE),
        })
    }
}

/// The time in a parameter of a query; an empty one is none.
pub(super) fn time_parameter(
    name: &str,
    text: Option<String>,
    now: i64,
) -> Result<Option<i64>, String> {
    let Some(text) = text.filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    match parse_time(&text, now) {
        Some(time) => Ok(Some(time)),
        None => Err(format!(
            "{name}: {text:?} is not a time; give milliseconds since 1970, or a time before now such as 90s, 15m, 24h or 7d"
        )),
    }
}

/// Milliseconds since 1970, or a duration before `now`.
fn parse_time(text: &str, now: i64) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1000,
        'm' => 60_000,
        'h' => 3_600_000,
        'd' => DAY_MS,
        _ => return text.parse().ok(),
    };
    let count: i64 = text[..text.len() - 1].parse().ok()?;
    (count >= 0).then(|| now.saturating_sub(count.saturating_mul(unit)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(query: &str, expected: Result<fn(&CallFilter) -> bool, &str>) {
        let uri = format!("/?{query}").parse().unwrap();
        let Query(query) = Query::<CallQuery>::try_from_uri(&uri).unwrap();
        match (query.into_filter(1_000_000_000), expected) {
            (Ok(filter), Ok(is_right)) => assert!(is_right(&filter), "{filter:?}"),
            (Err(message), Err(expected)) => assert!(message.contains(expected), "{message}"),
            (found, _) => panic!("{found:?}"),
        }
    }

    #[test]
    fn query_is_parsed_or_explained() {
        check(
            "since=15m&until=999999999",
            Ok(|it| it.since == Some(999_100_000) && it.until == Some(999_999_999)),
        );
        check(
            "outcome=error",
            Ok(|it| it.failed && it.outcomes.is_empty()),
        );
        check(
            "outcome=failed,refused",
            Ok(|it| it.failed && it.outcomes.len() == 2),
        );
        check(
            "outcome=ok,failed&tool=&limit=9999",
            Ok(|it| !it.failed && it.tool.is_none() && it.limit == 500),
        );
        check("slower=1.5", Ok(|it| it.min_micros == Some(1500)));
        check("since=yesterday", Err("15m, 24h or 7d"));
        check("outcome=bad", Err("none of ok"));
        check("outcome=error,ok", Err("cannot be combined"));
    }
}
