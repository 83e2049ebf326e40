//! A queue of outgoing messages, bounded by count and by bytes.
//!
//! A sender waits for room, but not for ever: a reader that takes nothing for
//! [`PATIENCE`] counts as gone, so a vanished client never holds the engine.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::{sync::Notify, time};

const MESSAGES: usize = 256;
const BYTES: usize = 1 << 20;
/// How long a sender waits for a reader that takes nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The reader is gone, or too slow to count as present.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the reader of this queue is gone")]
pub struct Gone;

/// The writing end; clones write to the same reader.
#[derive(Clone, Debug)]
pub struct Sender(Arc<Senders>);

/// All clones of a sender; dropped with the last of them.
#[derive(Debug)]
struct Senders(Arc<Shared>);

/// The reading end; dropping it tells the senders.
#[derive(Debug)]
pub struct Receiver(Arc<Shared>);

/// One small allocation: most queues end without having carried a message.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    readable: Notify,
    room: Notify,
}

#[derive(Debug)]
struct State {
    messages: VecDeque<String>,
    bytes: usize,
    has_senders: bool,
    has_reader: bool,
}

/// A new queue.
pub fn channel() -> (Sender, Receiver) {
    let state = State {
        messages: VecDeque::new(),
        bytes: 0,
        has_senders: true,
        has_reader: true,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        readable: Notify::new(),
        room: Notify::new(),
    });
    (
        Sender(Arc::new(Senders(Arc::clone(&shared)))),
        Receiver(shared),
    )
}

impl Sender {
    /// Queues `text`, waiting for room for at most [`PATIENCE`].
    pub async fn send(&self, text: String) -> Result<(), Gone> {
        time::timeout(PATIENCE, self.push(text))
            .await
            .unwrap_or(Err(Gone))
    }

    async fn push(&self, text: String) -> Result<(), Gone> {
        let shared = &self.0.0;
        loop {
            let mut room = pin!(shared.room.notified());
            // Registered before the look, so that no wake-up is missed.
            room.as_mut().enable();
            {
                let mut state = shared.lock();
                if !state.has_reader {
                    return Err(Gone);
                }
                if state.has_room(text.len()) {
                    state.bytes += text.len();
                    state.messages.push_back(text);
                    shared.readable.notify_one();
                    return Ok(());
                }
            }
            room.await;
        }
    }
}

impl Receiver {
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
        self.0.room.notify_waiters();
        Some(message)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A message larger than the whole queue passes when it is empty.
    fn has_room(&self, size: usize) -> bool {
        self.messages.is_empty() || (self.messages.len() < MESSAGES && self.bytes + size <= BYTES)
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.0.lock().has_senders = false;
        self.0.readable.notify_one();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_reader = false;
        state.messages.clear();
        self.0.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reader_that_takes_nothing_counts_as_gone() {
        let (sender, _receiver) = channel();
        for _ in 0..MESSAGES {
            sender.send("x".to_owned()).await.unwrap();
        }
        let asked = Instant::now();
        assert_eq!(sender.send("x".to_owned()).await, Err(Gone));
        assert_eq!(asked.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn large_message_passes_when_the_queue_is_empty() {
        let (sender, mut receiver) = channel();
        let large = "x".repeat(3 << 20);
        sender.send(large.clone()).await.unwrap();
        assert_eq!(sender.send("y".to_owned()).await, Err(Gone));
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
        assert_eq!(sender.send("x".to_owned()).await, Err(Gone));
    }
}
