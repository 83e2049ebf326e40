//! A queue of outgoing messages, bounded by count and by bytes.
//!
//! A sender waits for room, in turn, but not for ever: a reader that takes
//! nothing for [`SEND_TIMEOUT`] counts as gone, so a vanished client never holds the
//! engine. One that takes its time but keeps taking is waited for.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::{
    sync::Notify,
    time::{self, Instant},
};

const MAX_QUEUED_MESSAGES: usize = 256;
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// How long a sender waits for a reader that takes nothing.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The reader is gone, or too slow to count as present.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the reader of this queue is gone")]
pub struct SendError;

/// Why a message was not queued at once.
#[derive(Debug, PartialEq, Eq)]
pub enum TrySendError {
    /// There is no room now; the message comes back.
    Full(String),
    /// Nobody will read it.
    Closed(SendError),
}

/// The writing end; clones write to the same reader.
#[derive(Clone, Debug)]
pub struct MessageSender(Arc<LastSenderGuard>);

/// All clones of a sender; dropped with the last of them.
#[derive(Debug)]
struct LastSenderGuard(Arc<MessageQueue>);

/// The reading end; dropping it tells the senders.
#[derive(Debug)]
pub struct MessageReceiver(Arc<MessageQueue>);

/// One small allocation: most queues end without having carried a message.
#[derive(Debug)]
struct MessageQueue {
    state: Mutex<MessageQueueState>,
    readable: Notify,
    room: Notify,
    /// Held by the sender whose turn it is to wait for room.
    send_turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct MessageQueueState {
    messages: VecDeque<String>,
    bytes: usize,
    has_senders: bool,
    has_reader: bool,
    /// Senders that wait for room; nobody overtakes them.
    waiting_senders: usize,
    /// When the reader last showed that it reads.
    last_read: Option<Instant>,
}

/// A new queue.
pub fn channel() -> (MessageSender, MessageReceiver) {
    let state = MessageQueueState {
        messages: VecDeque::new(),
        bytes: 0,
        has_senders: true,
        has_reader: true,
        waiting_senders: 0,
        last_read: None,
    };
    let shared = Arc::new(MessageQueue {
        state: Mutex::new(state),
        readable: Notify::new(),
        room: Notify::new(),
        send_turn: tokio::sync::Mutex::default(),
    });
    (
        MessageSender(Arc::new(LastSenderGuard(Arc::clone(&shared)))),
        MessageReceiver(shared),
    )
}

impl MessageSender {
    /// Queues `text`, waiting for room as long as the reader reads.
    pub async fn send(&self, mut text: String) -> Result<(), SendError> {
        let shared = &self.0.0;
        match shared.try_push(text, SendAttempt::First)? {
            None => return Ok(()),
            Some(back) => text = back,
        }
        let waiting = WaitingSenderGuard::new(shared);
        let _turn = shared.send_turn.lock().await;
        let began = Instant::now();
        loop {
            let mut room = pin!(shared.room.notified());
            // Registered before the look, so that no wake-up is missed.
            room.as_mut().enable();
            match shared.try_push(text, SendAttempt::Waited)? {
                None => break,
                Some(back) => text = back,
            }
            let last = shared
                .lock()
                .last_read
                .map_or(began, |taken| taken.max(began));
            if time::timeout_at(last + SEND_TIMEOUT, room).await.is_err() && shared.idle_since(last)
            {
                return Err(SendError);
            }
        }
        drop(waiting);
        Ok(())
    }
}

impl MessageSender {
    /// Queues `text` if there is room now; gives it back if there is none.
    pub fn try_send(&self, text: String) -> Result<(), TrySendError> {
        match self.0.0.try_push(text, SendAttempt::First) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => Err(TrySendError::Full(text)),
            Err(gone) => Err(TrySendError::Closed(gone)),
        }
    }
}

/// Whether a sender has waited for its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendAttempt {
    First,
    Waited,
}

/// Counts a sender that waits, however its wait ends.
struct WaitingSenderGuard<'a>(&'a MessageQueue);

impl<'a> WaitingSenderGuard<'a> {
    fn new(shared: &'a MessageQueue) -> Self {
        shared.lock().waiting_senders += 1;
        Self(shared)
    }
}

impl Drop for WaitingSenderGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting_senders -= 1;
    }
}

impl MessageReceiver {
    /// The next message, or `None` when every sender has gone. Cancel-safe.
    pub async fn recv(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            if !self.0.lock().has_senders {
                // The last one may have sent before it went.
                return self.try_recv();
            }
            self.0.readable.notified().await;
        }
    }

    /// A message that is already there.
    pub fn try_recv(&mut self) -> Option<String> {
        let mut state = self.0.lock();
        let message = state.messages.pop_front()?;
        state.bytes -= message.len();
        state.last_read = Some(Instant::now());
        self.0.room.notify_waiters();
        Some(message)
    }

    /// Shows that the reader is busy with what it took.
    pub fn record_progress(&self) {
        self.0.lock().last_read = Some(Instant::now());
    }
}

impl MessageQueue {
    /// Queues `text`, or gives it back when there is no room or, unless it has
    /// waited itself, when others wait.
    fn try_push(&self, text: String, turn: SendAttempt) -> Result<Option<String>, SendError> {
        let mut state = self.lock();
        if !state.has_reader {
            return Err(SendError);
        }
        let overtakes = turn == SendAttempt::First && state.waiting_senders > 0;
        if overtakes || !state.has_room(text.len()) {
            return Ok(Some(text));
        }
        state.bytes += text.len();
        state.messages.push_back(text);
        self.readable.notify_one();
        Ok(None)
    }

    fn idle_since(&self, last: Instant) -> bool {
        self.lock().last_read.is_none_or(|taken| taken <= last)
    }

    fn lock(&self) -> MutexGuard<'_, MessageQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessageQueueState {
    /// A message larger than the whole queue passes when it is empty.
    fn has_room(&self, size: usize) -> bool {
        self.messages.is_empty()
            || (self.messages.len() < MAX_QUEUED_MESSAGES && self.bytes + size <= MAX_QUEUED_BYTES)
    }
}

impl Drop for LastSenderGuard {
    fn drop(&mut self) {
        self.0.lock().has_senders = false;
        self.0.readable.notify_one();
    }
}

impl Drop for MessageReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_reader = false;
        state.messages.clear();
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reader_that_takes_nothing_counts_as_gone() {
        let (sender, _receiver) = channel();
        for _ in 0..MAX_QUEUED_MESSAGES {
            sender.send("x".to_owned()).await.unwrap();
        }
        let asked = Instant::now();
        assert_eq!(sender.send("x".to_owned()).await, Err(SendError));
        assert_eq!(asked.elapsed(), SEND_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_that_keeps_reading_is_waited_for() {
        let (sender, mut receiver) = channel();
        let tasks = crate::tasks::Tasks::default();
        tasks.spawn(async move {
            for number in 0..4 {
                let large = format!("{number}{}", "x".repeat(3 << 20));
                sender.send(large).await.unwrap();
            }
        });
        for number in 0..4 {
            // Each message takes far longer than the sender's patience.
            for _ in 0..5 {
                time::sleep(SEND_TIMEOUT * 4 / 5).await;
                receiver.record_progress();
            }
            let message = receiver.recv().await.unwrap();
            assert!(message.starts_with(&number.to_string()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn large_message_passes_when_the_queue_is_empty() {
        let (sender, mut receiver) = channel();
        let large = "x".repeat(3 << 20);
        sender.send(large.clone()).await.unwrap();
        assert_eq!(sender.send("y".to_owned()).await, Err(SendError));
        assert_eq!(receiver.recv().await, Some(large));
        sender.send("y".to_owned()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn everything_sent_is_received_and_then_the_queue_ends() {
        let (sender, mut receiver) = channel();
        let other = sender.clone();
        let tasks = crate::tasks::Tasks::default();
        for sender in [sender, other] {
            tasks.spawn(async move {
                for _ in 0..1000 {
                    sender.send("x".repeat(2000)).await.unwrap();
                }
            });
        }
        let mut count = 0;
        while receiver.recv().await.is_some() {
            count += 1;
            if count % 7 == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(count, 2000);
    }

    #[tokio::test]
    async fn sender_learns_that_the_reader_left() {
        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send("x".to_owned()).await, Err(SendError));
    }
}
