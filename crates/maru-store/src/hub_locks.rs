//! Locks of PostgreSQL that one hub holds while its connection lasts.

use std::{sync::Arc, time::Duration};

use maru_runtime::tasks::Tasks;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Mutex, mpsc},
    time,
};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use super::{DatabaseError, Store, StoreBackend, postgres::PostgresBackend};

/// How often the connection is checked.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);
/// How long a check, or another statement, may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A hub that lost its locks knows it within this time. A lost hub loses them later than
/// that: PostgreSQL waits longer for its network.
pub const LOST_LOCK_DELAY: Duration = Duration::from_millis(2_500);
/// How many released locks may wait until PostgreSQL is told.
const MAX_RELEASED: usize = 1024;
/// What the name of the connection begins with; the id of the hub follows.
const CONNECTION_NAME: &str = "maru-hub-";
/// Has PostgreSQL notice within four seconds that a hub is cut off.
const SETTINGS: &str = "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1;
    SET tcp_keepalives_count = 2";

macro_rules! holder_sql {
    () => {
        "(SELECT substr(holder.application_name, 10) FROM pg_locks held
            JOIN pg_stat_activity holder ON holder.pid = held.pid
            WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
                AND held.database = (
                    SELECT oid FROM pg_database WHERE datname = current_database())
                AND ((held.classid::BIGINT << 32) | held.objid::BIGINT) = $1::BIGINT
            LIMIT 1)"
    };
}
const TRY_LOCK: &str = concat!("SELECT pg_try_advisory_lock($1::BIGINT), ", holder_sql!());
const FIND_HOLDER: &str = concat!("SELECT ", holder_sql!());

/// The locks that a hub takes, on one connection.
#[derive(Clone, Debug)]
pub struct HubLocks {
    backend: PostgresBackend,
    hub: Arc<str>,
    tasks: Tasks,
    connection: Arc<Mutex<Option<LockConnection>>>,
}

/// A connection that holds locks until it is lost.
#[derive(Clone, Debug)]
struct LockConnection {
    client: Arc<Client>,
    lost: CancellationToken,
    released: mpsc::Sender<i64>,
}

/// A lock that is held until this is dropped, or the connection is lost.
#[derive(Debug)]
pub struct HubLock {
    key: i64,
    connection: LockConnection,
}

/// What an attempt to take a lock found.
#[derive(Debug)]
pub enum LockAttempt {
    /// This hub holds it.
    Taken(HubLock),
    /// The hub with this id holds it, if it still does.
    HeldBy(Option<String>),
}

impl Store {
    /// The locks of the hub with this id; `None` if no other hub can share the store.
    pub fn hub_locks(&self, hub: &str, tasks: &Tasks) -> Option<HubLocks> {
        match &self.backend {
            StoreBackend::Sqlite(_) => None,
            StoreBackend::Postgres(backend) => Some(HubLocks {
                backend: backend.clone(),
                hub: hub.into(),
                tasks: tasks.clone(),
                connection: Arc::default(),
            }),
        }
    }
}

impl HubLocks {
    /// Takes the lock of this name unless another hub holds it.
    pub async fn try_lock(&self, name: &str) -> Result<LockAttempt, DatabaseError> {
        let (key, connection) = (lock_key(name), self.connect().await?);
        let row = with_deadline(connection.client.query_one(TRY_LOCK, &[&key])).await?;
        Ok(if row.try_get(0)? {
            LockAttempt::Taken(HubLock { key, connection })
        } else {
            LockAttempt::HeldBy(row.try_get(1)?)
        })
    }

    /// Returns the id of the hub that holds the lock of this name.
    pub async fn holder(&self, name: &str) -> Result<Option<String>, DatabaseError> {
        let (key, connection) = (lock_key(name), self.connect().await?);
        let row = with_deadline(connection.client.query_one(FIND_HOLDER, &[&key])).await?;
        Ok(row.try_get(0)?)
    }

    async fn connect(&self) -> Result<LockConnection, DatabaseError> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|it| !it.lost.is_cancelled()) {
            return Ok(connection.clone());
        }
        let name = format!("{CONNECTION_NAME}{}", self.hub);
        let (client, driver) = with_deadline(self.backend.connect_named(&name)).await?;
        let (client, lost) = (Arc::new(client), CancellationToken::new());
        let (released, releases) = mpsc::channel(MAX_RELEASED);
        let (checked, ended) = (Arc::clone(&client), lost.clone().drop_guard());
        self.tasks.spawn(async move {
            tokio::select! {
                _closed = driver => (),
                () = keep_alive(&checked, releases) => (),
            }
            // The connection is closed, and with it PostgreSQL releases the locks.
            drop(ended);
        });
        with_deadline(client.batch_execute(SETTINGS)).await?;
        let connection = LockConnection {
            client,
            lost,
            released,
        };
        Ok(current.insert(connection).clone())
    }
}

impl HubLock {
    /// Cancelled when this hub may not hold the lock any more.
    pub fn lost(&self) -> &CancellationToken {
        &self.connection.lost
    }
}

impl Drop for HubLock {
    fn drop(&mut self) {
        if self.connection.released.try_send(self.key).is_err() {
            self.connection.lost.cancel();
        }
    }
}

/// Releases locks and checks the connection until it fails.
async fn keep_alive(client: &Client, mut releases: mpsc::Receiver<i64>) {
    loop {
        let sql = match time::timeout(HEARTBEAT_INTERVAL, releases.recv()).await {
            Ok(Some(key)) => format!("SELECT pg_advisory_unlock({key})"),
            Ok(None) => return,
            Err(_) => "SELECT 1".to_owned(),
        };
        if with_deadline(client.batch_execute(&sql)).await.is_err() {
            return;
        }
    }
}

async fn with_deadline<T, E: Into<DatabaseError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, DatabaseError> {
    let done = time::timeout(RESPONSE_TIMEOUT, work).await;
    done.map_err(|_| DatabaseError::Timeout(RESPONSE_TIMEOUT))?
        .map_err(Into::into)
}

/// The number that stands for a name in PostgreSQL.
fn lock_key(name: &str) -> i64 {
    let hash: [u8; 32] = Sha256::digest(name).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX
}
