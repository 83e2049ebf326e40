//! Changes that other hubs make in a shared PostgreSQL database.

use std::{collections::BTreeSet, fmt, mem, pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};
use tokio::time;
use tokio_postgres::{AsyncMessage, Client};
use tracing::{info, warn};

use super::{
    DatabaseError, Store, StoreBackend,
    postgres::{CHANGE_CHANNEL, PostgresBackend},
};

/// How often everything is read again while notifications do not arrive.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How often a quiet connection is checked.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
/// How long a connection may take to listen, and a notification to arrive.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after a failure another attempt to listen begins.
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Notifications that arrive together are one change.
const COALESCE_DELAY: Duration = Duration::from_millis(20);
/// The name of the connections that listen.
const LISTENER_NAME: &str = "maru-listener";
/// The table of the messages between hubs.
const MESSAGE_TABLE: &str = "hub_envelope";
/// How many names of tables are kept; maru has fewer. Any role of the database may notify.
const MAX_PENDING_TABLES: usize = 64;

/// What may have changed in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedTables {
    /// Anything: notifications may have been missed.
    All,
    /// Rows of these tables.
    Tables(BTreeSet<String>),
}

/// Waits for changes of the store, of this hub and of others.
pub struct ChangeFeed {
    backend: PostgresBackend,
    /// The channel that is notified.
    channel: String,
    /// How often everything is read again while notifications do not arrive.
    poll_interval: Duration,
    listener: Option<ChangeListener>,
    /// The attempt to listen that goes on between two polls.
    attempt: Option<ListenAttempt>,
    /// Whether changes were polled before, so that this is logged once.
    is_polling: bool,
}

type ListenAttempt = Pin<Box<dyn Future<Output = Result<ChangeListener, DatabaseError>> + Send>>;

/// A connection that receives notifications.
struct ChangeListener {
    client: Client,
    messages: Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>,
    pending: ChangedTables,
}

impl ChangedTables {
    fn none() -> Self {
        Self::Tables(BTreeSet::new())
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Tables(tables) if tables.is_empty())
    }

    fn add(&mut self, table: &str) {
        match self {
            Self::Tables(tables) if tables.len() < MAX_PENDING_TABLES => {
                // The check of a connection names no table.
                if !table.is_empty() {
                    tables.insert(table.to_owned());
                }
            }
            _ => *self = Self::All,
        }
    }

    /// Whether rows of `table` may have changed.
    pub fn includes(&self, table: &str) -> bool {
        match self {
            Self::All => true,
            Self::Tables(tables) => tables.contains(table),
        }
    }
}

impl Store {
    /// The changes of a store that other hubs share; `None` if no other hub can.
    pub fn change_feed(&self) -> Option<ChangeFeed> {
        match &self.backend {
            StoreBackend::Sqlite(_) => None,
            StoreBackend::Postgres(backend) => Some(ChangeFeed::new(
                backend.clone(),
                CHANGE_CHANNEL.to_owned(),
                POLL_INTERVAL,
            )),
        }
    }
}

impl ChangeFeed {
    /// A feed of the notifications of `channel`.
    pub(super) fn new(backend: PostgresBackend, channel: String, poll_interval: Duration) -> Self {
        Self {
            backend,
            channel,
            poll_interval,
            listener: None,
            attempt: None,
            is_polling: false,
        }
    }

    /// Waits for the next change. Everything counts as changed after a connection was
    /// made, and at every poll while there is none.
    pub async fn next(&mut self) -> ChangedTables {
        loop {
            let Some(listener) = &mut self.listener else {
                return self.listen_or_poll().await;
            };
            match listener.next_change().await {
                Some(changed) => return changed,
                None => self.listener = None,
            }
        }
    }

    /// Waits for a connection that listens, or for the next poll. Cancel-safe.
    async fn listen_or_poll(&mut self) -> ChangedTables {
        let attempt = self.attempt.get_or_insert_with(|| {
            let (backend, channel) = (self.backend.clone(), self.channel.clone());
            let delay = self.is_polling.then_some(LISTEN_RETRY_DELAY);
            Box::pin(listen_after(delay, backend, channel))
        });
        let Ok(attempted) = time::timeout(self.poll_interval, attempt).await else {
            return ChangedTables::All;
        };
        self.attempt = None;
        match attempted {
            Ok(listener) => {
                if self.is_polling {
                    info!(
                        channel = self.channel,
                        "notifications of the store arrive again"
                    );
                }
                self.is_polling = false;
                self.listener = Some(listener);
            }
            Err(error) => {
                if !self.is_polling {
                    warn!(
                        %error,
                        channel = self.channel,
                        "the store sends no notifications (a pooler in transaction mode keeps them back); what other hubs send is read every {:?}",
                        self.poll_interval
                    );
                }
                self.is_polling = true;
            }
        }
        ChangedTables::All
    }
}

/// Opens a connection that listens, after a delay.
async fn listen_after(
    delay: Option<Duration>,
    backend: PostgresBackend,
    channel: String,
) -> Result<ChangeListener, DatabaseError> {
    if let Some(delay) = delay {
        time::sleep(delay).await;
    }
    let opened = ChangeListener::open(&backend, &channel);
    let opened = time::timeout(2 * RESPONSE_TIMEOUT, opened).await;
    opened.unwrap_or(Err(DatabaseError::Timeout(2 * RESPONSE_TIMEOUT)))
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ChangeFeed")
            .field("channel", &self.channel)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

impl ChangeListener {
    /// Opens a connection and checks that a notification of another connection arrives.
    async fn open(backend: &PostgresBackend, channel: &str) -> Result<Self, DatabaseError> {
        let (client, connection) = backend.connect_named(LISTENER_NAME).await?;
        let mut listener = Self::new(client, connection);
        listener.execute(&format!("LISTEN {channel}")).await?;
        backend.notify_listeners(channel).await?;
        match time::timeout(RESPONSE_TIMEOUT, listener.receive()).await {
            Ok(true) => Ok(listener),
            Ok(false) => Err(closed()),
            Err(_) => Err(DatabaseError::Timeout(RESPONSE_TIMEOUT)),
        }
    }

    fn new(
        client: Client,
        mut connection: tokio_postgres::Connection<
            tokio_postgres::Socket,
            impl tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
        >,
    ) -> Self {
        let messages = stream::poll_fn(move |context| connection.poll_message(context));
        Self {
            client,
            messages: Box::pin(messages),
            pending: ChangedTables::none(),
        }
    }

    /// Waits for notifications; `None` if the connection is lost.
    async fn next_change(&mut self) -> Option<ChangedTables> {
        while self.pending.is_empty() {
            match time::timeout(HEARTBEAT_INTERVAL, self.receive()).await {
                Ok(true) => (),
                Ok(false) => return None,
                Err(_) => {
                    let alive = time::timeout(RESPONSE_TIMEOUT, self.execute("SELECT 1")).await;
                    alive.ok()?.ok()?;
                }
            }
        }
        if self.pending.includes(MESSAGE_TABLE) {
            // Messages of other hubs do not wait for further ones.
            return Some(mem::replace(&mut self.pending, ChangedTables::none()));
        }
        // A change often touches several tables.
        let coalesced = async { while self.receive().await {} };
        let _ended_or_in_time = time::timeout(COALESCE_DELAY, coalesced).await;
        Some(mem::replace(&mut self.pending, ChangedTables::none()))
    }

    /// Receives one message; false if the connection is lost.
    async fn receive(&mut self) -> bool {
        match self.messages.next().await {
            Some(Ok(message)) => {
                record(&mut self.pending, &message);
                true
            }
            Some(Err(_)) | None => false,
        }
    }

    /// Runs a statement, receiving messages meanwhile.
    async fn execute(&mut self, sql: &str) -> Result<(), DatabaseError> {
        let executed = self.client.batch_execute(sql);
        tokio::pin!(executed);
        loop {
            tokio::select! {
                outcome = &mut executed => return Ok(outcome?),
                message = self.messages.next() => match message {
                    Some(Ok(message)) => record(&mut self.pending, &message),
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(closed()),
                },
            }
        }
    }
}

impl fmt::Debug for ChangeListener {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = &self.pending;
        out.debug_struct("ChangeListener")
            .field("pending", pending)
            .finish_non_exhaustive()
    }
}

fn record(pending: &mut ChangedTables, message: &AsyncMessage) {
    if let AsyncMessage::Notification(notification) = message {
        pending.add(notification.payload());
    }
}

fn closed() -> DatabaseError {
    DatabaseError::Postgres("the connection was closed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use maru_postgres::PostgresAddress;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_are_polled_while_an_attempt_to_listen_hangs() {
        let address = PostgresAddress::parse("postgres://maru@127.0.0.1:1/maru").unwrap();
        let backend = PostgresBackend::unconnected(&address).unwrap();
        let interval = Duration::from_millis(200);
        let mut feed = ChangeFeed::new(backend, "maru_test".to_owned(), interval);
        feed.attempt = Some(Box::pin(pending()));
        let began = Instant::now();
        for _ in 0..10 {
            assert_eq!(feed.next().await, ChangedTables::All);
        }
        assert_eq!(began.elapsed(), 10 * interval);
    }
}
