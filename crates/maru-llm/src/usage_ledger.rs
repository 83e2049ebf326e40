//! Counts what requests to models use: in memory at once, and in the store in batches.

mod budget;
mod flush;
mod meter;
mod token_estimate;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use maru_config::{BudgetDefinition, UsageSettings};
use maru_observability::metrics::OTHER_NAMES;
use maru_runtime::{clock, tasks::Tasks};
use maru_store::{ModelUsageFilter, ModelUsageRow, Store, UsageTotals};

use super::{Error, chat::random_id};
use budget::Budget;
use flush::FlushState;

pub use budget::{BudgetStatus, SaveBudgetError};
pub use meter::EmbeddingMeter;
pub(super) use meter::{MAX_COUNTED_TOKENS, MeteredModel, RequestMeter, RequestUsage};
pub(super) use token_estimate::TokenEstimate;

/// Rows that may wait to be written; more are counted together under [`OTHER_NAMES`].
const MAX_PENDING_ROWS: usize = 10_000;
/// Names of models that callers chose and that are counted apart, in one day.
const MAX_CHOSEN_NAMES: usize = 1000;
const MAX_BUDGETS: usize = 1000;

/// What requests to models use, and the budgets for it.
#[derive(Debug)]
pub struct UsageLedger {
    store: Store,
    state: Mutex<LedgerState>,
    /// Held while a batch is written, or while sums of the store are compared with memory.
    flushing: tokio::sync::Mutex<FlushState>,
}

#[derive(Debug)]
struct LedgerState {
    settings: UsageSettings,
    /// What is in no batch yet.
    pending: HashMap<UsageKey, UsageTotals>,
    budgets: Vec<Budget>,
    /// The day of `chosen_names`.
    names_day: i64,
    chosen_names: HashSet<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UsageKey {
    day: i64,
    caller: Arc<str>,
    model: Arc<str>,
    backend: Arc<str>,
}

/// Settings that were checked, with their budgets; until it is applied or dropped, no usage
/// is written.
#[derive(Debug)]
pub struct UsageChange<'a> {
    ledger: &'a UsageLedger,
    flushing: tokio::sync::MutexGuard<'a, FlushState>,
    settings: UsageSettings,
    budgets: Vec<Budget>,
    today: i64,
}

/// Whose request it is, and to what.
#[derive(Clone, Debug)]
struct UsageSubject {
    caller: Arc<str>,
    model: Arc<str>,
}

impl UsageLedger {
    /// Loads the budgets, and starts to write usage until `tasks` stops.
    pub async fn start(
        store: Store,
        settings: &UsageSettings,
        tasks: &Tasks,
    ) -> Result<Arc<Self>, SaveBudgetError> {
        validate_all(settings)?;
        let ledger = Arc::new(Self {
            flushing: tokio::sync::Mutex::new(FlushState::new(random_id("hub-"))),
            state: Mutex::new(LedgerState {
                settings: settings.clone(),
                pending: HashMap::new(),
                budgets: Vec::new(),
                names_day: 0,
                chosen_names: HashSet::new(),
            }),
            store,
        });
        ledger.reload_budgets().await?;
        tasks.spawn(flush::run_writer(Arc::clone(&ledger), tasks.stop_token()));
        Ok(ledger)
    }

    /// Checks new settings and reads what is used of their budgets; nothing changes before
    /// [`UsageChange::apply`].
    pub async fn prepare(
        &self,
        settings: &UsageSettings,
    ) -> Result<UsageChange<'_>, SaveBudgetError> {
        validate_all(settings)?;
        let flushing = self.flushing.lock().await;
        Ok(self.read_budgets(settings.clone(), flushing).await?)
    }

    /// The currency of all costs.
    pub fn currency(&self) -> String {
        self.lock().settings.currency.clone()
    }

    /// Sums up usage, up to this moment.
    pub async fn sum(
        &self,
        filter: &ModelUsageFilter,
    ) -> Result<Vec<ModelUsageRow>, maru_store::Error> {
        self.flush().await?;
        self.store.model_usage(filter).await
    }

    /// Every budget and what is used of it, by name.
    pub fn budgets(&self) -> Vec<BudgetStatus> {
        let mut state = self.lock();
        let today = clock::today();
        let budgets = state.budgets.iter_mut();
        let mut all: Vec<BudgetStatus> = budgets.map(|it| it.status(today)).collect();
        all.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
        all
    }

    /// Says why a budget could not be saved, if so.
    pub fn check_budget(&self, definition: &BudgetDefinition) -> Result<(), SaveBudgetError> {
        budget::validate(definition).map_err(SaveBudgetError::Invalid)?;
        let is_taken = |it: &BudgetDefinition| it.name == definition.name;
        if self.lock().settings.budgets.iter().any(is_taken) {
            return Err(SaveBudgetError::DefinedInSettings(definition.name.clone()));
        }
        let budgets = self.budgets();
        if budgets.len() >= MAX_BUDGETS && !budgets.iter().any(|it| is_taken(&it.definition)) {
            let message = format!("there are {MAX_BUDGETS} budgets already; remove one");
            return Err(SaveBudgetError::Invalid(message));
        }
        Ok(())
    }

    /// Adds a budget, or replaces the one with its name.
    pub async fn save_budget(&self, definition: &BudgetDefinition) -> Result<(), SaveBudgetError> {
        self.check_budget(definition)?;
        self.store
            .put_model_budget(&budget::to_row(definition))
            .await?;
        Ok(self.reload_budgets().await?)
    }

    /// Removes a budget; returns whether it existed.
    pub async fn remove_budget(&self, name: &str) -> Result<bool, SaveBudgetError> {
        if self
            .lock()
            .settings
            .budgets
            .iter()
            .any(|it| it.name == name)
        {
            return Err(SaveBudgetError::DefinedInSettings(name.to_owned()));
        }
        let existed = self.store.delete_model_budget(name).await?;
        self.reload_budgets().await?;
        Ok(existed)
    }

    /// Takes the budgets of the settings and of the store, and finds out what is used.
    pub async fn reload_budgets(&self) -> Result<(), maru_store::Error> {
        let flushing = self.flushing.lock().await;
        let settings = self.lock().settings.clone();
        self.read_budgets(settings, flushing).await?.apply();
        Ok(())
    }

    /// While `flushing` is held, usage does not move from memory to the store.
    async fn read_budgets<'a>(
        &'a self,
        settings: UsageSettings,
        flushing: tokio::sync::MutexGuard<'a, FlushState>,
    ) -> Result<UsageChange<'a>, maru_store::Error> {
        let mut definitions = settings.budgets.clone();
        for row in self.store.model_budgets().await? {
            let is_new = definitions.iter().all(|it| it.name != row.name);
            if let Some(definition) = budget::from_row(row).filter(|_| is_new) {
                definitions.push(definition);
            }
        }
        let from_settings = settings.budgets.len();
        let today = clock::today();
        let mut budgets = Vec::with_capacity(definitions.len());
        for (at, definition) in definitions.into_iter().enumerate() {
            let mut budget = Budget::new(definition, at < from_settings, today);
            let stored = self.store.model_usage(&budget.usage_filter(today)).await?;
            for row in &stored {
                budget.add(&row.totals, today);
            }
            budgets.push(budget);
        }
        Ok(UsageChange {
            ledger: self,
            flushing,
            settings,
            budgets,
            today,
        })
    }

    /// Reserves what a request is expected to use in every budget that applies to it, or
    /// says which one has not enough left.
    fn reserve(&self, subject: &UsageSubject, tokens: i64, cost: i64) -> Result<(), Error> {
        let mut state = self.lock();
        let today = clock::today();
        for budget in &mut state.budgets {
            if budget.applies_to(&subject.caller, &subject.model) {
                budget.check(tokens, cost, today)?;
            }
        }
        for budget in &mut state.budgets {
            if budget.applies_to(&subject.caller, &subject.model) {
                budget.reserve(tokens, cost);
            }
        }
        Ok(())
    }

    fn release(&self, subject: &UsageSubject, tokens: i64, cost: i64) {
        for budget in &mut self.lock().budgets {
            if budget.applies_to(&subject.caller, &subject.model) {
                budget.reserve(-tokens, -cost);
            }
        }
    }

    /// Counts a request that ended.
    fn record(
        &self,
        subject: &UsageSubject,
        backend: &Arc<str>,
        is_chosen_name: bool,
        totals: &UsageTotals,
    ) {
        let mut state = self.lock();
        let day = clock::today();
        for budget in &mut state.budgets {
            if budget.applies_to(&subject.caller, &subject.model) {
                budget.add(totals, day);
            }
        }
        let model = if is_chosen_name && !state.remember_name(&subject.model, day) {
            OTHER_NAMES.into()
        } else {
            Arc::clone(&subject.model)
        };
        let mut key = UsageKey {
            day,
            caller: Arc::clone(&subject.caller),
            model,
            backend: Arc::clone(backend),
        };
        if state.pending.len() >= MAX_PENDING_ROWS && !state.pending.contains_key(&key) {
            key.caller = OTHER_NAMES.into();
            key.model = OTHER_NAMES.into();
        }
        state.pending.entry(key).or_default().add(totals);
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The budgets of the settings, each by its own name.
impl UsageChange<'_> {
    /// Replaces the settings and the budgets.
    pub fn apply(self) {
        let Self {
            ledger,
            flushing,
            settings,
            mut budgets,
            today,
        } = self;
        let mut state = ledger.lock();
        let unwritten = flushing.unwritten();
        for budget in &mut budgets {
            for (key, totals) in state.pending.iter().map(|(key, it)| (key.clone(), *it)) {
                budget.add_if_matching(&key, &totals, today);
            }
            for row in unwritten {
                budget.add_if_matching(&UsageKey::from(row), &row.totals, today);
            }
            if let Some(old) = state.budgets.iter().find(|it| it.has_scope_of(budget)) {
                budget.take_reservations(old);
            }
        }
        state.settings = settings;
        state.budgets = budgets;
    }
}

fn validate_all(settings: &UsageSettings) -> Result<(), SaveBudgetError> {
    let mut names = HashSet::new();
    for definition in &settings.budgets {
        budget::validate(definition).map_err(SaveBudgetError::Invalid)?;
        if !names.insert(&definition.name) {
            let message = format!("usage.budgets has two budgets \"{}\"", definition.name);
            return Err(SaveBudgetError::Invalid(message));
        }
    }
    Ok(())
}

impl LedgerState {
    /// Whether a name that a caller chose is counted apart.
    fn remember_name(&mut self, name: &Arc<str>, day: i64) -> bool {
        if self.names_day != day {
            self.names_day = day;
            self.chosen_names.clear();
        }
        let is_known = self.chosen_names.contains(name);
        let has_room = self.chosen_names.len() < MAX_CHOSEN_NAMES;
        if !is_known && has_room {
            self.chosen_names.insert(Arc::clone(name));
        }
        is_known || has_room
    }
}

impl From<&ModelUsageRow> for UsageKey {
    fn from(row: &ModelUsageRow) -> Self {
        Self {
            day: row.day,
            caller: row.caller.as_str().into(),
            model: row.model.as_str().into(),
            backend: row.backend.as_str().into(),
        }
    }
}
