//! One budget: whom it applies to, what is used of it and what is reserved. Pure.

use std::time::Duration;

use maru_config::{BudgetDefinition, BudgetPeriod};
use maru_runtime::clock;
use maru_store::{ModelBudgetRow, ModelUsageFilter, UsageTotals};

use super::{super::Error, UsageKey};

/// Billionths of the currency in one unit of it.
const NANOS: f64 = 1e9;
const TOKENS_UNIT: &str = "tokens";
const MONEY_UNIT: &str = "money";
/// Rows that the usage of a budget is summed up into.
const MAX_SUMS: i64 = 1;

/// A budget and its state.
#[derive(Debug)]
pub(super) struct Budget {
    definition: BudgetDefinition,
    from_settings: bool,
    /// Tokens, or billionths of the currency.
    maximum: i64,
    used: i64,
    reserved: i64,
    /// The first day of the period that `used` belongs to.
    period_start: i64,
}

/// A budget as it is displayed.
#[derive(Clone, Debug)]
pub struct BudgetStatus {
    /// The budget.
    pub definition: BudgetDefinition,
    /// Whether the settings define it.
    pub from_settings: bool,
    /// Tokens, or billionths of the currency, used in this period.
    pub used: i64,
    /// Expected to be used by requests in progress.
    pub reserved: i64,
    /// The day on which the next period begins, counted from the Unix epoch.
    pub resets_on: i64,
}

/// Why a budget was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SaveBudgetError {
    /// The definition is invalid.
    #[error("{0}")]
    Invalid(String),
    /// It can be changed only there.
    #[error("the budget \"{0}\" is defined in maru.yaml; change it there, or choose another name")]
    DefinedInSettings(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}

/// Says what is wrong with a definition, if anything.
pub(in super::super) fn validate(definition: &BudgetDefinition) -> Result<(), String> {
    let name = &definition.name;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
        return Err(
            "the name of a budget must have 1 to 64 letters, digits, dots, dashes or underscores"
                .to_owned(),
        );
    }
    for scope in [&definition.caller, &definition.model]
        .into_iter()
        .flatten()
    {
        if scope.is_empty() || scope.len() > 256 || scope.chars().any(char::is_control) {
            return Err(format!(
                "caller and model of the budget \"{name}\" must have 1 to 256 characters; leave them out for all"
            ));
        }
    }
    let is_valid = match (definition.tokens, definition.money) {
        (Some(tokens), None) => (0..=1_000_000_000_000_000).contains(&tokens),
        (None, Some(money)) => (0.0..=1e9).contains(&money),
        _ => false,
    };
    is_valid.then_some(()).ok_or_else(|| {
        format!("the budget \"{name}\" needs either `tokens` or `money`, a number from 0 on")
    })
}

/// The row of the store for a definition.
pub(super) fn to_row(definition: &BudgetDefinition) -> ModelBudgetRow {
    let unit = if definition.tokens.is_some() {
        TOKENS_UNIT
    } else {
        MONEY_UNIT
    };
    ModelBudgetRow {
        name: definition.name.clone(),
        caller: definition.caller.clone(),
        model: definition.model.clone(),
        period: period_name(definition.period).to_owned(),
        unit: unit.to_owned(),
        maximum: maximum(definition),
    }
}

/// The definition in a row of the store; `None` if it is not understood.
#[expect(
    clippy::cast_precision_loss,
    reason = "an amount of money below a billion"
)]
pub(super) fn from_row(row: ModelBudgetRow) -> Option<BudgetDefinition> {
    let is_money = row.unit == MONEY_UNIT;
    Some(BudgetDefinition {
        name: row.name,
        caller: row.caller,
        model: row.model,
        period: match row.period.as_str() {
            "day" => BudgetPeriod::Day,
            "month" => BudgetPeriod::Month,
            _ => return None,
        },
        tokens: (!is_money).then_some(row.maximum),
        money: is_money.then_some(row.maximum as f64 / NANOS),
    })
}

/// The name of a period in the API and the store.
pub(super) fn period_name(period: BudgetPeriod) -> &'static str {
    match period {
        BudgetPeriod::Day => "day",
        BudgetPeriod::Month => "month",
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the cast saturates, and settings allow a billion"
)]
fn maximum(definition: &BudgetDefinition) -> i64 {
    let money = || (definition.money.unwrap_or(0.0) * NANOS).round() as i64;
    definition.tokens.unwrap_or_else(money)
}

impl Budget {
    pub(super) fn new(definition: BudgetDefinition, from_settings: bool, today: i64) -> Self {
        Self {
            maximum: maximum(&definition),
            period_start: period_start(definition.period, today),
            from_settings,
            used: 0,
            reserved: 0,
            definition,
        }
    }

    /// Selects the usage of this period.
    pub(super) fn usage_filter(&self, today: i64) -> ModelUsageFilter {
        ModelUsageFilter {
            first_day: self.period_start,
            last_day: today,
            caller: self.definition.caller.clone(),
            model: self.definition.model.clone(),
            limit: MAX_SUMS,
            ..ModelUsageFilter::default()
        }
    }

    pub(super) fn applies_to(&self, caller: &str, model: &str) -> bool {
        let matches =
            |scope: &Option<String>, name: &str| scope.as_deref().is_none_or(|it| it == name);
        matches(&self.definition.caller, caller) && matches(&self.definition.model, model)
    }

    /// Whether reservations of one count for the other.
    pub(super) fn has_scope_of(&self, other: &Self) -> bool {
        let scope = |it: &Self| {
            let unit = it.definition.tokens.is_some();
            let BudgetDefinition { caller, model, .. } = &it.definition;
            (
                it.definition.name.clone(),
                caller.clone(),
                model.clone(),
                unit,
            )
        };
        scope(self) == scope(other)
    }

    /// Takes over what is reserved.
    pub(super) fn take_reservations(&mut self, old: &Self) {
        self.reserved = old.reserved;
    }

    pub(super) fn add(&mut self, totals: &UsageTotals, today: i64) {
        self.begin_period(today);
        let used = if self.definition.tokens.is_some() {
            totals.input_tokens.saturating_add(totals.output_tokens)
        } else {
            totals.cost
        };
        self.used = self.used.saturating_add(used);
    }

    pub(super) fn add_if_matching(&mut self, key: &UsageKey, totals: &UsageTotals, today: i64) {
        if key.day >= self.period_start && self.applies_to(&key.caller, &key.model) {
            self.add(totals, today);
        }
    }

    /// Whether a request that is expected to use so much fits into what is left.
    pub(super) fn check(&mut self, tokens: i64, cost: i64, today: i64) -> Result<(), Error> {
        self.begin_period(today);
        let expected = self.share(tokens, cost);
        let after = self.used.saturating_add(self.reserved);
        // A request that costs nothing fits into a budget of money until that is used up.
        if after < self.maximum && after.saturating_add(expected) <= self.maximum {
            return Ok(());
        }
        let now = clock::now_ms();
        let resets_at = self.resets_on(today) * clock::DAY_MS;
        Err(Error::BudgetExceeded {
            budget: self.definition.name.clone(),
            reason: self.describe(expected, resets_at),
            retry_after: Duration::from_millis((resets_at - now).unsigned_abs()),
        })
    }

    /// Reserves, or with negative numbers releases.
    pub(super) fn reserve(&mut self, tokens: i64, cost: i64) {
        let share = self.share(tokens, cost);
        // A budget that was made meanwhile knows nothing of the reservation.
        self.reserved = self.reserved.saturating_add(share).max(0);
    }

    pub(super) fn status(&mut self, today: i64) -> BudgetStatus {
        self.begin_period(today);
        BudgetStatus {
            definition: self.definition.clone(),
            from_settings: self.from_settings,
            used: self.used,
            reserved: self.reserved,
            resets_on: self.resets_on(today),
        }
    }

    fn share(&self, tokens: i64, cost: i64) -> i64 {
        if self.definition.tokens.is_some() {
            tokens
        } else {
            cost
        }
    }

    fn begin_period(&mut self, today: i64) {
        let start = period_start(self.definition.period, today);
        if start != self.period_start {
            self.period_start = start;
            self.used = 0;
        }
    }

    fn resets_on(&self, today: i64) -> i64 {
        match self.definition.period {
            BudgetPeriod::Day => today + 1,
            BudgetPeriod::Month => clock::next_month_start(today),
        }
    }

    fn describe(&self, expected: i64, resets_at: i64) -> String {
        let show = |amount: i64| self.format_amount(amount);
        let unit = if self.definition.tokens.is_some() {
            " tokens"
        } else {
            ""
        };
        format!(
            "{} of {}{unit} a {} are used, requests in progress reserve {}, and this one needs about {}; it resets at {}",
            show(self.used),
            show(self.maximum),
            period_name(self.definition.period),
            show(self.reserved),
            show(expected),
            clock::format_rfc3339(resets_at),
        )
    }

    #[expect(clippy::cast_precision_loss, reason = "an amount of money for people")]
    fn format_amount(&self, amount: i64) -> String {
        if self.definition.tokens.is_some() {
            amount.to_string()
        } else {
            format!("{:.6}", amount as f64 / NANOS)
        }
    }
}

fn period_start(period: BudgetPeriod, today: i64) -> i64 {
    match period {
        BudgetPeriod::Day => today,
        BudgetPeriod::Month => clock::month_start(today),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(tokens: i64) -> Budget {
        let definition = BudgetDefinition {
            name: "b".to_owned(),
            caller: Some("bot".to_owned()),
            model: None,
            period: BudgetPeriod::Day,
            tokens: Some(tokens),
            money: None,
        };
        Budget::new(definition, false, 100)
    }

    #[test]
    fn used_and_reserved_tokens_bound_requests_until_the_next_period() {
        let mut budget = budget(100);
        assert!(budget.applies_to("bot", "m") && !budget.applies_to("other", "m"));
        assert!(budget.check(101, 0, 100).is_err());
        budget.check(60, 0, 100).unwrap();
        budget.reserve(60, 0);
        assert!(budget.check(60, 0, 100).is_err());
        let used = UsageTotals {
            input_tokens: 70,
            output_tokens: 30,
            ..UsageTotals::default()
        };
        budget.add(&used, 100);
        budget.reserve(-60, 0);
        assert!(budget.check(0, 0, 100).is_err());
        budget.check(100, 0, 101).unwrap();
    }

    #[test]
    fn definition_survives_the_store_and_invalid_ones_are_refused() {
        let definition = budget(5).definition;
        assert_eq!(from_row(to_row(&definition)), Some(definition.clone()));
        let money = BudgetDefinition {
            tokens: None,
            money: Some(2.5),
            ..definition
        };
        assert_eq!(to_row(&money).maximum, 2_500_000_000);
        assert_eq!(from_row(to_row(&money)), Some(money.clone()));
        validate(&money).unwrap();
        let both = BudgetDefinition {
            tokens: Some(1),
            ..money.clone()
        };
        let neither = BudgetDefinition {
            money: None,
            ..money.clone()
        };
        let unnamed = BudgetDefinition {
            name: "a b".to_owned(),
            ..money
        };
        for wrong in [both, neither, unnamed] {
            assert!(validate(&wrong).is_err(), "{wrong:?}");
        }
    }
}
