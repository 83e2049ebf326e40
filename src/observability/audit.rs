//! Who did what, kept in the store: calls in batches, changes before they are
//! acknowledged. Nothing that looks like a secret is written.

mod redact;

use std::{
    future::ready,
    iter,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_runtime::{clock, tasks::Tasks};
use maru_store::{AuditFilter, AuditRow, Store};
use tokio::{sync::mpsc, time};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    config::{self, AuditSettings as Settings},
    observability::journal::{CallJournal, CallRecord, mask_secrets},
};

pub use redact::redact_body;

/// Calls that wait to be written; one more is lost, and counted.
const MAX_QUEUED_RECORDS: usize = 16_384;
/// Calls that are written together.
const MAX_BATCH_RECORDS: usize = 4096;
/// How long a call may wait for others.
const BATCH_DELAY: Duration = Duration::from_millis(250);
/// How soon a store that failed is tried again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often old records are removed.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);
/// After which time a change that was begun has ended, whoever made it: milliseconds.
const MAX_CHANGE_AGE_MS: i64 = 3_600_000;
/// Characters of arguments that are kept.
const MAX_TEXT_CHARS: usize = 1000;

/// The audit log.
#[derive(Debug)]
pub struct AuditLog {
    store: Store,
    queue: mpsc::Sender<AuditItem>,
    dropped: AtomicU64,
}

/// What waits to be written.
#[derive(Debug)]
enum AuditItem {
    Call(Arc<CallRecord>),
    Change(Box<AuditRow>),
}

/// A change that someone made, or tried to.
#[derive(Clone, Debug)]
pub struct AuditedChange<'a> {
    /// Who.
    pub principal: &'a str,
    /// From where; absent from this machine.
    pub remote_ip: Option<IpAddr>,
    /// Method and route.
    pub action: String,
    /// The path.
    pub target: &'a str,
    /// The body, redacted.
    pub arguments: String,
    /// The status of the answer.
    pub status: u16,
    /// How long it took.
    pub duration: Duration,
    /// The request.
    pub request_id: String,
}

impl AuditLog {
    /// Begins to write what `journal` tells, until `tasks` stops.
    pub fn start(
        store: Store,
        settings: &Settings,
        journal: &CallJournal,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let (queue, items) = mpsc::channel(MAX_QUEUED_RECORDS);
        let audit = Arc::new(Self {
            store,
            queue,
            dropped: AtomicU64::new(0),
        });
        if settings.calls {
            let told = Arc::clone(&audit);
            journal.on_record(Box::new(move |record| {
                told.enqueue(AuditItem::Call(Arc::clone(record)));
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

    /// Notes a change before it is made: what cannot be noted is not to be made. It is
    /// on disk when this returns.
    pub async fn begin_change(&self, change: &AuditedChange<'_>) -> Result<(), maru_store::Error> {
        self.store.begin_change(&change.to_row()).await
    }

    /// Records how a change that was begun has ended. That it was made is noted
    /// already, so a store that fails now does not take it back: the record is
    /// written when the store is there again.
    pub async fn finish_change(&self, change: &AuditedChange<'_>) {
        let row = change.to_row();
        if let Err(error) = self.store.end_change(row.clone()).await {
            warn!(%error, "how a change ended is recorded when the store takes it");
            self.enqueue(AuditItem::Change(Box::new(row)));
        }
    }

    /// Notes a change that was refused, when there is time.
    pub fn record_rejected(&self, change: &AuditedChange<'_>) {
        self.enqueue(AuditItem::Change(Box::new(change.to_row())));
    }

    /// The newest records that fit, newest first.
    pub async fn list(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, maru_store::Error> {
        self.store.audit_rows(filter).await
    }

    /// Records that wait, and those that were lost because too many did.
    pub fn queue_depth(&self) -> (usize, u64) {
        let waiting = self.queue.max_capacity() - self.queue.capacity();
        (waiting, self.dropped.load(Relaxed))
    }

    fn enqueue(&self, item: AuditItem) {
        if self.queue.try_send(item).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

impl AuditItem {
    fn to_row(&self, origins: &mut OriginCache) -> AuditRow {
        match self {
            Self::Call(record) => call_row(record, origins),
            Self::Change(row) => AuditRow::clone(row),
        }
    }
}

impl AuditedChange<'_> {
    fn to_row(&self) -> AuditRow {
        AuditRow {
            id: 0,
            at: clock::now_ms(),
            principal: self.principal.to_owned(),
            origin: format_origin(self.remote_ip),
            client: None,
            action: self.action.clone(),
            target: truncate_text(self.target),
            arguments: truncate_text(&self.arguments),
            outcome: self.status.to_string(),
            took_micros: micros(self.duration),
            request: self.request_id.clone(),
        }
    }
}

fn call_row(record: &CallRecord, origins: &mut OriginCache) -> AuditRow {
    let asked = &record.asked;
    AuditRow {
        id: 0,
        at: i64::try_from(record.ended_at).unwrap_or(i64::MAX),
        principal: asked.principal.to_string(),
        origin: origins.format(asked.remote_ip),
        client: asked.client.as_ref().map(ToString::to_string),
        action: "tools/call".to_owned(),
        target: asked.tool.to_string(),
        arguments: truncate_text(&mask_secrets(&asked.arguments)),
        outcome: record.outcome.as_str().to_owned(),
        took_micros: micros(record.duration),
        request: asked.request_id.to_string(),
    }
}

/// Writes what comes, some at a time, and removes what is old.
async fn run_writer(
    audit: Arc<AuditLog>,
    mut items: mpsc::Receiver<AuditItem>,
    settings: config::AuditSettings,
    stop: CancellationToken,
) {
    // Nobody else changes a store that is not shared: what is open was left by a hub
    // that was killed.
    let left = if audit.store.is_shared() {
        MAX_CHANGE_AGE_MS
    } else {
        0
    };
    audit.close_stale_changes(clock::now_ms() - left).await;
    let mut tidied = time::Instant::now();
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
            // What waits meanwhile is bounded.
            let _stopped = time::timeout(STORE_RETRY_DELAY, stop.cancelled()).await;
        }
        if tidied.elapsed() >= CLEANUP_INTERVAL {
            tidied = time::Instant::now();
            audit.remove_old_records(&settings).await;
            audit
                .close_stale_changes(clock::now_ms() - MAX_CHANGE_AGE_MS)
                .await;
        }
        // Others come meanwhile, and go together.
        if items.len() < MAX_BATCH_RECORDS {
            let _stopped = time::timeout(BATCH_DELAY, stop.cancelled()).await;
        }
    }
    let last = iter::from_fn(|| items.try_recv().ok());
    for mut batch in [batch, Arc::new(last.collect())] {
        if !audit.write_batch(&mut batch).await {
            warn!("{} audit records could not be written", batch.len());
        }
    }
}

impl AuditLog {
    /// Writes all of them; if that fails they are kept for the next time.
    async fn write_batch(&self, batch: &mut Arc<Vec<AuditItem>>) -> bool {
        if batch.is_empty() {
            return true;
        }
        let (items, mut origins) = (Arc::clone(batch), OriginCache::default());
        let rows = (0..items.len()).map(move |at| items[at].to_row(&mut origins));
        match self.store.insert_audit_rows(rows).await {
            Ok(()) => {
                *batch = Arc::default();
                true
            }
            Err(error) if error.is_down() => false,
            Err(error) => {
                warn!(%error, "{} audit records wait until the store takes them", batch.len());
                false
            }
        }
    }

    async fn close_stale_changes(&self, before: i64) {
        if let Err(error) = self.store.record_unfinished_changes(before).await {
            warn!(%error, "changes that were begun could not be looked through");
        }
    }

    async fn remove_old_records(&self, settings: &config::AuditSettings) {
        let before = clock::now_ms() - i64::from(settings.max_days) * clock::DAY_MS;
        let done = self.store.trim_audit(before, settings.max_records).await;
        if let Err(error) = done {
            warn!(%error, "old audit records could not be removed");
        }
    }
}

/// Remembers how the last one is written: many calls come from the same place.
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

fn micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
