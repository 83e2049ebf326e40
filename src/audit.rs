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

use tokio::{sync::mpsc, time};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    clock,
    config::{self, Audit as Settings},
    journal::{Journal, Record, masked},
    store::{self, AuditFilter, AuditRow, Store},
    tasks::Tasks,
};

pub use redact::redacted;

/// Calls that wait to be written; one more is lost, and counted.
const QUEUE: usize = 16_384;
/// Calls that are written together.
const BATCH: usize = 4096;
/// How long a call may wait for others.
const SOON: Duration = Duration::from_millis(250);
/// How soon a store that failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often old records are removed.
const TIDY: Duration = Duration::from_secs(60);
/// After which time a change that was begun has ended, whoever made it: milliseconds.
const ENDED: i64 = 3_600_000;
/// Characters of arguments that are kept.
const ARGUMENTS: usize = 1000;

/// The audit log.
#[derive(Debug)]
pub struct Audit {
    store: Store,
    queue: mpsc::Sender<Item>,
    lost: AtomicU64,
}

/// What waits to be written.
#[derive(Debug)]
enum Item {
    Call(Arc<Record>),
    Change(Box<AuditRow>),
}

/// A change that someone made, or tried to.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// Who.
    pub principal: &'a str,
    /// From where; absent from this machine.
    pub from: Option<IpAddr>,
    /// Method and route.
    pub action: String,
    /// The path.
    pub target: &'a str,
    /// The body, redacted.
    pub arguments: String,
    /// The status of the answer.
    pub status: u16,
    /// How long it took.
    pub took: Duration,
    /// The request.
    pub request: String,
}

impl Audit {
    /// Begins to write what `journal` tells, until `tasks` stops.
    pub fn start(store: Store, settings: &Settings, journal: &Journal, tasks: &Tasks) -> Arc<Self> {
        let (queue, items) = mpsc::channel(QUEUE);
        let audit = Arc::new(Self {
            store,
            queue,
            lost: AtomicU64::new(0),
        });
        if settings.calls {
            let told = Arc::clone(&audit);
            journal.tell(Box::new(move |record| {
                told.push(Item::Call(Arc::clone(record)));
            }));
        }
        let keep = keep(Arc::clone(&audit), items, settings.clone(), tasks.stop());
        tasks.spawn(keep);
        audit
    }

    /// Notes a change before it is made: what cannot be noted is not to be made. It is
    /// on disk when this returns.
    pub async fn begin(&self, change: &Change<'_>) -> Result<(), store::Error> {
        self.store.begin_change(&change.row()).await
    }

    /// Records how a change that was begun has ended. That it was made is noted
    /// already, so a store that fails now does not take it back: the record is
    /// written when the store is there again.
    pub async fn end(&self, change: &Change<'_>) {
        let row = change.row();
        if let Err(error) = self.store.end_change(row.clone()).await {
            warn!(%error, "how a change ended is recorded when the store takes it");
            self.push(Item::Change(Box::new(row)));
        }
    }

    /// Notes a change that was refused, when there is time.
    pub fn note(&self, change: &Change<'_>) {
        self.push(Item::Change(Box::new(change.row())));
    }

    /// The newest records that fit, newest first.
    pub async fn list(&self, filter: &AuditFilter) -> Result<Vec<AuditRow>, store::Error> {
        self.store.audit(filter).await
    }

    /// Records that wait, and those that were lost because too many did.
    pub fn depth(&self) -> (usize, u64) {
        let waiting = self.queue.max_capacity() - self.queue.capacity();
        (waiting, self.lost.load(Relaxed))
    }

    fn push(&self, item: Item) {
        if self.queue.try_send(item).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

impl Item {
    fn row(&self, origins: &mut Origins) -> AuditRow {
        match self {
            Self::Call(record) => call(record, origins),
            Self::Change(row) => AuditRow::clone(row),
        }
    }
}

impl Change<'_> {
    fn row(&self) -> AuditRow {
        AuditRow {
            id: 0,
            at: clock::now(),
            principal: self.principal.to_owned(),
            origin: origin(self.from),
            client: None,
            action: self.action.clone(),
            target: short(self.target),
            arguments: short(&self.arguments),
            outcome: self.status.to_string(),
            took: micros(self.took),
            request: self.request.clone(),
        }
    }
}

fn call(record: &Record, origins: &mut Origins) -> AuditRow {
    let asked = &record.asked;
    AuditRow {
        id: 0,
        at: i64::try_from(record.at).unwrap_or(i64::MAX),
        principal: asked.principal.to_string(),
        origin: origins.name(asked.from),
        client: asked.client.as_ref().map(ToString::to_string),
        action: "tools/call".to_owned(),
        target: asked.tool.to_string(),
        arguments: short(&masked(&asked.arguments)),
        outcome: record.outcome.as_str().to_owned(),
        took: micros(record.took),
        request: asked.request.to_string(),
    }
}

/// Writes what comes, some at a time, and removes what is old.
async fn keep(
    audit: Arc<Audit>,
    mut items: mpsc::Receiver<Item>,
    settings: config::Audit,
    stop: CancellationToken,
) {
    // Nobody else changes a store that is not shared: what is open was left by a hub
    // that was killed.
    let left = if audit.store.is_shared() { ENDED } else { 0 };
    audit.settle(clock::now() - left).await;
    let mut tidied = time::Instant::now();
    let mut batch: Arc<Vec<Item>> = Arc::default();
    loop {
        let mut new = Vec::new();
        tokio::select! {
            _ = items.recv_many(&mut new, BATCH), if batch.is_empty() => batch = Arc::new(new),
            () = ready(()), if !batch.is_empty() => (),
            () = stop.cancelled() => break,
            () = time::sleep(TIDY) => (),
        }
        if !audit.write(&mut batch).await {
            // What waits meanwhile is bounded.
            let _stopped = time::timeout(AGAIN, stop.cancelled()).await;
        }
        if tidied.elapsed() >= TIDY {
            tidied = time::Instant::now();
            audit.shorten(&settings).await;
            audit.settle(clock::now() - ENDED).await;
        }
        // Others come meanwhile, and go together.
        if items.len() < BATCH {
            let _stopped = time::timeout(SOON, stop.cancelled()).await;
        }
    }
    let last = iter::from_fn(|| items.try_recv().ok());
    for mut batch in [batch, Arc::new(last.collect())] {
        if !audit.write(&mut batch).await {
            warn!("{} audit records could not be written", batch.len());
        }
    }
}

impl Audit {
    /// Writes all of them; if that fails they are kept for the next time.
    async fn write(&self, batch: &mut Arc<Vec<Item>>) -> bool {
        if batch.is_empty() {
            return true;
        }
        let (items, mut origins) = (Arc::clone(batch), Origins::default());
        let rows = (0..items.len()).map(move |at| items[at].row(&mut origins));
        match self.store.add_audit(rows).await {
            Ok(()) => {
                *batch = Arc::default();
                true
            }
            Err(error) => {
                warn!(%error, "{} audit records wait until the store takes them", batch.len());
                false
            }
        }
    }

    async fn settle(&self, before: i64) {
        if let Err(error) = self.store.settle_changes(before).await {
            warn!(%error, "changes that were begun could not be looked through");
        }
    }

    async fn shorten(&self, settings: &config::Audit) {
        let before = clock::now() - i64::from(settings.max_days) * clock::DAY;
        let done = self.store.shorten_audit(before, settings.max_records).await;
        if let Err(error) = done {
            warn!(%error, "old audit records could not be removed");
        }
    }
}

/// Remembers how the last one is written: many calls come from the same place.
#[derive(Default)]
struct Origins(Option<(Option<IpAddr>, String)>);

impl Origins {
    fn name(&mut self, from: Option<IpAddr>) -> String {
        match &self.0 {
            Some((last, name)) if *last == from => name.clone(),
            _ => self.0.insert((from, origin(from))).1.clone(),
        }
    }
}

fn origin(from: Option<IpAddr>) -> String {
    from.map_or("local".to_owned(), |it| it.to_string())
}

fn micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

fn short(text: &str) -> String {
    match text.char_indices().nth(ARGUMENTS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
