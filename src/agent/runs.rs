//! Every run, while it goes on and for some time after.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::sync::broadcast;
use tracing::warn;

use super::{approval::Approvals, record::Record};
use crate::{
    access::{Principal, Role},
    clock,
    llm::random,
    store::{self, Store},
    tasks::Tasks,
};

/// The runs. What has ended is in the store.
#[derive(Clone, Debug)]
pub struct Runs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    tasks: Tasks,
    keep_days: u32,
    live: Mutex<BTreeMap<Arc<str>, Arc<Mutex<Record>>>>,
    pub(super) approvals: Approvals,
    changed: broadcast::Sender<Arc<str>>,
}

/// A run in progress. One that is dropped early was stopped.
#[derive(Debug)]
pub(super) struct Run {
    runs: Runs,
    record: Arc<Mutex<Record>>,
    pub(super) id: Arc<str>,
}

/// How many runs a list has.
const LISTED: i64 = 200;
/// How many changes wait for the slowest watcher.
const CHANGES: usize = 256;

impl Runs {
    pub(super) fn new(store: Store, tasks: Tasks, keep_days: u32) -> Self {
        Self(Arc::new(Inner {
            store,
            tasks,
            keep_days,
            live: Mutex::default(),
            approvals: Approvals::default(),
            changed: broadcast::Sender::new(CHANGES),
        }))
    }

    /// The newest runs that `who` may see, without their rounds, newest first.
    pub async fn list(&self, who: &Principal) -> Result<Vec<Value>, store::Error> {
        let mut shown: Vec<Value> = Vec::new();
        for record in self.lock_live().values().rev() {
            let record = lock(record);
            if may_see(who, &record.user) {
                shown.push(record.summary());
            }
        }
        let user = (who.role() < Role::Admin).then(|| who.name());
        let ended = self.0.store.runs(user, LISTED).await?;
        let ended = ended.iter().map(|row| {
            let mut record: Value = serde_json::from_str(&row.record).unwrap_or_default();
            let rounds = record["rounds"].as_array().map_or(0, Vec::len);
            record["rounds"] = rounds.into();
            record
        });
        shown.extend(ended);
        Ok(shown)
    }

    /// One run with all that happened, if `who` may see it.
    pub async fn get(&self, who: &Principal, id: &str) -> Result<Option<Value>, store::Error> {
        if let Some(record) = self.lock_live().get(id) {
            let record = lock(record);
            return Ok(may_see(who, &record.user).then(|| record.shown()));
        }
        let row = self.0.store.run_of(id).await?;
        let row = row.filter(|it| may_see(who, &it.user));
        Ok(row.and_then(|it| serde_json::from_str(&it.record).ok()))
    }

    /// Approves of a call that waits, or refuses it; false if none does.
    pub fn decide(&self, who: &Principal, run: &str, call: &str, approved: bool) -> bool {
        let seen = self
            .lock_live()
            .get(run)
            .is_some_and(|it| may_see(who, &lock(it).user));
        seen && self.0.approvals.decide(run, call, approved)
    }

    /// The ids of runs as they change.
    pub fn changes(&self) -> broadcast::Receiver<Arc<str>> {
        self.0.changed.subscribe()
    }

    pub(super) fn approvals(&self) -> &Approvals {
        &self.0.approvals
    }

    pub(super) fn begin(&self, who: &Principal, question: &str) -> Run {
        // Ids sort by time.
        let id: Arc<str> = random(&format!("run_{:013}_", clock::now())).into();
        let record = Record::new(Arc::clone(&id), who.name(), question);
        let record = Arc::new(Mutex::new(record));
        self.lock_live()
            .insert(Arc::clone(&id), Arc::clone(&record));
        Run {
            runs: self.clone(),
            record,
            id,
        }
    }

    fn lock_live(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Arc<Mutex<Record>>>> {
        self.0.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a run that has ended, and forgets those that are too old.
    async fn keep(self, record: Arc<Mutex<Record>>) {
        let (id, user, started, text) = {
            let record = lock(&record);
            (
                Arc::clone(&record.id),
                record.user.clone(),
                record.started,
                record.shown().to_string(),
            )
        };
        let row = store::RunRow {
            id: id.to_string(),
            user,
            started_at: started,
            record: text,
        };
        let oldest = clock::now() - i64::from(self.0.keep_days) * clock::DAY;
        if let Err(error) = self.0.store.put_run(&row, oldest).await {
            warn!(%error, "the run {id} is not kept");
        }
        self.lock_live().remove(&id);
        self.tell(&id);
    }

    fn tell(&self, id: &Arc<str>) {
        // Nobody may be watching.
        let _ = self.0.changed.send(Arc::clone(id));
    }
}

impl Run {
    /// Notes something.
    pub(super) fn note<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        let done = note(&mut lock(&self.record));
        self.runs.tell(&self.id);
        done
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        {
            let mut record = lock(&self.record);
            if !record.is_over() {
                record.stop();
            }
        }
        self.runs.0.approvals.forget(&self.id);
        let keep = self.runs.clone().keep(Arc::clone(&self.record));
        self.runs.0.tasks.spawn(keep);
    }
}

fn may_see(who: &Principal, user: &str) -> bool {
    who.role() >= Role::Admin || who.name() == user
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
