//! The messages that wait to be written to the store, in order.

use std::{future::Future, sync::Arc, time::Duration};

use maru_store::{DatabaseError, HubEnvelope, HubMailbox};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::debug;

/// How long a message may wait for its recipient.
const ENVELOPE_LIFETIME: Duration = Duration::from_secs(60);
const MAX_WAITING: usize = 1024;
const MAX_WAITING_BYTES: usize = 32 << 20;
/// How many messages are written in one transaction.
const MAX_BATCH: usize = 64;

/// The sending half, bounded in count and bytes.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: mpsc::Sender<WaitingEnvelope>,
    bytes: Arc<Semaphore>,
}

/// A message that holds its part of the bytes until it is written.
#[derive(Debug)]
pub(crate) struct WaitingEnvelope {
    envelope: HubEnvelope,
    _bytes: OwnedSemaphorePermit,
}

impl Outbox {
    pub(crate) fn new() -> (Self, mpsc::Receiver<WaitingEnvelope>) {
        let (waiting, receiver) = mpsc::channel(MAX_WAITING);
        let bytes = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
        (Self { waiting, bytes }, receiver)
    }

    /// Queues a message, waiting for space; false if it is too long or the hub stops.
    pub(crate) async fn send(&self, envelope: HubEnvelope) -> bool {
        let length = envelope.body.len().max(1);
        let (true, Ok(length)) = (length <= MAX_WAITING_BYTES, u32::try_from(length)) else {
            return false;
        };
        let Ok(permit) = Arc::clone(&self.bytes).acquire_many_owned(length).await else {
            return false;
        };
        let waiting = WaitingEnvelope {
            envelope,
            _bytes: permit,
        };
        self.waiting.send(waiting).await.is_ok()
    }
}

/// Writes waiting messages until the hub stops. `on_failure` gets those that the store did
/// not take.
pub(crate) async fn write_envelopes<F: Future<Output = ()>>(
    mailbox: &HubMailbox,
    mut waiting: mpsc::Receiver<WaitingEnvelope>,
    on_failure: impl Fn(Vec<HubEnvelope>) -> F,
) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let envelopes: Vec<HubEnvelope> = batch.iter().map(|it| it.envelope.clone()).collect();
        let lost = match write(mailbox, &envelopes).await {
            Ok(refused) => refused,
            Err(error) => {
                debug!(%error, "messages to other hubs could not be written");
                envelopes
            }
        };
        if !lost.is_empty() {
            on_failure(lost).await;
        }
        batch.clear();
    }
}

/// Writes a batch; a lost connection is replaced once. Returns what the store refused.
async fn write(
    mailbox: &HubMailbox,
    envelopes: &[HubEnvelope],
) -> Result<Vec<HubEnvelope>, DatabaseError> {
    match mailbox.send(envelopes, ENVELOPE_LIFETIME).await {
        Err(DatabaseError::Unreachable(_)) => mailbox.send(envelopes, ENVELOPE_LIFETIME).await,
        done => done,
    }
}
