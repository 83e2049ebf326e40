//! The streams of one session: who reads them, and which wait for a reader.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::feed::{Feed, STANDALONE};

/// How long work goes on for a reader who left, and its stream waits for them.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long a new reader waits for the old one to let go.
const HAND_OVER: Duration = Duration::from_secs(1);
const MAX_PARKED: usize = 16;

/// Every stream that is being read or waits for a reader, by its number.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Mutex<BTreeMap<u64, State>>,
    changed: Notify,
}

#[derive(Debug)]
enum State {
    /// Being read; the reader lets go when this is cancelled.
    Read(CancellationToken),
    /// Waiting; the number tells this wait from others of the stream.
    Parked(Box<Feed>, u64),
}

impl Streams {
    /// Notes a reader of stream `number`; a cancelled token asks it to let go.
    pub(super) fn read(&self, number: u64) -> CancellationToken {
        let revoked = CancellationToken::new();
        self.lock().insert(number, State::Read(revoked.clone()));
        revoked
    }

    /// Takes a stream that waits for a reader.
    pub(super) fn take(&self, number: u64) -> Option<Feed> {
        let mut all = self.lock();
        match all.remove(&number)? {
            State::Parked(feed, _) => Some(*feed),
            read @ State::Read(_) => {
                all.insert(number, read);
                None
            }
        }
    }

    /// Takes a stream, from its reader if need be: the new connection of a
    /// client is there before we know that the old one is dead.
    pub(super) async fn claim(&self, number: u64) -> Option<Feed> {
        let deadline = Instant::now() + HAND_OVER;
        loop {
            let changed = self.changed.notified();
            if let Some(feed) = self.take(number) {
                return Some(feed);
            }
            match self.lock().get(&number)? {
                State::Read(revoked) => revoked.cancel(),
                State::Parked(..) => continue,
            }
            time::timeout_at(deadline, changed).await.ok()?;
        }
    }

    /// Keeps a stream for a reader who may come back. Whoever parked it may
    /// [`forget`](Self::forget) it later, by `wait`.
    pub(super) fn park(&self, feed: Feed, wait: u64) {
        let mut all = self.lock();
        all.insert(feed.number(), State::Parked(Box::new(feed), wait));
        let parked = all
            .iter()
            .filter(|(number, it)| **number != STANDALONE && matches!(it, State::Parked(..)));
        let oldest = parked.clone().next().map(|(number, _)| *number);
        if parked.count() > MAX_PARKED
            && let Some(State::Parked(feed, _)) = oldest.and_then(|it| all.remove(&it))
        {
            feed.cancel();
        }
        self.changed.notify_waiters();
    }

    /// Gives a stream up if it still waits as it did, and ends its work.
    pub(super) fn forget(&self, number: u64, wait: u64) {
        let mut all = self.lock();
        if matches!(all.get(&number), Some(State::Parked(_, parked)) if *parked == wait)
            && let Some(State::Parked(feed, _)) = all.remove(&number)
        {
            feed.cancel();
        }
    }

    /// A stream that is over and need not be kept.
    pub(super) fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, State>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
