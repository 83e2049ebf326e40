//! `/api/usage`: what requests to models used and cost. `/api/budgets`: their budgets.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use maru_llm::{BudgetStatus, SaveBudgetError};
use maru_runtime::clock;
use maru_store::{ModelUsageFilter, ModelUsageRow, UsageTotals};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use maru_config::{BudgetDefinition, BudgetPeriod};
use maru_downstream::http::reply;

/// Days that are summed up unless the query says from which on.
const DEFAULT_DAYS: i64 = 30;
/// The most rows of one response.
const MAX_USAGE_ROWS: i64 = 10_000;
const GROUPS: [&str; 4] = ["day", "caller", "model", "backend"];
const SUM_NAMES: [&str; 7] = [
    "requests",
    "errors",
    "estimated",
    "input_tokens",
    "cached_tokens",
    "output_tokens",
    "reasoning_tokens",
];
const CSV: HeaderValue = HeaderValue::from_static("text/csv; charset=utf-8");

/// The query of `GET /api/usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsageQuery {
    from: Option<String>,
    to: Option<String>,
    caller: Option<String>,
    model: Option<String>,
    backend: Option<String>,
    group: Option<String>,
    format: Option<String>,
}

/// `GET /api/usage`.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<UsageQuery>,
) -> Response {
    let (filter, is_csv) = match query.parse() {
        Ok(parsed) => parsed,
        Err((field, message)) => {
            return json_error(StatusCode::BAD_REQUEST, &message, Some(field));
        }
    };
    let mut rows = match hub.usage.sum(&filter).await {
        Ok(rows) => rows,
        Err(error) => return store_error_response(&error),
    };
    let is_truncated = rows.len() > row_limit();
    rows.truncate(row_limit());
    if is_csv {
        return csv_response(&filter, &rows);
    }
    let mut totals = UsageTotals::default();
    for row in &rows {
        totals.add(&row.totals);
    }
    let rows: Vec<Value> = rows.iter().map(|it| row_json(&filter, it)).collect();
    let shown = json!({
        "currency": hub.usage.currency(),
        "from": clock::format_day(filter.first_day),
        "to": clock::format_day(filter.last_day),
        "rows": rows,
        "totals": totals_json(&totals),
        "truncated": is_truncated,
    });
    reply::json(StatusCode::OK, shown.to_string())
}

impl UsageQuery {
    /// What it selects, and whether the response is CSV; or the parameter at fault and what
    /// is wrong with it.
    fn parse(self) -> Result<(ModelUsageFilter, bool), (&'static str, String)> {
        let day = |name: &'static str, given: Option<&String>, default: i64| {
            let Some(text) = given else {
                return Ok(default);
            };
            let day = clock::parse_day(text);
            day.ok_or_else(|| (name, format!("{text:?} is not a day; write 2026-11-18")))
        };
        let last_day = day("to", self.to.as_ref(), clock::today())?;
        let first_day = day("from", self.from.as_ref(), last_day + 1 - DEFAULT_DAYS)?;
        let is_csv = match self.format.as_deref() {
            None | Some("json") => false,
            Some("csv") => true,
            Some(_) => return Err(("format", "the format is json or csv".to_owned())),
        };
        let mut filter = ModelUsageFilter {
            first_day,
            last_day,
            caller: self.caller,
            model: self.model,
            backend: self.backend,
            limit: MAX_USAGE_ROWS + 1,
            ..ModelUsageFilter::default()
        };
        let group = self.group.unwrap_or_else(|| GROUPS.join(","));
        for name in group.split(',').filter(|it| !it.is_empty()) {
            match name {
                "day" => filter.by_day = true,
                "caller" => filter.by_caller = true,
                "model" => filter.by_model = true,
                "backend" => filter.by_backend = true,
                _ => {
                    let known = GROUPS.join(", ");
                    return Err(("group", format!("{name:?} is not one of {known}")));
                }
            }
        }
        Ok((filter, is_csv))
    }
}

fn row_limit() -> usize {
    usize::try_from(MAX_USAGE_ROWS).unwrap_or(usize::MAX)
}

/// The columns that tell rows apart, with their values.
fn group_columns(filter: &ModelUsageFilter, row: &ModelUsageRow) -> Vec<(&'static str, String)> {
    let columns = [
        (filter.by_day, "day", clock::format_day(row.day)),
        (filter.by_caller, "caller", row.caller.clone()),
        (filter.by_model, "model", row.model.clone()),
        (filter.by_backend, "backend", row.backend.clone()),
    ];
    let shown = columns.into_iter().filter(|(is_shown, ..)| *is_shown);
    shown.map(|(_, name, value)| (name, value)).collect()
}

fn row_json(filter: &ModelUsageFilter, row: &ModelUsageRow) -> Value {
    let groups = group_columns(filter, row).into_iter();
    let mut shown: Map<String, Value> = groups
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    shown.extend(totals_json(&row.totals));
    shown.into()
}

fn totals_json(totals: &UsageTotals) -> Map<String, Value> {
    let mut shown = Map::new();
    for (name, sum) in SUM_NAMES.into_iter().zip(sums(totals)) {
        shown.insert(name.to_owned(), sum.into());
    }
    for (name, mean) in [
        (
            "first_token_ms",
            mean(totals.first_token_ms, totals.responses),
        ),
        ("duration_ms", mean(totals.duration_ms, totals.requests)),
    ] {
        shown.insert(name.to_owned(), mean.into());
    }
    shown.insert("cost".to_owned(), money(totals.cost).into());
    shown
}

fn sums(totals: &UsageTotals) -> [i64; 7] {
    [
        totals.requests,
        totals.errors,
        totals.estimated,
        totals.input_tokens,
        totals.cached_tokens,
        totals.output_tokens,
        totals.reasoning_tokens,
    ]
}

/// The mean, if there is any.
fn mean(sum: i64, count: i64) -> Option<i64> {
    sum.checked_div(count)
}

/// Billionths of the currency as an amount.
#[expect(
    clippy::cast_precision_loss,
    reason = "amounts below nine million are exact to a billionth"
)]
fn money(billionths: i64) -> f64 {
    billionths as f64 / 1e9
}

fn csv_response(filter: &ModelUsageFilter, rows: &[ModelUsageRow]) -> Response {
    let groups = group_columns(filter, &ModelUsageRow::default());
    let mut header: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
    header.extend(SUM_NAMES);
    header.extend(["first_token_ms", "duration_ms", "cost"]);
    let mut text = header.join(",");
    text.push_str("\r\n");
    for row in rows {
        let groups = group_columns(filter, row).into_iter();
        let mut cells: Vec<String> = groups.map(|(_, value)| csv_cell(&value)).collect();
        cells.extend(sums(&row.totals).iter().map(ToString::to_string));
        let totals = &row.totals;
        for mean in [
            mean(totals.first_token_ms, totals.responses),
            mean(totals.duration_ms, totals.requests),
        ] {
            cells.push(mean.map_or_else(String::new, |it| it.to_string()));
        }
        cells.push(money(totals.cost).to_string());
        text.push_str(&cells.join(","));
        text.push_str("\r\n");
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, CSV);
    response
}

/// A quoted cell. A spreadsheet would run a name that begins like a formula.
fn csv_cell(text: &str) -> String {
    let prefix = if text.starts_with(['=', '+', '-', '@', '\t']) {
        "'"
    } else {
        ""
    };
    format!("\"{prefix}{}\"", text.replace('"', "\"\""))
}

/// `GET /api/budgets`.
pub(super) async fn list_budgets(State(hub): State<Arc<HubState>>) -> Response {
    let budgets = hub.usage.budgets();
    let shown: Vec<Value> = budgets.iter().map(budget_json).collect();
    let shown = json!({"currency": hub.usage.currency(), "budgets": shown});
    reply::json(StatusCode::OK, shown.to_string())
}

/// `PUT /api/budgets/{name}`.
pub(super) async fn save_budget(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let bad_request = |message: &str| json_error(StatusCode::BAD_REQUEST, message, None);
    let Value::Object(mut members) = body else {
        return bad_request(
            "the body must be an object such as {\"period\": \"month\", \"tokens\": 1000000}",
        );
    };
    members.insert("name".to_owned(), name.as_str().into());
    let definition: BudgetDefinition = match serde_json::from_value(members.into()) {
        Ok(definition) => definition,
        Err(error) => return bad_request(&error.to_string()),
    };
    match hub.usage.save_budget(&definition).await {
        Ok(()) => {
            let budgets = hub.usage.budgets();
            let saved = budgets.iter().find(|it| it.definition.name == name);
            let shown = saved.map_or(Value::Null, budget_json);
            reply::json(StatusCode::OK, shown.to_string())
        }
        Err(error) => save_error_response(&error),
    }
}

/// `DELETE /api/budgets/{name}`.
pub(super) async fn remove_budget(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    match hub.usage.remove_budget(&name).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => json_error(StatusCode::NOT_FOUND, "there is no such budget", None),
        Err(error) => save_error_response(&error),
    }
}

fn budget_json(budget: &BudgetStatus) -> Value {
    let definition = &budget.definition;
    let amount = |amount: i64| match definition.money {
        Some(_) => Value::from(money(amount)),
        None => Value::from(amount),
    };
    let mut shown = json!({
        "name": definition.name,
        "caller": definition.caller,
        "model": definition.model,
        "period": match definition.period {
            BudgetPeriod::Day => "day",
            BudgetPeriod::Month => "month",
        },
        "used": amount(budget.used),
        "reserved": amount(budget.reserved),
        "resets_at": clock::format_rfc3339(budget.resets_on * clock::DAY_MS),
        "from": if budget.from_settings { "settings" } else { "api" },
    });
    match definition.money {
        Some(money) => shown["money"] = money.into(),
        None => shown["tokens"] = definition.tokens.into(),
    }
    shown
}

fn save_error_response(error: &SaveBudgetError) -> Response {
    match error {
        SaveBudgetError::Store(error) => store_error_response(error),
        SaveBudgetError::Invalid(message) => json_error(StatusCode::BAD_REQUEST, message, None),
        SaveBudgetError::DefinedInSettings(_) => {
            json_error(StatusCode::CONFLICT, &error.to_string(), None)
        }
    }
}

fn store_error_response(error: &maru_store::Error) -> Response {
    tracing::error!("failed to read or change usage or budgets: {error}");
    json_error(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.public_message(),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_csv_cell_or_be_formulas() {
        assert_eq!(csv_cell("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(csv_cell("=1+1"), "\"'=1+1\"");
        assert_eq!(csv_cell("qwen3:8b"), "\"qwen3:8b\"");
    }
}
