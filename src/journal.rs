//! What was called: every call leaves a [`Record`], the last ones are kept in
//! memory, and counts of each minute outlive them by an hour.
//!
//! A call costs two looks at the clock, one lock and the texts that are kept.
//! Nothing is written as JSON and nothing is masked until somebody looks.

mod clients;
mod record;
mod request;
mod ring;
mod stats;
mod totals;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::{sync::Notify, time::Instant};

use crate::clock;
use ring::Ring;

pub use crate::config::masked;
pub use clients::{Clients, Seen, label};
pub use record::{Asked, Outcome, Record};
pub use request::RequestId;
pub use stats::{Minute, Series, Stats, Summary};
pub use totals::{STEPS, Total, Totals};

/// Every call of late.
#[derive(Debug)]
pub struct Journal {
    kept: Mutex<Kept>,
    /// Rings when there is more, if anyone listens.
    bell: Notify,
    listeners: AtomicUsize,
    clients: Clients,
    told: RwLock<Vec<Told>>,
}

/// Is told of every record; must not wait.
pub type Tell = Box<dyn Fn(&Arc<Record>) + Send + Sync>;

struct Told(Tell);

#[derive(Debug)]
struct Kept {
    ring: Ring,
    stats: Stats,
    totals: Totals,
}

/// A call in progress. Dropped before it is finished, it was cancelled.
#[derive(Debug)]
pub struct Started<'a> {
    journal: &'a Journal,
    asked: Option<Asked>,
    at: Instant,
    /// When whoever answers was asked.
    passed_on: Option<Instant>,
    answered: Option<Instant>,
}

/// Somebody who is told that there is more, until this is dropped.
#[derive(Debug)]
pub struct Listening<'a>(&'a Journal);

impl Default for Journal {
    fn default() -> Self {
        let kept = Kept {
            ring: Ring::new(now()),
            stats: Stats::default(),
            totals: Totals::default(),
        };
        Self {
            kept: Mutex::new(kept),
            bell: Notify::new(),
            listeners: AtomicUsize::new(0),
            clients: Clients::default(),
            told: RwLock::default(),
        }
    }
}

impl Journal {
    /// A call begins.
    pub fn begin(&self, asked: Asked) -> Started<'_> {
        Started {
            journal: self,
            asked: Some(asked),
            at: Instant::now(),
            passed_on: None,
            answered: None,
        }
    }

    /// The record of this number, if it is still kept.
    pub fn get(&self, id: u64) -> Option<Arc<Record>> {
        self.lock().ring.get(id)
    }

    /// The newest `limit` records before number `before` that `wanted` takes, newest first.
    pub fn recent(
        &self,
        before: Option<u64>,
        limit: usize,
        wanted: impl Fn(&Record) -> bool,
    ) -> Vec<Arc<Record>> {
        let all = self.lock().ring.before(before);
        all.into_iter()
            .filter(|it| wanted(it))
            .take(limit)
            .collect()
    }

    /// The newest `limit` records after number `id`, oldest first.
    pub fn since(&self, id: u64, limit: usize) -> Vec<Arc<Record>> {
        self.lock().ring.since(id, limit)
    }

    /// The number of the newest record.
    pub fn last(&self) -> u64 {
        self.lock().ring.last()
    }

    /// Calls per minute of every tool, and of every server.
    pub fn read_stats<T>(&self, read: impl FnOnce(&Stats) -> T) -> T {
        read(&self.lock().stats)
    }

    /// Counts since the start, of every tool.
    pub fn totals(&self) -> Vec<(Arc<str>, Total)> {
        self.lock().totals.sorted()
    }

    /// Tells `told` of every record from now on.
    pub fn tell(&self, told: Tell) {
        let mut all = self.told.write().unwrap_or_else(PoisonError::into_inner);
        all.push(Told(told));
    }

    /// Who calls.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Wants to be told when there is more.
    pub fn listen(&self) -> Listening<'_> {
        self.listeners.fetch_add(1, Relaxed);
        Listening(self)
    }

    fn keep(&self, mut record: Record) {
        let mut kept = self.lock();
        kept.stats.count(&record);
        kept.totals.count(&record);
        record.id = kept.ring.next();
        let record = Arc::new(record);
        kept.ring.push(Arc::clone(&record));
        drop(kept);
        for told in &*self.told.read().unwrap_or_else(PoisonError::into_inner) {
            (told.0)(&record);
        }
        if self.listeners.load(Relaxed) > 0 {
            self.bell.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Started<'_> {
    /// The question is passed on to whoever answers it.
    pub fn passed_on(&mut self) {
        self.passed_on = Some(Instant::now());
    }

    /// The answer is there.
    pub fn answered(&mut self) {
        self.answered = Some(Instant::now());
    }

    /// The call is over.
    pub fn finish(mut self, outcome: Outcome, result: &str) {
        self.keep(outcome, result);
    }

    /// It leaves no record: it is put again, and then it does.
    pub fn forget(mut self) {
        self.asked = None;
    }

    fn keep(&mut self, outcome: Outcome, result: &str) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let done = self.answered.unwrap_or_else(Instant::now);
        let record = Record {
            id: 0,
            at: now(),
            outcome,
            took: done - self.at,
            waited: self.passed_on.map_or_else(Default::default, |it| done - it),
            sent: asked.arguments.len(),
            received: result.len(),
            result: record::cut(result, record::RESULT),
            asked: asked.cut(),
        };
        self.journal.keep(record);
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.keep(Outcome::Cancelled, "");
    }
}

impl Listening<'_> {
    /// Resolves when there is more than number `seen`.
    pub async fn more(&self, seen: u64) {
        loop {
            // Made before the look, so that no ring is missed.
            let rung = self.0.bell.notified();
            if self.0.last() > seen {
                return;
            }
            rung.await;
        }
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Told")
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Relaxed);
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    u64::try_from(clock::now()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tool: &str, arguments: &str) -> Asked {
        Asked {
            tool: tool.into(),
            server: "maru".into(),
            principal: "local".into(),
            client: None,
            from: None,
            request: RequestId::next(),
            arguments: arguments.into(),
        }
    }

    #[test]
    fn every_end_of_a_call_leaves_one_record() {
        let journal = Journal::default();
        journal.begin(asked("a", "{}")).finish(Outcome::Ok, "done");
        drop(journal.begin(asked("b", "{}")));
        journal.begin(asked("c", "{}")).forget();
        let found: Vec<_> = journal
            .recent(None, 10, |_| true)
            .iter()
            .map(|it| (it.asked.tool.to_string(), it.outcome))
            .collect();
        let expected = [
            ("b".to_owned(), Outcome::Cancelled),
            ("a".to_owned(), Outcome::Ok),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn long_texts_are_cut_on_a_character_and_their_size_is_kept() {
        let journal = Journal::default();
        let long = "가".repeat(10_000);
        journal.begin(asked("a", &long)).finish(Outcome::Ok, &long);
        let record = journal.get(journal.last()).unwrap();
        assert!(record.asked.arguments.len() <= record::ARGUMENTS);
        assert!(record.result.len() <= record::RESULT && record.result.ends_with('가'));
        assert_eq!((record.sent, record.received), (30_000, 30_000));
    }

    #[tokio::test]
    async fn listener_hears_of_what_came_before_it_waited() {
        let journal = Journal::default();
        let listening = journal.listen();
        let seen = journal.last();
        journal.begin(asked("a", "{}")).finish(Outcome::Ok, "");
        listening.more(seen).await;
        assert_eq!(journal.since(seen, 10).len(), 1);
    }
}
