//! `maru usage`: prints what requests to models used and cost; sets budgets.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{HubClient, query_text},
    context::CliContext,
    known_names::{NameKind, print_similar_names},
    limits::names_of,
    serve::block_on,
    servers::percent_encode,
    suggestion::did_you_mean,
    terminal,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru usage                                        the last 30 days, by day and model
  maru usage --by caller --from 2026-11-01
  maru usage --caller bot -o json
  maru usage budgets
  maru usage set-budget bot-month --caller bot --period month --tokens 5000000
  maru usage remove-budget bot-month")]
pub(super) struct UsageArgs {
    #[command(subcommand)]
    action: Option<UsageAction>,
    /// First day, such as 2026-11-01 [default: 30 days up to the last one]
    #[arg(long, value_name = "DAY")]
    from: Option<String>,
    /// Last day [default: today, in UTC]
    #[arg(long, value_name = "DAY")]
    to: Option<String>,
    /// Only requests of this token
    #[arg(long)]
    caller: Option<String>,
    /// Only requests to this model
    #[arg(long)]
    model: Option<String>,
    /// Only requests that this backend answered, such as 127.0.0.1:11434
    #[arg(long)]
    backend: Option<String>,
    /// What rows are told apart by: day, caller, model, backend; several with commas
    #[arg(long, value_name = "COLUMNS", default_value = "day,model")]
    by: String,
}

#[derive(Debug, Subcommand)]
enum UsageAction {
    /// List the budgets and what is used of them
    Budgets,
    /// Add a budget, or replace the one with its name
    SetBudget(SetBudget),
    /// Remove a budget
    RemoveBudget {
        /// The name of the budget
        name: String,
    },
}

#[derive(Debug, Args)]
struct SetBudget {
    /// The name of the budget
    name: String,
    /// Only for requests of this token [default: all together]
    #[arg(long)]
    caller: Option<String>,
    /// Only for requests to this model [default: all together]
    #[arg(long)]
    model: Option<String>,
    /// When it begins anew, in UTC
    #[arg(long, value_parser = ["day", "month"])]
    period: String,
    /// Tokens that may be used, input and output together
    #[arg(long, conflicts_with = "money", required_unless_present = "money")]
    tokens: Option<i64>,
    /// Money that may be spent, by the prices of the models
    #[arg(long)]
    money: Option<f64>,
}

const BUDGETS_ROUTE: &str = "/api/budgets";

pub(super) fn run(context: &CliContext, options: &UsageArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        let response = options.send(&hub).await?;
        if response.is_null() {
            terminal::print(&options.format_response(&response))?;
        } else {
            context.print(&response, |it| options.format_response(it))?;
        }
        if response["rows"].as_array().is_some_and(Vec::is_empty) {
            let names = [
                (NameKind::Token, options.caller.as_deref()),
                (NameKind::Model, options.model.as_deref()),
            ];
            print_similar_names(&hub, &names).await;
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl UsageArgs {
    async fn send(&self, hub: &HubClient) -> Result<Value> {
        let budget_path = |name: &str| format!("{BUDGETS_ROUTE}/{}", percent_encode(name));
        match &self.action {
            None => hub.request_json("GET", &self.query_path(), None).await,
            Some(UsageAction::Budgets) => hub.request_json("GET", BUDGETS_ROUTE, None).await,
            Some(UsageAction::SetBudget(budget)) => {
                let (path, body) = (budget_path(&budget.name), budget.request_body());
                hub.request_json("PUT", &path, Some(&body)).await
            }
            Some(UsageAction::RemoveBudget { name }) => {
                let (status, response) = hub.send_rest("DELETE", &budget_path(name), None).await?;
                match status {
                    200..300 => Ok(response),
                    404 => {
                        let known = hub.request_json("GET", BUDGETS_ROUTE, None).await?;
                        let known = names_of(&known["budgets"], "name");
                        bail!(
                            "no budget is named {name:?}{}; see maru usage budgets",
                            did_you_mean(name, known)
                        )
                    }
                    _ => bail!("{}", hub.refusal(status, &response)),
                }
            }
        }
    }

    fn query_path(&self) -> String {
        let filters = [
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("caller", self.caller.as_deref()),
            ("model", self.model.as_deref()),
            ("backend", self.backend.as_deref()),
        ];
        let filters = query_text(&filters);
        format!("/api/usage?group={}{filters}", percent_encode(&self.by))
    }

    fn format_response(&self, response: &Value) -> String {
        match &self.action {
            None => format_usage(&self.by, response),
            Some(UsageAction::Budgets) => format_budgets(response),
            Some(UsageAction::SetBudget(budget)) => format!("{} is set\n", budget.name),
            Some(UsageAction::RemoveBudget { name }) => format!("{name} is removed\n"),
        }
    }
}

impl SetBudget {
    fn request_body(&self) -> Value {
        let mut body = json!({"caller": self.caller, "model": self.model, "period": self.period});
        match self.money {
            Some(money) => body["money"] = money.into(),
            None => body["tokens"] = self.tokens.into(),
        }
        body
    }
}

fn format_usage(by: &str, response: &Value) -> String {
    let groups: Vec<&str> = ["day", "caller", "model", "backend"]
        .into_iter()
        .filter(|it| by.split(',').any(|given| given == *it))
        .collect();
    let sums = [
        "requests",
        "errors",
        "input_tokens",
        "cached_tokens",
        "output_tokens",
        "reasoning_tokens",
        "first_token_ms",
        "duration_ms",
        "cost",
    ];
    let currency = response["currency"].as_str().unwrap_or_default();
    let titles = [
        "REQUESTS",
        "ERRORS",
        "INPUT",
        "CACHED",
        "OUTPUT",
        "REASONING",
        "FIRST MS",
        "MS",
        currency,
    ];
    let mut header: Vec<String> = groups.iter().map(|it| it.to_uppercase()).collect();
    header.extend(titles.map(str::to_owned));
    let mut rows = vec![header];
    for row in response["rows"].as_array().into_iter().flatten() {
        let mut cells: Vec<String> = groups.iter().map(|it| cell(&row[*it])).collect();
        cells.extend(sums.iter().map(|it| cell(&row[*it])));
        rows.push(cells);
    }
    if rows.len() > 2 && !groups.is_empty() {
        let mut cells = vec![String::new(); groups.len()];
        "total".clone_into(&mut cells[0]);
        cells.extend(sums.iter().map(|it| cell(&response["totals"][*it])));
        rows.push(cells);
    }
    terminal::format_table(&rows)
}

fn format_budgets(response: &Value) -> String {
    let header = [
        "NAME", "CALLER", "MODEL", "PERIOD", "LIMIT", "USED", "RESERVED", "RESETS", "FROM",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let currency = response["currency"].as_str().unwrap_or_default();
    let scope = |it: &Value| it.as_str().unwrap_or("all").to_owned();
    for it in response["budgets"].as_array().into_iter().flatten() {
        let limit = match &it["money"] {
            Value::Null => format!("{} tokens", it["tokens"]),
            money => format!("{} {currency}", cell(money)),
        };
        rows.push(vec![
            cell(&it["name"]),
            scope(&it["caller"]),
            scope(&it["model"]),
            cell(&it["period"]),
            limit,
            cell(&it["used"]),
            cell(&it["reserved"]),
            cell(&it["resets_at"]),
            cell(&it["from"]),
        ]);
    }
    terminal::format_table(&rows)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        // 20 and not 20.0, as JSON has it for money without a fraction.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_has_no_needless_fraction() {
        let budget = json!({"name": "day", "money": 20.0, "used": 1.0416, "reserved": 0.0});
        let shown = format_budgets(&json!({"currency": "USD", "budgets": [budget]}));
        let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[4..8], ["20", "USD", "1.0416", "0"]);
    }
}
