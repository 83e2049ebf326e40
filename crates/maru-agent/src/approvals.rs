//! Calls that wait for approval.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

type ApprovalKey = (String, String);

/// The calls that wait, by run and call.
#[derive(Debug, Default)]
pub(super) struct PendingApprovals(Mutex<HashMap<ApprovalKey, oneshot::Sender<bool>>>);

impl PendingApprovals {
    /// Waits for a decision; false if the run ends first.
    pub(super) async fn wait(&self, run: &str, call: &str) -> bool {
        let (decide, decided) = oneshot::channel();
        self.lock().insert(approval_key(run, call), decide);
        decided.await.unwrap_or(false)
    }

    /// Decides; false if nothing waits there.
    pub(super) fn decide(&self, run: &str, call: &str, approved: bool) -> bool {
        let waiting = self.lock().remove(&approval_key(run, call));
        waiting.is_some_and(|it| it.send(approved).is_ok())
    }

    /// Drops all that wait in a run.
    pub(super) fn cancel_run(&self, run: &str) {
        self.lock().retain(|(of, _), _| of != run);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalKey, oneshot::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn approval_key(run: &str, call: &str) -> ApprovalKey {
    (run.to_owned(), call.to_owned())
}
