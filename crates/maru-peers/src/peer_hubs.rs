//! The hubs that share the store: which of them run, and the exchanges with them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use futures_util::future::join_all;
use maru_runtime::tasks::{Tasks, with_timeout};
use maru_store::{HubEnvelope, HubMailbox, HubMemberRow, SecretSealer, Store};
use tokio::{sync::mpsc, time};
use tracing::{debug, warn};

use super::{
    Error, Exchange, HubKey, PeerRequest, PeerTopic,
    exchange::{ExchangeAddress, OpenExchange},
    outbox::{Outbox, write_envelopes},
};

/// How often a hub tells the others that it runs.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// How many announcements pass between two removals of expired messages.
const CLEANUP_EVERY: u32 = 30;
/// How long a reply of another hub may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a note waits until every hub has it.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_EXCHANGES: usize = 16_384;
/// How many requests of other hubs may wait to be handled.
const MAX_WAITING_REQUESTS: usize = 256;
const ID_LENGTH: usize = 10;
const MESSAGE: &str = "message";
const END: &str = "end";

/// What every hub must know, also one that asks later.
#[derive(Debug)]
pub struct HubNote<'a> {
    /// What hubs that run now receive it as.
    pub topic: PeerTopic,
    /// What it is kept under.
    pub key: &'a str,
    /// What it does to earlier notes.
    pub change: NoteChange,
    /// Its text.
    pub body: &'a str,
    /// How long it is kept.
    pub lifetime: Duration,
}

/// What a note does to the others under its key.
#[derive(Debug)]
pub enum NoteChange {
    /// Replaces the note of this kind.
    Kept(String),
    /// Takes back the note of this kind.
    Removed(String),
    /// Replaces all notes.
    Last,
}

/// This hub's view of the hubs that share its store.
#[derive(Debug)]
pub struct PeerHubs {
    id: Arc<str>,
    name: Arc<str>,
    key: HubKey,
    sealer: SecretSealer,
    mailbox: HubMailbox,
    outbox: Outbox,
    tasks: Tasks,
    members: Mutex<Vec<PeerHub>>,
    exchanges: Mutex<HashMap<String, OpenExchange>>,
    services: Mutex<HashMap<PeerTopic, mpsc::Sender<PeerRequest>>>,
    next_exchange: AtomicU64,
}

/// Another hub that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHub {
    /// Its id, new at every start.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its version.
    pub version: Arc<str>,
}

impl PeerHubs {
    /// Joins the hubs that share `store`, under `name`; `None` if nobody can share it.
    pub async fn join(
        store: &Store,
        name: &str,
        tasks: &Tasks,
    ) -> Result<Option<Arc<Self>>, maru_store::Error> {
        let id = random_id();
        let Some(mailbox) = store.hub_mailbox(&id) else {
            return Ok(None);
        };
        let (outbox, waiting) = Outbox::new();
        let key = HubKey::new(store.shared_key().await?);
        let peers = Arc::new(Self {
            id: id.into(),
            name: name.into(),
            sealer: key.sealer("envelope"),
            key,
            mailbox,
            outbox,
            tasks: tasks.clone(),
            members: Mutex::default(),
            exchanges: Mutex::default(),
            services: Mutex::default(),
            next_exchange: AtomicU64::new(1),
        });
        peers.announce().await;
        let (announcer, stop) = (Arc::clone(&peers), tasks.stop_token());
        tasks.spawn(async move {
            stop.run_until_cancelled(announcer.announce_periodically())
                .await;
            // The others learn it by the missing announcements otherwise.
            if let Err(error) = announcer.mailbox.leave().await {
                debug!(%error, "the other hubs are not told that this one ends");
            }
        });
        let (receiver, stop) = (Arc::clone(&peers), tasks.stop_token());
        tasks.spawn(async move {
            stop.run_until_cancelled(receiver.receive_messages()).await;
        });
        let (writer, stop) = (Arc::clone(&peers), tasks.stop_token());
        tasks.spawn(async move {
            let written = write_envelopes(&writer.mailbox, waiting, async |lost| {
                writer.end_lost(&lost);
            });
            stop.run_until_cancelled(written).await;
        });
        Ok(Some(peers))
    }

    /// The id of this hub, of `[a-z0-9]`, new at every start.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The name of this hub.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The key that the hubs share.
    pub fn key(&self) -> &HubKey {
        &self.key
    }

    /// The other hubs that run.
    pub fn others(&self) -> Vec<PeerHub> {
        lock(&self.members).clone()
    }

    /// Receives the requests of other hubs about `topic` from now on. While 256 wait,
    /// further ones are refused.
    pub fn serve(&self, topic: PeerTopic) -> mpsc::Receiver<PeerRequest> {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_REQUESTS);
        lock(&self.services).insert(topic, sender);
        receiver
    }

    /// Opens an exchange with a hub.
    pub async fn open(
        self: &Arc<Self>,
        hub: &str,
        topic: PeerTopic,
        body: &str,
    ) -> Result<Exchange, Error> {
        let member = match self.member(hub) {
            Some(member) => member,
            // It may have started a moment ago.
            None => {
                self.announce().await;
                self.member(hub).ok_or(Error::HubGone)?
            }
        };
        let number = self.next_exchange.fetch_add(1, Relaxed);
        let id = format!("{}-{number}", self.id);
        let exchange = self.register(member.id, id).ok_or(Error::HubGone)?;
        let kind = topic.as_str().to_owned();
        if !self.send(exchange.address(), kind, body).await {
            return Err(Error::HubGone);
        }
        Ok(exchange)
    }

    /// Sends a request to a hub and waits for its reply, at most five seconds.
    pub async fn request(
        self: &Arc<Self>,
        hub: &str,
        topic: PeerTopic,
        body: &str,
    ) -> Result<String, Error> {
        let reply = async { self.open(hub, topic, body).await?.receive().await };
        let reply = with_timeout(REPLY_TIMEOUT, reply).await;
        reply.unwrap_or(Err(Error::ReplyTimeout))
    }

    /// Sends a request to every other hub and returns the replies that come within a
    /// second.
    pub async fn request_all(
        self: &Arc<Self>,
        topic: PeerTopic,
        body: &str,
    ) -> Vec<(PeerHub, String)> {
        let replies = self.others().into_iter().map(async |hub| {
            let reply = with_timeout(NOTE_TIMEOUT, self.request(&hub.id, topic, body)).await;
            Some((hub, reply?.ok()?))
        });
        join_all(replies).await.into_iter().flatten().collect()
    }

    /// Sends a request to every other hub, without a reply.
    pub async fn broadcast(self: &Arc<Self>, topic: PeerTopic, body: &str) {
        for hub in self.others() {
            // A hub that is gone needs no message.
            let _ = self.open(&hub.id, topic, body).await;
        }
    }

    /// Sends a note to every hub that runs, waits a second at most until they have it, and
    /// keeps it for those that read the notes under its key later.
    pub async fn write_note(self: &Arc<Self>, note: HubNote<'_>) -> Result<(), Error> {
        let HubNote {
            topic,
            key,
            change,
            body,
            lifetime,
        } = note;
        let envelope = |kind: &str| HubEnvelope {
            hub: String::new(),
            exchange: key.to_owned(),
            kind: kind.to_owned(),
            body: self.seal(key, body),
        };
        let written = match change {
            NoteChange::Kept(kind) => self.mailbox.write_note(envelope(&kind), lifetime).await,
            NoteChange::Removed(kind) => self.mailbox.delete_note(key, &kind).await,
            NoteChange::Last => {
                let envelope = envelope(topic.as_str());
                self.mailbox.write_last_note(envelope, lifetime).await
            }
        };
        let others = self.others();
        let requests = others.iter().map(|it| self.request(&it.id, topic, body));
        // A hub that hangs is not waited for.
        let _ = with_timeout(NOTE_TIMEOUT, join_all(requests)).await;
        Ok(written?)
    }

    /// The notes under `key`, the oldest first.
    pub async fn notes(&self, key: &str) -> Result<Vec<String>, Error> {
        let notes = self.mailbox.notes(key).await?.into_iter();
        let notes = notes.filter_map(|it| self.unseal(key, &it.body));
        Ok(notes.collect())
    }

    pub(crate) async fn send_message(
        &self,
        address: ExchangeAddress<'_>,
        text: &str,
    ) -> Result<(), Error> {
        let numbered = lock(&self.exchanges)
            .get_mut(address.id)
            .map(|it| it.number(text));
        let numbered = numbered.ok_or(Error::ExchangeEnded)?;
        if self.send(address, MESSAGE.to_owned(), &numbered).await {
            Ok(())
        } else {
            Err(Error::ExchangeEnded)
        }
    }

    /// Ends an exchange here and, unless the other hub ended it, there.
    pub(crate) fn end_exchange(self: &Arc<Self>, hub: &Arc<str>, id: &str) {
        if lock(&self.exchanges).remove(id).is_none() {
            return;
        }
        let (peers, hub, id) = (Arc::clone(self), Arc::clone(hub), id.to_owned());
        self.tasks.spawn(async move {
            // A hub that is gone needs no end.
            let address = ExchangeAddress { hub: &hub, id: &id };
            let _ = peers.send(address, END.to_owned(), "").await;
        });
    }

    /// Queues a message; false if it is too long or the hub stops.
    async fn send(&self, address: ExchangeAddress<'_>, kind: String, text: &str) -> bool {
        let envelope = HubEnvelope {
            hub: address.hub.to_string(),
            body: self.seal(address.id, text),
            exchange: address.id.to_owned(),
            kind,
        };
        self.outbox.send(envelope).await
    }

    fn member(&self, hub: &str) -> Option<PeerHub> {
        lock(&self.members)
            .iter()
            .find(|it| &*it.id == hub)
            .cloned()
    }

    fn register(self: &Arc<Self>, hub: Arc<str>, id: String) -> Option<Exchange> {
        let mut exchanges = lock(&self.exchanges);
        if exchanges.len() >= MAX_EXCHANGES || exchanges.contains_key(&id) {
            return None;
        }
        let (exchange, open) = Exchange::new(Arc::clone(self), hub, id.clone());
        exchanges.insert(id, open);
        Some(exchange)
    }

    async fn announce_periodically(self: &Arc<Self>) {
        for round in 0_u32.. {
            self.announce().await;
            if round % CLEANUP_EVERY == 0
                && let Err(error) = self.mailbox.delete_expired().await
            {
                debug!(%error, "expired messages could not be removed");
            }
            time::sleep(ANNOUNCE_INTERVAL).await;
        }
    }

    /// Tells the others that this hub runs, and ends the exchanges with those that do not.
    async fn announce(&self) {
        let announced = self
            .mailbox
            .announce(&self.name, env!("CARGO_PKG_VERSION"))
            .await;
        // While the store is down, nobody is known to be gone.
        let Ok(rows) = announced else { return };
        let now: Vec<PeerHub> = rows.into_iter().map(PeerHub::from).collect();
        let before = std::mem::replace(&mut *lock(&self.members), now.clone());
        let gone = before.iter().filter(|hub| !now.contains(hub));
        let gone: Vec<&Arc<str>> = gone.map(|it| &it.id).collect();
        if !gone.is_empty() {
            lock(&self.exchanges).retain(|_, it| !gone.contains(&&it.hub));
        }
    }

    async fn receive_messages(self: &Arc<Self>) {
        let mut notifications = self.mailbox.notifications();
        loop {
            let _table = notifications.next().await;
            // A full batch may not be all.
            while let Ok(envelopes) = self.mailbox.receive().await
                && !envelopes.is_empty()
            {
                for envelope in envelopes {
                    self.deliver(envelope);
                }
            }
        }
    }

    fn deliver(self: &Arc<Self>, envelope: HubEnvelope) {
        let HubEnvelope {
            hub,
            exchange,
            kind,
            body,
        } = envelope;
        let Some(body) = self.unseal(&exchange, &body) else {
            warn!(hub, "a message of another hub was sealed with another key");
            return;
        };
        match kind.as_str() {
            MESSAGE => {
                let delivered = lock(&self.exchanges)
                    .get_mut(&exchange)
                    .filter(|it| *it.hub == hub)
                    .is_none_or(|it| it.deliver(&body));
                if !delivered {
                    self.end_exchange(&hub.into(), &exchange);
                }
            }
            END => {
                let mut exchanges = lock(&self.exchanges);
                if exchanges.get(&exchange).is_some_and(|it| *it.hub == hub) {
                    exchanges.remove(&exchange);
                }
            }
            topic => {
                let topic = PeerTopic::parse(topic);
                if let Some(exchange) = self.register(hub.into(), exchange) {
                    self.accept(topic, PeerRequest { body, exchange });
                }
            }
        }
    }

    /// Hands an exchange that another hub opened to its service. Dropping the request ends
    /// the exchange.
    fn accept(&self, topic: Option<PeerTopic>, request: PeerRequest) {
        let service = topic.and_then(|it| lock(&self.services).get(&it).cloned());
        if let Some(service) = service {
            drop(service.try_send(request));
        }
    }

    /// Ends the exchanges whose messages the store did not take.
    fn end_lost(self: &Arc<Self>, lost: &[HubEnvelope]) {
        for envelope in lost {
            self.end_exchange(&envelope.hub.as_str().into(), &envelope.exchange);
        }
    }

    fn seal(&self, context: &str, text: &str) -> String {
        BASE64_STANDARD_NO_PAD.encode(self.sealer.seal_bytes(context, text.as_bytes()))
    }

    fn unseal(&self, context: &str, text: &str) -> Option<String> {
        let bytes = BASE64_STANDARD_NO_PAD.decode(text).ok()?;
        String::from_utf8(self.sealer.open_bytes(context, bytes)?).ok()
    }
}

impl From<HubMemberRow> for PeerHub {
    fn from(row: HubMemberRow) -> Self {
        Self {
            id: row.id.into(),
            name: row.name.into(),
            version: row.version.into(),
        }
    }
}

/// An id that names a channel of PostgreSQL and is never used again.
fn random_id() -> String {
    const DIGITS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = [0_u8; ID_LENGTH];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    let digits = bytes.map(|it| char::from(DIGITS[usize::from(it % 32)]));
    digits.into_iter().collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
