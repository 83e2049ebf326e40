//! A channel for outgoing messages that is bounded by count and by bytes.
//!
//! A full queue makes senders wait, in order of arrival. A receiver that takes nothing for
//! [`SEND_TIMEOUT`] counts as gone, so that a client that vanished never blocks the hub. A
//! slow receiver that keeps reading is waited for.

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

use crate::memory::{HeldText, MemoryShare};

const MAX_QUEUED_MESSAGES: usize = 256;
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// How long a sender waits for a receiver that takes nothing.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// The receiver was dropped, or has not read anything for [`SEND_TIMEOUT`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the receiver of this queue is gone")]
pub struct SendError;

/// Why [`MessageSender::try_send`] did not queue a message.
#[derive(Debug)]
pub enum TrySendError {
    /// The queue is full; contains the message.
    Full(HeldText),
    /// The receiver is gone.
    Closed(SendError),
}

/// The sending half of the queue; clones send to the same receiver.
#[derive(Clone, Debug)]
pub struct MessageSender(Arc<LastSenderGuard>);

/// Shared by all clones of a sender and dropped with the last of them.
#[derive(Debug)]
struct LastSenderGuard(Arc<MessageQueue>);

/// The receiving half of the queue. Dropping it makes senders fail.
#[derive(Debug)]
pub struct MessageReceiver {
    queue: Arc<MessageQueue>,
    /// What the last message holds: its reader works on it until it takes the next.
    held: Option<MemoryShare>,
}

/// The state queue by senders and receiver.
#[derive(Debug)]
struct MessageQueue {
    state: Mutex<MessageQueueState>,
    readable: Notify,
    space: Notify,
    /// Held by the one sender that waits for space, so that the others wait in order.
    send_turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct MessageQueueState {
    messages: VecDeque<HeldText>,
    bytes: usize,
    max_messages: usize,
    /// Whether a message fits that begins within the bytes, whatever its length.
    may_exceed_bytes: bool,
    has_senders: bool,
    has_receiver: bool,
    /// Number of senders that wait for space; a new message may not overtake theirs.
    waiting_senders: usize,
    /// When the receiver last took a message or reported progress.
    last_read: Option<Instant>,
}

/// Creates a queue.
pub fn channel() -> (MessageSender, MessageReceiver) {
    new_queue(MAX_QUEUED_MESSAGES, false)
}

/// Creates a queue for a sender that cannot wait: one message of any length fits behind
/// smaller ones.
pub fn channel_of(max_messages: usize) -> (MessageSender, MessageReceiver) {
    new_queue(max_messages, true)
}

fn new_queue(max_messages: usize, may_exceed_bytes: bool) -> (MessageSender, MessageReceiver) {
    let state = MessageQueueState {
        messages: VecDeque::new(),
        bytes: 0,
        max_messages,
        may_exceed_bytes,
        has_senders: true,
        has_receiver: true,
        waiting_senders: 0,
        last_read: None,
    };
    let queue = Arc::new(MessageQueue {
        state: Mutex::new(state),
        readable: Notify::new(),
        space: Notify::new(),
        send_turn: tokio::sync::Mutex::default(),
    });
    (
        MessageSender(Arc::new(LastSenderGuard(Arc::clone(&queue)))),
        MessageReceiver { queue, held: None },
    )
}

impl MessageSender {
    /// Queues `text`, waiting for space as long as the receiver keeps reading.
    pub async fn send(&self, text: impl Into<HeldText>) -> Result<(), SendError> {
        let (queue, mut text) = (&self.0.0, text.into());
        match queue.try_push(text, SendAttempt::First)? {
            None => return Ok(()),
            Some(back) => text = back,
        }
        let waiting = WaitingSenderGuard::new(queue);
        let _turn = queue.send_turn.lock().await;
        let started = Instant::now();
        loop {
            let mut space = pin!(queue.space.notified());
            // Registered before the check below, so that no wake-up is missed.
            space.as_mut().enable();
            match queue.try_push(text, SendAttempt::Waited)? {
                None => break,
                Some(back) => text = back,
            }
            let last_read = queue.lock().last_read.map_or(started, |it| it.max(started));
            let waited = time::timeout_at(last_read + SEND_TIMEOUT, space).await;
            if waited.is_err() && queue.idle_since(last_read) {
                return Err(SendError);
            }
        }
        drop(waiting);
        Ok(())
    }

    /// Queues `text` if there is space now; returns it otherwise.
    pub fn try_send(&self, text: impl Into<HeldText>) -> Result<(), TrySendError> {
        match self.0.0.try_push(text.into(), SendAttempt::First) {
            Ok(None) => Ok(()),
            Ok(Some(text)) => Err(TrySendError::Full(text)),
            Err(error) => Err(TrySendError::Closed(error)),
        }
    }
}

/// Whether a sender has already waited for space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendAttempt {
    First,
    Waited,
}

/// Counts a waiting sender until its wait ends or is cancelled.
struct WaitingSenderGuard<'a>(&'a MessageQueue);

impl<'a> WaitingSenderGuard<'a> {
    fn new(queue: &'a MessageQueue) -> Self {
        queue.lock().waiting_senders += 1;
        Self(queue)
    }
}

impl Drop for WaitingSenderGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting_senders -= 1;
    }
}

impl MessageReceiver {
    /// Returns the next message, or `None` when all senders are dropped. Cancel-safe.
    pub async fn recv(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.try_recv() {
                return Some(message);
            }
            if !self.queue.lock().has_senders {
                // The last sender may have sent a message between the two checks.
                return self.try_recv();
            }
            self.queue.readable.notified().await;
        }
    }

    /// Returns a message that is already queued.
    pub fn try_recv(&mut self) -> Option<String> {
        self.held = None;
        let mut state = self.queue.lock();
        let message = state.messages.pop_front()?;
        state.bytes -= message.len();
        state.last_read = Some(Instant::now());
        self.queue.space.notify_waiters();
        let (text, held) = message.into_parts();
        drop(state);
        self.held = held;
        Some(text)
    }

    /// Resets the senders' timeout while the receiver is busy with the last message.
    pub fn record_progress(&self) {
        self.queue.lock().last_read = Some(Instant::now());
    }
}

impl MessageQueue {
    /// Queues `text`, or returns it when there is no space or, on the first attempt,
    /// when other senders wait.
    fn try_push(
        &self,
        text: HeldText,
        attempt: SendAttempt,
    ) -> Result<Option<HeldText>, SendError> {
        let mut state = self.lock();
        if !state.has_receiver {
            return Err(SendError);
        }
        let overtakes = attempt == SendAttempt::First && state.waiting_senders > 0;
        if overtakes || !state.has_space(text.len()) {
            return Ok(Some(text));
        }
        state.bytes += text.len();
        state.messages.push_back(text);
        self.readable.notify_one();
        Ok(None)
    }

    fn idle_since(&self, time: Instant) -> bool {
        self.lock().last_read.is_none_or(|it| it <= time)
    }

    fn lock(&self) -> MutexGuard<'_, MessageQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MessageQueueState {
    /// Whether a message of `size` bytes fits. One larger than the whole queue fits
    /// when the queue is empty.
    fn has_space(&self, size: usize) -> bool {
        let counted = if self.may_exceed_bytes { 1 } else { size };
        self.messages.is_empty()
            || (self.messages.len() < self.max_messages && self.bytes + counted <= MAX_QUEUED_BYTES)
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
        let mut state = self.queue.lock();
        state.has_receiver = false;
        state.messages.clear();
        self.queue.space.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn receiver_that_takes_nothing_counts_as_gone() {
        let (sender, _receiver) = channel();
        for _ in 0..MAX_QUEUED_MESSAGES {
            sender.send("x".to_owned()).await.unwrap();
        }
        let started = Instant::now();
        assert_eq!(sender.send("x".to_owned()).await, Err(SendError));
        assert_eq!(started.elapsed(), SEND_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_receiver_that_keeps_reading_is_waited_for() {
        let (sender, mut receiver) = channel();
        let tasks = crate::tasks::Tasks::default();
        tasks.spawn(async move {
            for number in 0..4 {
                let large = format!("{number}{}", "x".repeat(3 << 20));
                sender.send(large).await.unwrap();
            }
        });
        for number in 0..4 {
            // Each message takes longer than SEND_TIMEOUT.
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
    async fn sending_to_a_dropped_receiver_fails() {
        let (sender, receiver) = channel();
        drop(receiver);
        assert_eq!(sender.send("x".to_owned()).await, Err(SendError));
    }
}
