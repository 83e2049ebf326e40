//! Writes usage to the store in batches, each exactly once.

use std::{sync::Arc, time::Duration};

use maru_runtime::clock;
use maru_store::{ModelUsageRow, UsageBatch};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::UsageLedger;

/// How often usage is written.
const FLUSH_INTERVAL: Duration = Duration::from_secs(2);
/// How often usage of other hubs is read, where several share a store.
const SHARED_REFRESH_FLUSHES: u32 = 3;
/// How often old usage is removed: about once an hour.
const TRIM_FLUSHES: u32 = 1800;

/// The batch that is being written.
#[derive(Debug)]
pub(super) struct FlushState {
    writer: String,
    /// Counts the batches.
    number: i64,
    /// Kept until it is certain that it was written.
    batch: Option<UsageBatch>,
}

impl FlushState {
    pub(super) fn new(writer: String) -> Self {
        Self {
            writer,
            number: 0,
            batch: None,
        }
    }

    /// Rows that may not be in the store.
    pub(super) fn unwritten(&self) -> &[ModelUsageRow] {
        self.batch.as_ref().map_or(&[], |it| &it.rows)
    }
}

impl UsageLedger {
    /// Writes everything that was counted so far.
    pub(super) async fn flush(&self) -> Result<(), maru_store::Error> {
        let mut state = self.flushing.lock().await;
        // First what could not be written before, then what was counted since.
        for _ in 0..2 {
            if state.batch.is_none() {
                let rows = self.take_pending();
                if rows.is_empty() {
                    return Ok(());
                }
                state.number += 1;
                state.batch = Some(UsageBatch {
                    writer: state.writer.clone(),
                    number: state.number,
                    at: clock::now_ms(),
                    rows,
                });
            }
            if let Some(batch) = &state.batch {
                self.store.add_model_usage(batch).await?;
            }
            state.batch = None;
        }
        Ok(())
    }

    fn take_pending(&self) -> Vec<ModelUsageRow> {
        let pending = std::mem::take(&mut self.lock().pending);
        let row = |(key, totals): (super::UsageKey, _)| ModelUsageRow {
            day: key.day,
            caller: key.caller.to_string(),
            model: key.model.to_string(),
            backend: key.backend.to_string(),
            totals,
        };
        pending.into_iter().map(row).collect()
    }

    async fn trim(&self) {
        let keep_days = i64::from(self.lock().settings.keep_days);
        let oldest = clock::today() - keep_days;
        if let Err(error) = self.store.trim_model_usage(oldest).await {
            warn!(%error, "old usage of models could not be removed");
        }
    }
}

/// Writes usage until `stop`, and what is left then.
pub(super) async fn run_writer(ledger: Arc<UsageLedger>, stop: CancellationToken) {
    let mut flushes: u32 = 0;
    while time::timeout(FLUSH_INTERVAL, stop.cancelled())
        .await
        .is_err()
    {
        if let Err(error) = ledger.flush().await
            && !error.is_down()
        {
            warn!(%error, "usage of models waits until the store is back");
        }
        if ledger.store.is_shared()
            && flushes.is_multiple_of(SHARED_REFRESH_FLUSHES)
            && let Err(error) = ledger.reload_budgets().await
            && !error.is_down()
        {
            warn!(%error, "budgets could not be read");
        }
        if flushes.is_multiple_of(TRIM_FLUSHES) {
            ledger.trim().await;
        }
        flushes = flushes.wrapping_add(1);
    }
    if let Err(error) = ledger.flush().await {
        warn!(%error, "the last usage of models could not be written");
    }
}
