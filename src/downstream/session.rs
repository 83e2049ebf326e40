//! One client that shook hands: who it is, what it runs, what it was asked.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use ahash::AHashMap;
use serde_json::Value;
use tokio::{
    sync::{Notify, oneshot},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{news::Wanted, streams::Streams};
use crate::{
    journal::label,
    mcp::{Id, LogLevel, Params, Raw, Response, RpcError, Version, code, request},
    queue,
    tool::{Caller, ClientConnection},
};

/// The server is busy; try again. From the range that JSON-RPC leaves free.
const BUSY: i64 = -32000;

/// How many requests may wait for their turn, where waiting is possible.
const MAX_WAITING: usize = 1000;
/// How many requests of a session may listen at once.
const MAX_LISTENING: usize = 64;

/// A session of a legacy client, whatever door it came through.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) caller: Caller,
    /// Tells it apart from other sessions of the same token.
    pub(super) connection: ClientConnection,
    /// Messages that belong to no request.
    pub(super) out: queue::Sender,
    /// Resources whose changes the client wants to hear of.
    pub(super) wanted: Wanted,
    /// Ends with the session.
    pub(super) end: CancellationToken,
    /// The client says no more; what it began is finished.
    pub(super) closing: CancellationToken,
    freed: Notify,
    client: OnceLock<Client>,
    log_level: Mutex<Option<LogLevel>>,
    running: Mutex<AHashMap<Id, CancellationToken>>,
    asked: Mutex<HashMap<Id, oneshot::Sender<Result<Value, String>>>>,
    /// Streams that are read, or wait for a reader.
    pub(super) streams: Streams,
    readers: AtomicUsize,
    /// How many of `running` only listen.
    listening: AtomicUsize,
    /// Requests that wait until fewer are running.
    waiting: AtomicUsize,
    next_number: AtomicI64,
    used: Mutex<Instant>,
    max_running: usize,
}

/// What the client said when it shook hands.
#[derive(Debug)]
struct Client {
    version: Version,
    capabilities: Arc<Value>,
    label: Option<Arc<str>>,
}

/// A request in progress; dropping it takes it off the session's list.
#[derive(Debug)]
pub(super) struct Running {
    session: Arc<Session>,
    id: Id,
    kind: Kind,
    pub(super) cancelled: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Call,
    Listening,
}

/// A request that waits for its turn.
#[derive(Debug)]
pub(super) struct Queued(Arc<Session>);

/// Counts an open stream.
#[derive(Debug)]
pub(super) struct Reading(Arc<Session>);

impl Session {
    pub(super) fn new(id: String, caller: Caller, out: queue::Sender, max_running: usize) -> Self {
        Self {
            id,
            caller,
            connection: ClientConnection::unique(),
            out,
            wanted: Wanted::default(),
            end: CancellationToken::new(),
            closing: CancellationToken::new(),
            freed: Notify::new(),
            client: OnceLock::new(),
            log_level: Mutex::default(),
            running: Mutex::default(),
            asked: Mutex::default(),
            streams: Streams::default(),
            readers: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_number: AtomicI64::new(1),
            used: Mutex::new(Instant::now()),
            max_running,
        }
    }

    /// Shakes hands. A second handshake leaves the first as it was.
    pub(super) fn initialize(&self, params: &Params<'_>) -> Result<Version, RpcError> {
        let (version, capabilities) = read_handshake(params)?;
        let label = params.client_info.and_then(label);
        Ok(self.greet(version, capabilities, label))
    }

    /// Settles the version, unless it is settled.
    pub(super) fn greet(
        &self,
        version: Version,
        capabilities: Value,
        label: Option<Arc<str>>,
    ) -> Version {
        self.client
            .get_or_init(|| Client {
                version,
                capabilities: Arc::new(capabilities),
                label,
            })
            .version
    }

    /// What the client can be asked for; before the handshake nothing.
    pub(super) fn capabilities(&self) -> &Arc<Value> {
        static NONE: LazyLock<Arc<Value>> = LazyLock::new(Arc::default);
        self.client.get().map_or(&NONE, |it| &it.capabilities)
    }

    /// The program at the other end, as it calls itself.
    pub(super) fn label(&self) -> Option<&Arc<str>> {
        self.client.get()?.label.as_ref()
    }

    /// The agreed version; before the handshake the oldest.
    pub(super) fn version(&self) -> Version {
        self.client
            .get()
            .map_or(Version::V2024_11_05, |it| it.version)
    }

    pub(super) fn log_level(&self) -> Option<LogLevel> {
        *lock(&self.log_level)
    }

    pub(super) fn set_log_level(&self, level: LogLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// Puts a request on the list, so that it can be cancelled by its id.
    pub(super) fn begin(self: &Arc<Self>, id: &Id) -> Result<Running, RpcError> {
        self.enlist(id, Kind::Call)
    }

    /// The same for a request that only listens, which may last for ever.
    pub(super) fn begin_listening(self: &Arc<Self>, id: &Id) -> Result<Running, RpcError> {
        self.enlist(id, Kind::Listening)
    }

    /// The same as [`begin`](Self::begin), waiting while too many are running.
    pub(super) async fn begin_in_turn(self: &Arc<Self>, id: &Id) -> Result<Running, RpcError> {
        loop {
            match self.begin(id) {
                Err(busy) if busy.code == BUSY => {
                    self.until(|| self.calls() < self.max_running).await;
                }
                done => return done,
            }
        }
    }

    /// Whether one more request may wait for its turn.
    pub(super) fn may_wait(self: &Arc<Self>) -> Result<Queued, RpcError> {
        let queued = Queued(Arc::clone(self));
        if self.waiting.fetch_add(1, Relaxed) < MAX_WAITING {
            return Ok(queued);
        }
        Err(RpcError::new(
            BUSY,
            "too many requests wait for their turn; read answers first",
        ))
    }

    fn enlist(self: &Arc<Self>, id: &Id, kind: Kind) -> Result<Running, RpcError> {
        let mut running = lock(&self.running);
        let listening = self.listening.load(Relaxed);
        let (busy, limit) = match kind {
            Kind::Call => (running.len() - listening, self.max_running),
            Kind::Listening => (listening, MAX_LISTENING),
        };
        if busy >= limit {
            let why =
                format!("{busy} requests of this session are in progress; wait for one to end");
            return Err(RpcError::new(BUSY, why));
        }
        if running.contains_key(id) {
            let why = "a request with this id is in progress";
            return Err(RpcError::new(code::INVALID_REQUEST, why));
        }
        // Not a child of `end`: that tree has a lock of its own.
        let cancelled = CancellationToken::new();
        if self.end.is_cancelled() {
            cancelled.cancel();
        }
        running.insert(id.clone(), cancelled.clone());
        if kind == Kind::Listening {
            self.listening.fetch_add(1, Relaxed);
        }
        Ok(Running {
            session: Arc::clone(self),
            id: id.clone(),
            kind,
            cancelled,
        })
    }

    /// Ends the session and everything it runs.
    pub(super) fn close(&self) {
        self.closing.cancel();
        self.end.cancel();
        for cancelled in lock(&self.running).values() {
            cancelled.cancel();
        }
    }

    /// Waits until nothing is in progress but listening.
    pub(super) async fn drain(&self) {
        self.until(|| self.calls() == 0 && self.waiting.load(Relaxed) == 0)
            .await;
    }

    async fn until(&self, reached: impl Fn() -> bool) {
        loop {
            // Made before the look, so that no wake-up is missed.
            let freed = self.freed.notified();
            if reached() {
                return;
            }
            freed.await;
        }
    }

    fn calls(&self) -> usize {
        lock(&self.running).len() - self.listening.load(Relaxed)
    }

    /// Takes a notification.
    pub(super) fn notified(&self, method: &str, params: &Params<'_>) {
        self.touch();
        if method == "notifications/cancelled"
            && let Some(id) = params.request_id.and_then(Id::read)
            && let Some(cancelled) = lock(&self.running).get(&id)
        {
            cancelled.cancel();
        }
    }

    /// Takes an answer to a request of ours; others are ignored.
    pub(super) fn answered(&self, response: &Response<'_>) {
        self.touch();
        let Some(waiting) = lock(&self.asked).remove(&response.id) else {
            return;
        };
        let read = |raw: Raw<'_>| -> Value { serde_json::from_str(raw).unwrap_or_default() };
        // Who asked may have gone.
        let _ = waiting.send(match response.outcome {
            Ok(result) => Ok(read(result)),
            Err(error) => Err(read(error)["message"]
                .as_str()
                .unwrap_or("no reason given")
                .to_owned()),
        });
    }

    /// Asks the client, through `out`, for at most `limit`.
    pub(super) async fn ask(
        &self,
        out: &queue::Sender,
        method: &str,
        params: &Value,
        limit: Duration,
    ) -> Result<Value, String> {
        let id = Id::Number(self.number());
        let (reply, answer) = oneshot::channel();
        let _asked = Asked {
            session: self,
            id: id.clone(),
        };
        lock(&self.asked).insert(id.clone(), reply);
        out.send(request(&id, method, params))
            .await
            .map_err(|gone| gone.to_string())?;
        tokio::select! {
            answer = time::timeout(limit, answer) => match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err("the session ended".to_owned()),
                Err(_) => Err(format!("no answer within {limit:?}")),
            },
            () = self.closing.cancelled() => Err("the session is ending".to_owned()),
            () = self.end.cancelled() => Err("the session ended".to_owned()),
        }
    }

    /// A number that this session has not used yet.
    pub(super) fn number(&self) -> i64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    /// Says that a stream of this session is being read.
    pub(super) fn reading(self: &Arc<Self>) -> Reading {
        self.touch();
        self.readers.fetch_add(1, Relaxed);
        Reading(Arc::clone(self))
    }

    /// How long nobody has used it, if nothing is going on.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        self.is_idle(Duration::ZERO)
            .then(|| lock(&self.used).elapsed())
    }

    /// Whether nobody has used it for `limit` and nothing is going on.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        self.readers.load(Relaxed) == 0
            && lock(&self.running).is_empty()
            && lock(&self.used).elapsed() >= limit
    }

    fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }
}

/// The version to agree on and the client's capabilities.
pub(super) fn read_handshake(params: &Params<'_>) -> Result<(Version, Value), RpcError> {
    let version = Version::negotiate(&Params::text(params.protocol_version, "protocolVersion")?);
    if params.capabilities.is_none() || params.client_info.is_none() {
        let why = "initialize needs capabilities and clientInfo";
        return Err(RpcError::params(why));
    }
    Params::object(params.client_info, "clientInfo")?;
    let capabilities = Params::object(params.capabilities, "capabilities")?;
    Ok((version, capabilities.into()))
}

impl Drop for Running {
    fn drop(&mut self) {
        {
            let mut running = lock(&self.session.running);
            running.remove(&self.id);
            if self.kind == Kind::Listening {
                self.session.listening.fetch_sub(1, Relaxed);
            }
        }
        self.session.freed.notify_waiters();
        self.session.touch();
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
        self.0.freed.notify_waiters();
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Relaxed);
        self.0.touch();
    }
}

/// Takes a question off the list, however the wait for it ends.
struct Asked<'a> {
    session: &'a Session,
    id: Id,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.session.asked).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
