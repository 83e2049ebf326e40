//! The registry of runs, in progress and recorded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use maru_runtime::{clock, tasks::Tasks};
use maru_store::Store;
use serde_json::Value;
use tokio::sync::broadcast;
use tracing::warn;

use super::{approvals::PendingApprovals, record::RunRecord};
use maru_auth::{AccessRole, Principal};
use maru_llm::random_id;

/// All runs. Those that have ended are in the store.
#[derive(Clone, Debug)]
pub struct RunRegistry(Arc<RunRegistryInner>);

#[derive(Debug)]
struct RunRegistryInner {
    store: Store,
    tasks: Tasks,
    keep_days: u32,
    active: Mutex<BTreeMap<Arc<str>, Arc<Mutex<RunRecord>>>>,
    pub(super) approvals: PendingApprovals,
    changed: broadcast::Sender<Arc<str>>,
}

/// A run in progress. One that is dropped early was stopped.
#[derive(Debug)]
pub(super) struct RunGuard {
    runs: RunRegistry,
    record: Arc<Mutex<RunRecord>>,
    pub(super) id: Arc<str>,
}

/// How many runs a list has.
const MAX_LISTED_RUNS: i64 = 200;
/// How many changes wait for the slowest watcher.
const MAX_BUFFERED_CHANGES: usize = 256;

impl RunRegistry {
    pub(super) fn new(store: Store, tasks: Tasks, keep_days: u32) -> Self {
        Self(Arc::new(RunRegistryInner {
            store,
            tasks,
            keep_days,
            active: Mutex::default(),
            approvals: PendingApprovals::default(),
            changed: broadcast::Sender::new(MAX_BUFFERED_CHANGES),
        }))
    }

    /// The runs that `principal` may see, without their rounds, newest first.
    pub async fn list(&self, principal: &Principal) -> Result<Vec<Value>, maru_store::Error> {
        let mut runs: Vec<Value> = Vec::new();
        for record in self.lock_active().values().rev() {
            let record = lock(record);
            if may_see(principal, &record.user) {
                runs.push(record.summary());
            }
        }
        let user = (principal.role() < AccessRole::Admin).then(|| principal.name());
        let ended = self.0.store.runs(user, MAX_LISTED_RUNS).await?;
        let ended = ended.iter().map(|row| {
            let mut record: Value = serde_json::from_str(&row.record).unwrap_or_default();
            let rounds = record["rounds"].as_array().map_or(0, Vec::len);
            record["rounds"] = rounds.into();
            record
        });
        runs.extend(ended);
        Ok(runs)
    }

    /// One run with its rounds, if `principal` may see it.
    pub async fn get(
        &self,
        principal: &Principal,
        id: &str,
    ) -> Result<Option<Value>, maru_store::Error> {
        if let Some(record) = self.lock_active().get(id) {
            let record = lock(record);
            return Ok(may_see(principal, &record.user).then(|| record.to_json()));
        }
        let row = self.0.store.find_run(id).await?;
        let row = row.filter(|it| may_see(principal, &it.user));
        Ok(row.and_then(|it| serde_json::from_str(&it.record).ok()))
    }

    /// Approves or refuses a waiting call; false if it does not wait.
    pub fn decide(&self, principal: &Principal, run: &str, call: &str, approved: bool) -> bool {
        let is_visible = self
            .lock_active()
            .get(run)
            .is_some_and(|it| may_see(principal, &lock(it).user));
        is_visible && self.0.approvals.decide(run, call, approved)
    }

    /// The ids of runs as they change.
    pub fn changes(&self) -> broadcast::Receiver<Arc<str>> {
        self.0.changed.subscribe()
    }

    pub(super) fn approvals(&self) -> &PendingApprovals {
        &self.0.approvals
    }

    pub(super) fn begin(&self, principal: &Principal, question: &str) -> RunGuard {
        // Ids sort by time.
        let id: Arc<str> = random_id(&format!("run_{:013}_", clock::now_ms())).into();
        let record = RunRecord::new(Arc::clone(&id), principal.name(), question);
        let record = Arc::new(Mutex::new(record));
        self.lock_active()
            .insert(Arc::clone(&id), Arc::clone(&record));
        RunGuard {
            runs: self.clone(),
            record,
            id,
        }
    }

    fn lock_active(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Mutex<RunRecord>>>> {
        self.0.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a run that has ended, and forgets those that are too old.
    async fn save_ended(self, record: Arc<Mutex<RunRecord>>) {
        let (id, user, started, text) = {
            let record = lock(&record);
            (
                Arc::clone(&record.id),
                record.user.clone(),
                record.started,
                record.to_json().to_string(),
            )
        };
        let row = maru_store::AgentRunRow {
            id: id.to_string(),
            user,
            started_at: started,
            record: text,
        };
        let oldest = clock::now_ms() - i64::from(self.0.keep_days) * clock::DAY_MS;
        if let Err(error) = self.0.store.put_run(&row, oldest).await {
            warn!(%error, "the run {id} is not kept");
        }
        self.lock_active().remove(&id);
        self.notify(&id);
    }

    fn notify(&self, id: &Arc<str>) {
        // Fails if no page watches the run.
        let _ = self.0.changed.send(Arc::clone(id));
    }
}

impl RunGuard {
    /// Changes the record and notifies its watchers.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut RunRecord) -> T) -> T {
        let result = change(&mut lock(&self.record));
        self.runs.notify(&self.id);
        result
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        {
            let mut record = lock(&self.record);
            if !record.has_ended() {
                record.stop();
            }
        }
        self.runs.0.approvals.cancel_run(&self.id);
        let keep = self.runs.clone().save_ended(Arc::clone(&self.record));
        self.runs.0.tasks.spawn(keep);
    }
}

fn may_see(principal: &Principal, user: &str) -> bool {
    principal.role() >= AccessRole::Admin || principal.name() == user
}

fn lock(record: &Mutex<RunRecord>) -> MutexGuard<'_, RunRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
