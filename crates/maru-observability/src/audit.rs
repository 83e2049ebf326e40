//! The audit log in the store: calls are written in batches, changes before they are
//! acknowledged. Secrets are masked.

mod call_error;
mod redact;
mod usage_sums;

use std::{
    future::ready,
    iter, mem,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_runtime::{clock, tasks::Tasks};
use maru_store::{
    AuditFilter, AuditRow, AuditedCall, CallFilter, CallPage, CallUsageFilter, CallUsageRow, Store,
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::journal::{CallJournal, CallRecord, mask_secrets};
use maru_config::{self as config, AuditSettings as Settings};

pub use call_error::error_text;
pub use redact::redact_body;
use usage_sums::sum_usage;
pub use usage_sums::{USAGE_SLOT_MINUTES, usage_of};

/// Records that may wait to be written; more are dropped and counted.
const MAX_QUEUED_RECORDS: usize = 16_384;
/// Records per batch.
const MAX_BATCH_RECORDS: usize = 4096;
/// How long a record waits for others of its batch.
const BATCH_DELAY: Duration = Duration::from_millis(250);
/// How long to wait after the store failed.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often old records are removed.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// In milliseconds: an older change that was never finished was interrupted.
const MAX_CHANGE_AGE_MS: i64 = 3_600_000;
const MINUTE_MS: i64 = 60_000;
/// In milliseconds: older usage is kept by the hour.
const USAGE_DETAIL_MS: i64 = 2 * clock::DAY_MS;
/// How long a search waits for the records that are not written yet.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Characters of arguments that are kept.
const MAX_TEXT_CHARS: usize = 1000;
/// Characters of names that are kept. An index of PostgreSQL takes at most 2704 bytes.
const MAX_NAME_CHARS: usize = 500;

/// The audit log.
#[derive(Debug)]
pub struct AuditLog {
    store: Store,
    /// The name of this hub, if others can share the store.
    hub: Arc<str>,
    queue: mpsc::Sender<AuditItem>,
    dropped: AtomicU64,
    records_calls: bool,
    /// Ends the wait for more records of a batch.
    hurry: Notify,
}

/// A record that waits to be written.
#[derive(Debug)]
enum AuditItem {
    Call(Arc<CallRecord>),
    Change(Box<AuditRow>),
    /// Answered when everything before it is written.
    Flush(oneshot::Sender<()>),
}

/// A change, or an attempt, for the audit log.
#[derive(Clone, Debug)]
pub struct AuditedChange<'a> {
    /// Who made it.
    pub principal: &'a str,
    /// The remote address; absent for local callers.
    pub remote_ip: Option<IpAddr>,
    /// Method and route.
    pub action: String,
    /// The path.
    pub target: &'a str,
    /// The body, redacted.
    pub arguments: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// How long it took.
    pub duration: Duration,
    /// The id of the request.
    pub request_id: String,
}

impl AuditLog {
    /// Starts to write the calls of `journal` under the name of this hub, until `tasks`
    /// stops.
    pub fn start(
        (store, hub): (Store, &str),
        settings: &Settings,
        journal: &CallJournal,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let (queue, items) = mpsc::channel(MAX_QUEUED_RECORDS);
        let audit = Arc::new(Self {
            hub: if store.is_shared() { hub } else { "" }.into(),
            store,
            queue,
            dropped: AtomicU64::new(0),
            records_calls: settings.calls,
            hurry: Notify::new(),
        });
        if settings.calls {
            let callback_log = Arc::clone(&audit);
            journal.on_record(Box::new(move |record| {
                callback_log.enqueue(AuditItem::Call(Arc::clone(record)));
            }));
        }
        let keep = run_writer(
            Arc::clone(&audit),
            items,
            settings.clone(),
            tasks.stop_token(),
        );
        tasks.spawn(keep);
        audit
    }

    /// Records a change before it is made; it is on disk when this returns. If this fails,
    /// the change must not be made.
    pub async fn begin_change(&self, change: &AuditedChange<'_>) -> Result<(), maru_store::Error> {
        self.store.begin_change(&change.to_row(&self.hub)).await
    }

    /// Records how a change ended. The change itself is on record already, so if the store
    /// fails now, this record is queued and written later.
    pub async fn finish_change(&self, change: &AuditedChange<'_>) {
        let row = change.to_row(&self.hub);
        if let Err(error) = self.store.end_change(row.clone()).await {
            warn!(%error, "the end of a change will be recorded when the store is back");
            self.enqueue(AuditItem::Change(Box::new(row)));
        }
    }

    /// Queues the record of an attempt: a change that was refused, or a sign-in.
    pub fn record_rejected(&self, change: &AuditedChange<'_>) {
        self.enqueue(AuditItem::Change(Box::new(change.to_row(&self.hub))));
    }

    /// The records that match the filter, newest first, up to the call that just ended.
    pub async fn list(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, maru_store::Error> {
        self.flush().await;
        self.store.audit_rows(filter).await
    }

    /// Whether calls are recorded.
    pub fn records_calls(&self) -> bool {
        self.records_calls
    }

    /// The calls that match the filter, newest first, up to the one that just ended.
    pub async fn search_calls(&self, filter: &CallFilter) -> Result<CallPage, maru_store::Error> {
        self.flush().await;
        self.store.search_calls(filter).await
    }

    /// The usage by tool and caller.
    pub async fn usage_by_name(
        &self,
        filter: &CallUsageFilter,
    ) -> Result<Vec<CallUsageRow>, maru_store::Error> {
        self.flush().await;
        self.store.usage_by_name(filter).await
    }

    /// The usage of each `span` minutes.
    pub async fn usage_by_slot(
        &self,
        filter: &CallUsageFilter,
        span: i64,
    ) -> Result<Vec<CallUsageRow>, maru_store::Error> {
        self.store.usage_by_slot(filter, span).await
    }

    /// The call of this number at a hub; an empty name is any hub.
    pub async fn find_call(
        &self,
        number: u64,
        hub: &str,
    ) -> Result<Option<AuditRow>, maru_store::Error> {
        match i64::try_from(number) {
            Ok(number) => self.store.find_call(number, hub).await,
            Err(_) => Ok(None),
        }
    }

    /// Has the records that wait written, and waits for that, unless it takes long.
    async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let waits = self.queue.capacity() < self.queue.max_capacity();
        if waits && self.queue.try_send(AuditItem::Flush(done)).is_ok() {
            self.hurry.notify_one();
            // Fails if the writer has stopped; then there is nothing to wait for.
            let _ = time::timeout(FLUSH_TIMEOUT, written).await;
        }
    }

    /// The number of records that wait, and of those that were dropped.
    pub fn queue_depth(&self) -> (usize, u64) {
        let waiting = self.queue.max_capacity() - self.queue.capacity();
        (waiting, self.dropped.load(Relaxed))
    }

    fn enqueue(&self, item: AuditItem) {
        if self.queue.try_send(item).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Writes the batch; if that fails it is kept for the next attempt.
    async fn write_batch(&self, batch: &mut Arc<Vec<AuditItem>>) -> bool {
        if batch.is_empty() {
            return true;
        }
        let (items, mut origins) = (Arc::clone(batch), OriginCache::default());
        let usage = sum_usage(items.iter().filter_map(AuditItem::call));
        let hub = Arc::clone(&self.hub);
        let rows = (0..items.len()).filter_map(move |at| items[at].to_row(&hub, &mut origins));
        match self.store.insert_calls(rows, usage).await {
            Ok(()) => {
                for item in Arc::try_unwrap(mem::take(batch)).into_iter().flatten() {
                    if let AuditItem::Flush(done) = item {
                        // The search may have given up.
                        let _ = done.send(());
                    }
                }
                true
            }
            Err(error) if error.is_down() => false,
            Err(error) if error.is_refusal() => self.write_one_by_one(batch).await,
            Err(error) => {
                warn!(%error, "{} audit records wait until the store is back", batch.len());
                false
            }
        }
    }

    /// Writes the records of a refused batch one by one and drops those that are refused
    /// again, so that they do not keep all others from being written.
    async fn write_one_by_one(&self, batch: &mut Arc<Vec<AuditItem>>) -> bool {
        let items = match Arc::try_unwrap(mem::take(batch)) {
            Ok(items) => items,
            Err(shared) => {
                *batch = shared;
                return false;
            }
        };
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            let usage = sum_usage(item.call().into_iter());
            let row = item.to_row(&self.hub, &mut OriginCache::default());
            match self.store.insert_calls(row, usage).await {
                Ok(()) => {
                    if let AuditItem::Flush(done) = item {
                        // The search may have given up.
                        let _ = done.send(());
                    }
                }
                Err(error) if error.is_refusal() => {
                    self.dropped.fetch_add(1, Relaxed);
                    warn!(%error, "the store refuses an audit record, which is dropped");
                }
                Err(error) => {
                    warn!(%error, "audit records wait until the store is back");
                    *batch = Arc::new(iter::once(item).chain(items).collect());
                    return false;
                }
            }
        }
        true
    }

    async fn close_stale_changes(&self, before: i64) {
        if let Err(error) = self.store.record_unfinished_changes(before).await {
            warn!(%error, "unfinished changes could not be checked");
        }
    }

    async fn remove_old_records(&self, settings: &config::AuditSettings) {
        let before = clock::now_ms() - i64::from(settings.max_days) * clock::DAY_MS;
        let done = self.store.trim_audit(before, settings.max_records).await;
        if let Err(error) = done {
            warn!(%error, "old audit records could not be removed");
        }
        let minutes = |it: i64| it / MINUTE_MS;
        let merge_before = minutes(clock::now_ms() - USAGE_DETAIL_MS);
        let done = self
            .store
            .trim_usage(merge_before - merge_before % 60, minutes(before));
        if let Err(error) = done.await {
            warn!(%error, "old usage could not be removed");
        }
    }
}

impl AuditItem {
    fn call(&self) -> Option<&CallRecord> {
        match self {
            Self::Call(record) => Some(record),
            Self::Change(_) | Self::Flush(_) => None,
        }
    }

    fn to_row(&self, hub: &str, origins: &mut OriginCache) -> Option<AuditRow> {
        match self {
            Self::Call(record) => Some(AuditRow {
                hub: hub.to_owned(),
                ..call_row(record, origins)
            }),
            Self::Change(row) => Some(AuditRow::clone(row)),
            Self::Flush(_) => None,
        }
    }
}

impl AuditedChange<'_> {
    fn to_row(&self, hub: &str) -> AuditRow {
        AuditRow {
            id: 0,
            at: clock::now_ms(),
            principal: truncate_name(self.principal),
            origin: format_origin(self.remote_ip),
            client: None,
            action: self.action.clone(),
            target: truncate_name(self.target),
            arguments: truncate_text(&self.arguments),
            outcome: self.status.to_string(),
            took_micros: micros(self.duration),
            request: self.request_id.clone(),
            hub: hub.to_owned(),
            call: None,
        }
    }
}

fn call_row(record: &CallRecord, origins: &mut OriginCache) -> AuditRow {
    let request = &record.request;
    AuditRow {
        id: 0,
        at: i64::try_from(record.ended_at).unwrap_or(i64::MAX),
        principal: truncate_name(&request.principal),
        origin: origins.format(request.remote_ip),
        client: request.client.as_deref().map(truncate_name),
        action: "tools/call".to_owned(),
        target: truncate_name(&request.tool),
        arguments: truncate_text(&mask_secrets(&request.arguments)),
        outcome: record.outcome.as_str().to_owned(),
        took_micros: micros(record.duration),
        request: request.request_id.to_string(),
        hub: String::new(),
        call: Some(AuditedCall {
            number: i64::try_from(record.id).unwrap_or(i64::MAX),
            server: truncate_name(&request.server),
            error: error_text(record).map(|it| truncate_text(&it)),
            failed: record.outcome.is_error(),
            argument_bytes: byte_count(record.argument_bytes),
            result_bytes: byte_count(record.result_bytes),
            server_micros: micros(record.server_duration),
        }),
    }
}

/// Writes records in batches and removes old ones.
async fn run_writer(
    audit: Arc<AuditLog>,
    mut items: mpsc::Receiver<AuditItem>,
    settings: config::AuditSettings,
    stop: CancellationToken,
) {
    // No other hub uses a store that is not shared, so every unfinished change in it was
    // left by a hub that was killed.
    let min_age = if audit.store.is_shared() {
        MAX_CHANGE_AGE_MS
    } else {
        0
    };
    audit.close_stale_changes(clock::now_ms() - min_age).await;
    let mut cleaned_at = time::Instant::now();
    let mut batch: Arc<Vec<AuditItem>> = Arc::default();
    loop {
        let mut new = Vec::new();
        tokio::select! {
            _ = items.recv_many(&mut new, MAX_BATCH_RECORDS), if batch.is_empty() => batch = Arc::new(new),
            () = ready(()), if !batch.is_empty() => (),
            () = stop.cancelled() => break,
            () = time::sleep(CLEANUP_INTERVAL) => (),
        }
        if !audit.write_batch(&mut batch).await {
            // The queue is bounded, so waiting is safe.
            let _stopped = time::timeout(STORE_RETRY_DELAY, stop.cancelled()).await;
        }
        if cleaned_at.elapsed() >= CLEANUP_INTERVAL {
            cleaned_at = time::Instant::now();
            audit.remove_old_records(&settings).await;
            audit
                .close_stale_changes(clock::now_ms() - MAX_CHANGE_AGE_MS)
                .await;
        }
        // Waits for more records, to write them in one batch.
        if items.len() < MAX_BATCH_RECORDS {
            tokio::select! {
                () = stop.cancelled() => (),
                () = audit.hurry.notified() => (),
                () = time::sleep(BATCH_DELAY) => (),
            }
        }
    }
    let last = iter::from_fn(|| items.try_recv().ok());
    for mut batch in [batch, Arc::new(last.collect())] {
        if !audit.write_batch(&mut batch).await {
            warn!("{} audit records could not be written", batch.len());
        }
    }
}

/// Caches the text of the last address, because many calls come from the same one.
#[derive(Default)]
struct OriginCache(Option<(Option<IpAddr>, String)>);

impl OriginCache {
    fn format(&mut self, from: Option<IpAddr>) -> String {
        match &self.0 {
            Some((last, name)) if *last == from => name.clone(),
            _ => self.0.insert((from, format_origin(from))).1.clone(),
        }
    }
}

fn format_origin(from: Option<IpAddr>) -> String {
    from.map_or("local".to_owned(), |it| it.to_string())
}

fn byte_count(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

fn truncate_text(text: &str) -> String {
    truncate(text, MAX_TEXT_CHARS)
}

/// Cuts a name, which an index contains.
fn truncate_name(name: &str) -> String {
    truncate(name, MAX_NAME_CHARS)
}

fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
