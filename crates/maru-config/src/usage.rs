//! Settings of what requests to models use and cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What requests to models use and cost, and budgets for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UsageSettings {
    /// The currency of prices and budgets, as it is displayed.
    #[schemars(length(min = 1, max = 8))]
    pub currency: String,
    /// Days that usage is kept.
    #[schemars(range(min = 1, max = 3650))]
    pub keep_days: u32,
    /// Budgets of callers and models. A request that does not fit into what is left gets 429 and is not sent.
    pub budgets: Vec<BudgetDefinition>,
}

/// A budget. It applies to the requests of one caller, to one model, or to both together; without either, to all requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetDefinition {
    /// Name of the budget.
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9._-]+$"))]
    pub name: String,
    /// Token name of the caller; `local` is for callers without a token.
    #[serde(default)]
    pub caller: Option<String>,
    /// Model name, as in `GET /api/usage`.
    #[serde(default)]
    pub model: Option<String>,
    /// `day` or `month`, in UTC.
    pub period: BudgetPeriod,
    /// Tokens that may be used in the period, input and output together. Either this or `money`.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000_000_000_i64))]
    pub tokens: Option<i64>,
    /// Money that may be spent in the period, by the prices of the models.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub money: Option<f64>,
}

/// How long a budget lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum BudgetPeriod {
    /// A day.
    Day,
    /// A calendar month.
    Month,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self {
            currency: "USD".to_owned(),
            keep_days: 400,
            budgets: Vec::new(),
        }
    }
}
