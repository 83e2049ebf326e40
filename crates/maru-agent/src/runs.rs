//! The registry of runs, in progress and recorded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use maru_runtime::{clock, tasks::Tasks};
use maru_store::{AgentRunRow, Store};
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tracing::warn;

use maru_peers::{PeerHubs, PeerTopic};

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
    /// Other hubs of the store, with runs of their own.
    peers: Option<Arc<PeerHubs>>,
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

/// Whether a waiting call of a run is made.
#[derive(Clone, Copy, Debug)]
pub struct CallDecision<'a> {
    /// The run.
    pub run: &'a str,
    /// The call.
    pub call: &'a str,
    /// Whether the call is made.
    pub is_approved: bool,
}

impl RunRegistry {
    pub(super) fn new(
        store: Store,
        tasks: Tasks,
        keep_days: u32,
        peers: Option<Arc<PeerHubs>>,
    ) -> Self {
        let runs = Self(Arc::new(RunRegistryInner {
            store,
            tasks,
            keep_days,
            active: Mutex::default(),
            approvals: PendingApprovals::default(),
            changed: broadcast::Sender::new(MAX_BUFFERED_CHANGES),
            peers,
        }));
        runs.serve_peers();
        runs
    }

    /// The runs that `principal` may see, without their rounds, newest first.
    pub async fn list(&self, principal: &Principal) -> Result<Vec<Value>, maru_store::Error> {
        let mut runs = self.list_active(principal);
        for reply in self.ask_peers(principal, json!({})).await {
            runs.extend(reply.as_array().cloned().unwrap_or_default());
        }
        runs.sort_by(|a, b| b["id"].as_str().cmp(&a["id"].as_str()));
        let user = (principal.role() < AccessRole::Admin).then(|| principal.name());
        let ended = self.0.store.runs(user, MAX_LISTED_RUNS).await?;
        let ended = ended.iter().filter_map(|row| {
            let mut record = visible_record(principal, row)?;
            let rounds = record["rounds"].as_array().map_or(0, Vec::len);
            record["rounds"] = rounds.into();
            Some(record)
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
        if let Some(run) = self.get_active(principal, id) {
            return Ok(Some(run));
        }
        if let Some(row) = self.0.store.find_run(id).await? {
            return Ok(visible_record(principal, &row));
        }
        let replies = self.ask_peers(principal, json!({"run": id})).await;
        Ok(replies.into_iter().find(|it| !it.is_null()))
    }

    /// Approves or refuses a waiting call of this hub or another one; false if it does not
    /// wait.
    pub async fn decide(&self, principal: &Principal, decision: CallDecision<'_>) -> bool {
        if self.decide_locally(principal, decision) {
            return true;
        }
        let CallDecision {
            run,
            call,
            is_approved,
        } = decision;
        let request = json!({"run": run, "call": call, "approved": is_approved});
        let replies = self.ask_peers(principal, request).await;
        replies.into_iter().any(|it| it == true)
    }

    /// The runs in progress at this hub, without their rounds, newest first.
    fn list_active(&self, principal: &Principal) -> Vec<Value> {
        let active = self.lock_active();
        let visible = active.values().rev().filter_map(|record| {
            let record = lock(record);
            may_see(principal, &record.user, &record.limits)
                .then(|| self.with_hub(record.summary()))
        });
        visible.collect()
    }

    /// A run in progress at this hub, if `principal` may see it.
    fn get_active(&self, principal: &Principal, id: &str) -> Option<Value> {
        let active = self.lock_active();
        let record = lock(active.get(id)?);
        may_see(principal, &record.user, &record.limits).then(|| self.with_hub(record.to_json()))
    }

    /// Adds the name of this hub, if there are others.
    fn with_hub(&self, mut record: Value) -> Value {
        if let Some(peers) = &self.0.peers {
            record["hub"] = (**peers.name()).into();
        }
        record
    }

    /// Sends a request of `principal` to the other hubs and returns their replies.
    async fn ask_peers(&self, principal: &Principal, mut request: Value) -> Vec<Value> {
        let Some(peers) = &self.0.peers else {
            return Vec::new();
        };
        request["principal"] = principal.to_json();
        let request = request.to_string();
        let replies = peers.request_all(PeerTopic::AgentRun, &request).await;
        let replies = replies.iter();
        replies
            .filter_map(|(_, reply)| serde_json::from_str(reply).ok())
            .collect()
    }

    /// Answers the requests of other hubs until the hub stops.
    fn serve_peers(&self) {
        let Some(peers) = &self.0.peers else { return };
        let mut requests = peers.serve(PeerTopic::AgentRun);
        let (runs, stop) = (self.clone(), self.0.tasks.stop_token());
        self.0.tasks.spawn(async move {
            while let Some(Some(mut request)) = stop.run_until_cancelled(requests.recv()).await {
                if let Some(reply) = runs.answer_peer(&request.body) {
                    // A hub that is gone needs no reply.
                    let _ = request.exchange.send(&reply.to_string()).await;
                }
            }
        });
    }

    fn answer_peer(&self, request: &str) -> Option<Value> {
        let request: Value = serde_json::from_str(request).ok()?;
        let principal = Principal::from_json(&request["principal"])?;
        let Some(run) = request["run"].as_str() else {
            return Some(self.list_active(&principal).into());
        };
        Some(
            match (request["call"].as_str(), request["approved"].as_bool()) {
                (Some(call), Some(is_approved)) => {
                    let decision = CallDecision {
                        run,
                        call,
                        is_approved,
                    };
                    self.decide_locally(&principal, decision).into()
                }
                _ => self.get_active(&principal, run).into(),
            },
        )
    }

    fn decide_locally(&self, principal: &Principal, decision: CallDecision<'_>) -> bool {
        let CallDecision {
            run,
            call,
            is_approved,
        } = decision;
        let is_visible = self.lock_active().get(run).is_some_and(|it| {
            let record = lock(it);
            may_see(principal, &record.user, &record.limits)
        });
        is_visible && self.0.approvals.decide(run, call, is_approved)
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
        let record = RunRecord::new(Arc::clone(&id), principal, question);
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
                self.with_hub(record.to_json()).to_string(),
            )
        };
        let row = AgentRunRow {
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

/// The record of an ended run, if `principal` may see it.
fn visible_record(principal: &Principal, row: &AgentRunRow) -> Option<Value> {
    let record: Value = serde_json::from_str(&row.record).ok()?;
    may_see(principal, &row.user, &record["limits"]).then_some(record)
}

/// Whether `principal` may see and decide a run of `user` that began with these limits. Who
/// is limited, like a client that a person allowed little, takes part only in runs that
/// are limited in the same way.
fn may_see(principal: &Principal, user: &str, limits: &Value) -> bool {
    if principal.grants().is_some() {
        principal.name() == user && principal.limits() == *limits
    } else {
        principal.role() >= AccessRole::Admin || principal.name() == user
    }
}

fn lock(record: &Mutex<RunRecord>) -> MutexGuard<'_, RunRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(role: &str, tools: Option<&[&str]>) -> Principal {
        let limits = tools.map(|it| json!({"tools": it, "toolsOnly": true}));
        let principal = json!({"name": "kim", "role": role, "limits": limits});
        Principal::from_json(&principal).unwrap()
    }

    fn approval(run: &str) -> CallDecision<'_> {
        CallDecision {
            run,
            call: "call",
            is_approved: true,
        }
    }

    #[tokio::test]
    async fn limited_principal_sees_and_decides_only_runs_with_equal_limits() {
        let store = Store::in_memory().await.unwrap();
        let runs = RunRegistry::new(store, Tasks::default(), 1, None);
        let (whole, echo) = (
            principal("agent", None),
            principal("agent", Some(&["fx__echo"])),
        );
        let (add, admin) = (
            principal("agent", Some(&["fx__add"])),
            principal("admin", Some(&["fx__echo"])),
        );
        let begun = [runs.begin(&whole, "all"), runs.begin(&echo, "echo")];
        let ids = begun.each_ref().map(|it| Arc::clone(&it.id));
        let check = async || {
            for (who, expected) in [
                (&whole, [true, true]),
                (&echo, [false, true]),
                (&add, [false, false]),
                (&admin, [false, true]),
            ] {
                let listed = runs.list(who).await.unwrap();
                for (id, expected) in ids.iter().zip(expected) {
                    let is_listed = listed.iter().any(|it| it["id"] == **id);
                    let found = runs.get(who, id).await.unwrap();
                    assert_eq!((is_listed, found.is_some()), (expected, expected));
                }
            }
        };
        check().await;
        for (who, at, expected) in [(&echo, 0, false), (&add, 1, false), (&whole, 1, true)] {
            tokio::select! {
                biased;
                _ = runs.approvals().wait(&ids[at], "call") => unreachable!(),
                decided = runs.decide(who, approval(&ids[at])) => {
                    assert_eq!(decided, expected);
                }
            }
        }
        drop(begun);
        while !runs.lock_active().is_empty() {
            tokio::task::yield_now().await;
        }
        check().await;
    }
}
