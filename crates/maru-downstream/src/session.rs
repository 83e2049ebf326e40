//! A session: its client, its requests in progress, and the requests sent to the client.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use ahash::AHashMap;
use maru_protocol::{
    LoggingLevel, ProtocolVersion, RawJson, RequestParams, RpcError, RpcId, RpcMessage,
    RpcResponse, code, write_request,
};
use maru_runtime::{message_queue, traffic_budget::TrafficBudget};
use serde_json::Value;
use tokio::{
    sync::{Notify, oneshot},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{catalog_changes::ClientSubscriptions, streams::SessionStreams};
use maru_config::LimitSettings;
use maru_observability::journal::client_label;
use maru_tools::{Caller, ClientConnection};

/// The session has too many requests. A code from the range that JSON-RPC leaves to servers.
pub(super) const SESSION_BUSY: i64 = -32000;

/// How many requests may wait, on a transport where they can wait.
const MAX_WAITING_REQUESTS: usize = 1000;
/// How many `subscriptions/listen` requests a session may have.
const MAX_LISTENING_REQUESTS: usize = 64;

/// The session of a client of a version with a handshake, on any transport.
#[derive(Debug)]
pub(super) struct McpSession {
    pub(super) id: String,
    /// This hub, if others may go on with the session; it is part of the ids of requests
    /// to the client and of events.
    hub: Option<Arc<str>>,
    pub(super) caller: Caller,
    /// Distinguishes it from other sessions of the same token.
    pub(super) connection: ClientConnection,
    /// Messages that belong to no request.
    pub(super) out: message_queue::MessageSender,
    /// Resources that the client subscribed to.
    pub(super) subscriptions: ClientSubscriptions,
    /// Ends with the session.
    pub(super) end: CancellationToken,
    /// Cancelled when no new requests come; requests in progress still finish.
    pub(super) closing: CancellationToken,
    freed: Notify,
    client: OnceLock<SessionClient>,
    log_level: Mutex<Option<LoggingLevel>>,
    running: Mutex<AHashMap<RpcId, CancellationToken>>,
    client_requests: Mutex<HashMap<RpcId, oneshot::Sender<Result<Value, String>>>>,
    /// Streams that are being read or wait for a reader.
    pub(super) streams: SessionStreams,
    readers: AtomicUsize,
    /// How many of `running` are `subscriptions/listen`.
    listening: AtomicUsize,
    /// Requests that wait until fewer are running.
    waiting: AtomicUsize,
    next_number: AtomicI64,
    last_used: Mutex<Instant>,
    max_running: usize,
    /// What the client may send that gets no response.
    budget: TrafficBudget,
}

/// The client, as it described itself in the handshake.
#[derive(Debug)]
struct SessionClient {
    version: ProtocolVersion,
    capabilities: Arc<Value>,
    label: Option<Arc<str>>,
}

/// A request in progress; dropping it unregisters it.
#[derive(Debug)]
pub(super) struct RunningRequest {
    session: Arc<McpSession>,
    id: RpcId,
    kind: RequestKind,
    pub(super) cancelled: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    Call,
    Listening,
}

/// Counts a request that waits to start.
#[derive(Debug)]
pub(super) struct WaitingRequestGuard(Arc<McpSession>);

/// Counts an open stream.
#[derive(Debug)]
pub(super) struct ReaderGuard(Arc<McpSession>);

impl McpSession {
    pub(super) fn new(
        id: String,
        caller: Caller,
        out: message_queue::MessageSender,
        limits: &LimitSettings,
    ) -> Self {
        Self {
            id,
            hub: None,
            caller,
            connection: ClientConnection::unique(),
            out,
            subscriptions: ClientSubscriptions::default(),
            end: CancellationToken::new(),
            closing: CancellationToken::new(),
            freed: Notify::new(),
            client: OnceLock::new(),
            log_level: Mutex::default(),
            running: Mutex::default(),
            client_requests: Mutex::default(),
            streams: SessionStreams::default(),
            readers: AtomicUsize::new(0),
            listening: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_number: AtomicI64::new(1),
            last_used: Mutex::new(Instant::now()),
            max_running: limits.max_calls_per_session,
            budget: TrafficBudget::new(limits.client_rate()),
        }
    }

    /// Sets the id under which other hubs know the session, and this hub.
    pub(super) fn set_id(&mut self, id: String, hub: Arc<str>) {
        self.id = id;
        self.hub = Some(hub);
    }

    /// This hub, if others may go on with the session.
    pub(super) fn hub(&self) -> Option<&Arc<str>> {
        self.hub.as_ref()
    }

    /// Handles the handshake. A second handshake does not change the first.
    pub(super) fn initialize(
        &self,
        params: &RequestParams<'_>,
    ) -> Result<ProtocolVersion, RpcError> {
        let (version, capabilities) = read_handshake(params)?;
        let label = params.client_info.and_then(client_label);
        Ok(self.set_client_info(version, capabilities, label))
    }

    /// Sets the client, unless it is set already; returns the version of the session.
    pub(super) fn set_client_info(
        &self,
        version: ProtocolVersion,
        capabilities: Value,
        label: Option<Arc<str>>,
    ) -> ProtocolVersion {
        self.client
            .get_or_init(|| SessionClient {
                version,
                capabilities: Arc::new(capabilities),
                label,
            })
            .version
    }

    /// The client's capabilities; none before the handshake.
    pub(super) fn capabilities(&self) -> &Arc<Value> {
        static NO_CAPABILITIES: LazyLock<Arc<Value>> = LazyLock::new(Arc::default);
        self.client
            .get()
            .map_or(&NO_CAPABILITIES, |it| &it.capabilities)
    }

    /// The client program, by its reported name.
    pub(super) fn client_label(&self) -> Option<&Arc<str>> {
        self.client.get()?.label.as_ref()
    }

    /// The negotiated version; before the handshake the oldest.
    pub(super) fn version(&self) -> ProtocolVersion {
        self.client
            .get()
            .map_or(ProtocolVersion::V2024_11_05, |it| it.version)
    }

    pub(super) fn log_level(&self) -> Option<LoggingLevel> {
        *lock(&self.log_level)
    }

    pub(super) fn set_log_level(&self, level: LoggingLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// Registers a request, so that it can be cancelled by its id.
    pub(super) fn begin(self: &Arc<Self>, id: &RpcId) -> Result<RunningRequest, RpcError> {
        self.register(id, RequestKind::Call)
    }

    /// Registers a `subscriptions/listen` request, which may last for ever.
    pub(super) fn begin_listening(
        self: &Arc<Self>,
        id: &RpcId,
    ) -> Result<RunningRequest, RpcError> {
        self.register(id, RequestKind::Listening)
    }

    /// Like [`begin`](Self::begin), but waits while too many requests are running.
    pub(super) async fn begin_when_free(
        self: &Arc<Self>,
        id: &RpcId,
    ) -> Result<RunningRequest, RpcError> {
        loop {
            match self.begin(id) {
                Err(busy) if busy.code == SESSION_BUSY => {
                    self.wait_until(|| self.running_calls() < self.max_running)
                        .await;
                }
                done => return done,
            }
        }
    }

    /// Reserves a place for a request that waits to start.
    pub(super) fn reserve_waiting(self: &Arc<Self>) -> Result<WaitingRequestGuard, RpcError> {
        let queued = WaitingRequestGuard(Arc::clone(self));
        if self.waiting.fetch_add(1, Relaxed) < MAX_WAITING_REQUESTS {
            return Ok(queued);
        }
        Err(RpcError::new(
            SESSION_BUSY,
            "too many requests are waiting; read responses first",
        ))
    }

    fn register(
        self: &Arc<Self>,
        id: &RpcId,
        kind: RequestKind,
    ) -> Result<RunningRequest, RpcError> {
        let mut running = lock(&self.running);
        let listening = self.listening.load(Relaxed);
        let (busy, limit) = match kind {
            RequestKind::Call => (running.len() - listening, self.max_running),
            RequestKind::Listening => (listening, MAX_LISTENING_REQUESTS),
        };
        if busy >= limit {
            let message =
                format!("{busy} requests of this session are in progress; wait for one to end");
            return Err(RpcError::new(SESSION_BUSY, message));
        }
        if running.contains_key(id) {
            let message = "a request with this id is in progress";
            return Err(RpcError::new(code::INVALID_REQUEST, message));
        }
        // Not a child of `end`: all children of a token share one lock.
        let cancelled = CancellationToken::new();
        if self.end.is_cancelled() {
            cancelled.cancel();
        }
        running.insert(id.clone(), cancelled.clone());
        if kind == RequestKind::Listening {
            self.listening.fetch_add(1, Relaxed);
        }
        Ok(RunningRequest {
            session: Arc::clone(self),
            id: id.clone(),
            kind,
            cancelled,
        })
    }

    /// Ends the session and cancels its requests.
    pub(super) fn close(&self) {
        self.closing.cancel();
        self.end.cancel();
        for cancelled in lock(&self.running).values() {
            cancelled.cancel();
        }
    }

    /// Waits until all requests except `subscriptions/listen` have finished.
    pub(super) async fn drain(&self) {
        self.wait_until(|| self.running_calls() == 0 && self.waiting.load(Relaxed) == 0)
            .await;
    }

    async fn wait_until(&self, reached: impl Fn() -> bool) {
        loop {
            // Created before the check, so that no wake-up is missed.
            let freed = self.freed.notified();
            if reached() {
                return;
            }
            freed.await;
        }
    }

    fn running_calls(&self) -> usize {
        lock(&self.running).len() - self.listening.load(Relaxed)
    }

    /// Whether the request with this id is in progress here.
    pub(super) fn is_running(&self, id: &RpcId) -> bool {
        lock(&self.running).contains_key(id)
    }

    /// Counts a notification or a response, unless a request of ours waits for it. An error
    /// means that the session must end.
    pub(super) fn spend_one_way(
        &self,
        message: &RpcMessage<'_>,
        bytes: usize,
    ) -> Result<(), RpcError> {
        if let RpcMessage::Response(response) = message
            && lock(&self.client_requests).contains_key(&response.id)
        {
            return Ok(());
        }
        self.spend(1, bytes)
    }

    /// Counts messages that get no response. An error means that the session must end.
    pub(super) fn spend(&self, messages: usize, bytes: usize) -> Result<(), RpcError> {
        self.budget.spend(messages, bytes).map_err(|exceeded| {
            let setting = exceeded.setting("client");
            let message = format!("the client sends {exceeded} ({setting}), so its session ends");
            let client = self.client_label().map_or("unknown", |it| it);
            let principal = self.caller.principal.name();
            warn!(client, principal, "{message}");
            RpcError::new(SESSION_BUSY, message)
        })
    }

    /// Handles a notification or a response, which get no response.
    pub(super) fn handle_one_way(&self, message: &RpcMessage<'_>) {
        match message {
            RpcMessage::Notification { method, params } => {
                // Notifications get no response, not even an invalid one.
                let params = RequestParams::parse(*params).unwrap_or_default();
                self.handle_notification(method, &params);
            }
            RpcMessage::Response(response) => self.handle_response(response),
            RpcMessage::Request(_) => (),
        }
    }

    /// Handles a notification.
    fn handle_notification(&self, method: &str, params: &RequestParams<'_>) {
        self.touch();
        if method == "notifications/cancelled"
            && let Some(id) = params.request_id.and_then(RpcId::parse)
            && let Some(cancelled) = lock(&self.running).get(&id)
        {
            cancelled.cancel();
        }
    }

    /// Handles a response to a request of ours; others are ignored.
    fn handle_response(&self, response: &RpcResponse<'_>) {
        self.touch();
        let Some(waiting) = lock(&self.client_requests).remove(&response.id) else {
            return;
        };
        let read = |raw: RawJson<'_>| -> Value { serde_json::from_str(raw).unwrap_or_default() };
        // Fails if the call that sent the request was cancelled.
        let _ = waiting.send(match response.outcome {
            Ok(result) => Ok(read(result)),
            Err(error) => Err(read(error)["message"]
                .as_str()
                .unwrap_or("no reason given")
                .to_owned()),
        });
    }

    /// Sends a request to the client through `out` and waits at most `limit`.
    pub(super) async fn send_request(
        &self,
        out: &message_queue::MessageSender,
        method: &str,
        params: &Value,
        limit: Duration,
    ) -> Result<Value, String> {
        let number = self.next_number();
        let id = match &self.hub {
            Some(hub) => RpcId::from(&*format!("{hub}-{number}")),
            None => RpcId::Number(number),
        };
        let (reply, answer) = oneshot::channel();
        let _asked = ClientRequestGuard {
            session: self,
            id: id.clone(),
        };
        lock(&self.client_requests).insert(id.clone(), reply);
        out.send(write_request(&id, method, params))
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
    pub(super) fn next_number(&self) -> i64 {
        self.next_number.fetch_add(1, Relaxed)
    }

    /// Counts a reader of a stream; the session is not idle while it reads.
    pub(super) fn track_reader(self: &Arc<Self>) -> ReaderGuard {
        self.touch();
        self.readers.fetch_add(1, Relaxed);
        ReaderGuard(Arc::clone(self))
    }

    /// How long the session has been idle; `None` if it is in use.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        self.is_idle(Duration::ZERO)
            .then(|| lock(&self.last_used).elapsed())
    }

    /// Whether the session has been idle for `limit`.
    pub(super) fn is_idle(&self, limit: Duration) -> bool {
        self.readers.load(Relaxed) == 0
            && lock(&self.running).is_empty()
            && lock(&self.last_used).elapsed() >= limit
    }

    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }
}

/// The negotiated version and the client's capabilities.
pub(super) fn read_handshake(
    params: &RequestParams<'_>,
) -> Result<(ProtocolVersion, Value), RpcError> {
    let version = ProtocolVersion::negotiate(&RequestParams::require_string(
        params.protocol_version,
        "protocolVersion",
    )?);
    if params.capabilities.is_none() || params.client_info.is_none() {
        let message = "initialize needs capabilities and clientInfo";
        return Err(RpcError::invalid_params(message));
    }
    RequestParams::object_or_empty(params.client_info, "clientInfo")?;
    let capabilities = RequestParams::object_or_empty(params.capabilities, "capabilities")?;
    Ok((version, capabilities.into()))
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        {
            let mut running = lock(&self.session.running);
            running.remove(&self.id);
            if self.kind == RequestKind::Listening {
                self.session.listening.fetch_sub(1, Relaxed);
            }
        }
        self.session.freed.notify_waiters();
        self.session.touch();
    }
}

impl Drop for WaitingRequestGuard {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
        self.0.freed.notify_waiters();
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Relaxed);
        self.0.touch();
    }
}

/// Unregisters a request to the client, however the wait for it ends.
struct ClientRequestGuard<'a> {
    session: &'a McpSession,
    id: RpcId,
}

impl Drop for ClientRequestGuard<'_> {
    fn drop(&mut self) {
        lock(&self.session.client_requests).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
