//! Callers that this hub does not know: another hub of the store may have signed them in a
//! moment ago, before the notification of that change arrived here.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{self, Instant},
};

use super::HubState;

/// The least time between two reads, so that wrong tokens do not keep the database busy.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// When tokens and signed-in browsers were last read for an unknown caller.
#[derive(Debug, Default)]
pub struct CallerReads(Mutex<Option<Instant>>);

impl HubState {
    /// Reads tokens and signed-in browsers again where other hubs write them too. Callers
    /// that wait at the same time share one read.
    pub(super) async fn learn_callers(&self) {
        if !self.store.is_shared() {
            return;
        }
        let requested_at = Instant::now();
        let mut last_read = self.caller_reads.0.lock().await;
        if let Some(last_read) = *last_read {
            if last_read > requested_at {
                return;
            }
            time::sleep_until(last_read + READ_INTERVAL).await;
        }
        *last_read = Some(Instant::now());
        // Without the store the caller stays unknown; the outage is logged.
        if let Ok(gone) = self.access.reload_tokens().await {
            gone.iter().for_each(|it| self.engine.end_sessions_of(it));
        }
        let _ = self.sessions.reload().await;
    }
}
