//! A queue of outgoing messages, bounded by count and by bytes.
//!
//! A sender waits for room, but not for ever: a reader that takes nothing for
//! [`PATIENCE`] counts as gone, so a vanished client never holds the engine.

use std::{sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time,
};

const MESSAGES: usize = 256;
const BYTES: u32 = 1 << 20;
/// How long a sender waits for a reader that takes nothing.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The reader is gone, or too slow to count as present.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the reader of this queue is gone")]
pub struct Gone;

/// The writing end; clones write to the same reader.
#[derive(Clone, Debug)]
pub struct Sender {
    items: mpsc::Sender<Item>,
    room: Arc<Semaphore>,
}

/// The reading end; dropping it tells the senders.
#[derive(Debug)]
pub struct Receiver {
    items: mpsc::Receiver<Item>,
}

#[derive(Debug)]
struct Item {
    text: String,
    _room: OwnedSemaphorePermit,
}

/// A new queue.
pub fn channel() -> (Sender, Receiver) {
    let (sender, items) = mpsc::channel(MESSAGES);
    let room = Arc::new(Semaphore::new(BYTES as usize));
    (
        Sender {
            items: sender,
            room,
        },
        Receiver { items },
    )
}

impl Sender {
    /// Queues `text`, waiting for room for at most [`PATIENCE`].
    pub async fn send(&self, text: String) -> Result<(), Gone> {
        time::timeout(PATIENCE, self.push(text))
            .await
            .unwrap_or(Err(Gone))
    }

    /// Resolves when the reader has gone.
    pub async fn closed(&self) {
        self.items.closed().await;
    }

    /// Whether the reader has gone.
    pub fn is_closed(&self) -> bool {
        self.items.is_closed()
    }

    async fn push(&self, text: String) -> Result<(), Gone> {
        // A message larger than the whole queue takes all of it.
        let size = u32::try_from(text.len()).unwrap_or(BYTES).min(BYTES);
        let room = Arc::clone(&self.room).acquire_many_owned(size);
        let item = Item {
            text,
            _room: room.await.map_err(|_| Gone)?,
        };
        self.items.send(item).await.map_err(|_| Gone)
    }
}

impl Receiver {
    /// The next message, or `None` when every sender has gone.
    pub async fn recv(&mut self) -> Option<String> {
        self.items.recv().await.map(|item| item.text)
    }

    /// A message that is already there.
    pub fn try_recv(&mut self) -> Option<String> {
        self.items.try_recv().ok().map(|item| item.text)
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
}
