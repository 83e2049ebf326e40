//! The streams of one session: those that are being read, and those that wait for a reader.

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

use super::feed::{MessageFeed, STANDALONE_STREAM};

/// How long a request continues, and its stream can be resumed, after its reader left.
pub(super) const READER_GRACE: Duration = Duration::from_secs(5);
/// How long a new reader waits for the old one to release the stream.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_WAITING_STREAMS: usize = 16;

/// Every stream that is being read or waits for a reader, by its number.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    all: Mutex<BTreeMap<u64, StreamState>>,
    changed: Notify,
}

#[derive(Debug)]
enum StreamState {
    /// Being read; the reader releases it when this is cancelled.
    BeingRead(CancellationToken),
    /// Waiting for a reader; the number identifies this wait.
    Waiting(Box<MessageFeed>, u64),
}

impl SessionStreams {
    /// Records a reader of stream `number`, which must release it when the token is cancelled.
    pub(super) fn start_reading(&self, number: u64) -> CancellationToken {
        let revoked = CancellationToken::new();
        self.lock()
            .insert(number, StreamState::BeingRead(revoked.clone()));
        revoked
    }

    /// Takes a stream that waits for a reader.
    pub(super) fn take(&self, number: u64) -> Option<MessageFeed> {
        let mut all = self.lock();
        match all.remove(&number)? {
            StreamState::Waiting(feed, _) => Some(*feed),
            read @ StreamState::BeingRead(_) => {
                all.insert(number, read);
                None
            }
        }
    }

    /// Takes a stream, if necessary from its reader: a client often reconnects before the
    /// hub notices that its old connection is dead.
    pub(super) async fn claim(&self, number: u64) -> Option<MessageFeed> {
        let deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            let changed = self.changed.notified();
            if let Some(feed) = self.take(number) {
                return Some(feed);
            }
            match self.lock().get(&number)? {
                StreamState::BeingRead(revoked) => revoked.cancel(),
                StreamState::Waiting(..) => continue,
            }
            time::timeout_at(deadline, changed).await.ok()?;
        }
    }

    /// Keeps a stream for a reader that may resume it, until [`forget`](Self::forget) is
    /// called with the same `wait`.
    pub(super) fn park(&self, feed: MessageFeed, wait: u64) {
        let mut all = self.lock();
        all.insert(
            feed.stream_number(),
            StreamState::Waiting(Box::new(feed), wait),
        );
        let waiting = all.iter().filter(|(number, it)| {
            **number != STANDALONE_STREAM && matches!(it, StreamState::Waiting(..))
        });
        let oldest = waiting.clone().next().map(|(number, _)| *number);
        if waiting.count() > MAX_WAITING_STREAMS
            && let Some(StreamState::Waiting(feed, _)) = oldest.and_then(|it| all.remove(&it))
        {
            feed.cancel();
        }
        self.changed.notify_waiters();
    }

    /// Removes a stream if it still waits under this number, and cancels its request.
    pub(super) fn forget(&self, number: u64, wait: u64) {
        let mut all = self.lock();
        if matches!(all.get(&number), Some(StreamState::Waiting(_, current)) if *current == wait)
            && let Some(StreamState::Waiting(feed, _)) = all.remove(&number)
        {
            feed.cancel();
        }
    }

    /// Removes a stream that has ended and is not kept.
    pub(super) fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, StreamState>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
