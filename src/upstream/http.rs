//! Streamable HTTP: a request is a POST, its answer comes back on it. Runs in
//! the task of the caller, on a kept connection.

mod call;
mod event_stream;

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue},
};
use maru_http::{HttpClient, HttpRequest, HttpResponse};
use maru_protocol::{ProtocolVersion, RpcId, encode_header_value, write_raw_request};
use maru_runtime::tasks::Tasks;
use tokio::{sync::Semaphore, time};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    cleanup_tracker::CleanupTracker,
    connect::ConnectContext,
    in_flight::{CallGuard, InFlightCalls},
    link::OutgoingRequest,
    notifications::NotificationSink,
    server_log::ServerLog,
    traffic_budget::TrafficBudget,
};

use crate::observability::telemetry::OutgoingTrace;
use call::CancelGuard;
pub(super) use call::HttpCall;
pub(super) use event_stream::listen_for_events;

static PROTOCOL_VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
static SESSION_ID_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
static METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
static NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
static LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// How long a small message may take.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a server may take to say whether it knows our session.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// What servers answer in a session that they do not know.
const UNKNOWN_SESSION_STATUSES: [StatusCode; 3] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
];
/// Answers and cancellations on their way to the server.
const MAX_PENDING_POSTS: usize = 64;

/// A server behind one address.
#[derive(Debug)]
pub(super) struct HttpLink {
    client: Arc<HttpClient>,
    uri: Uri,
    /// What every request carries before anything is agreed on.
    base_headers: HeaderMap,
    negotiated: OnceLock<NegotiatedProtocol>,
    /// Calls of clients; older servers tell of them on a stream of its own.
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each message of ours that nobody waits for.
    post_permits: Arc<Semaphore>,
    next_id: AtomicI64,
    tasks: Tasks,
    cleanup: CleanupTracker,
    log: Arc<ServerLog>,
    notification_sink: Arc<NotificationSink>,
    cause: Mutex<Option<Error>>,
    pub(super) lost: CancellationToken,
    pub(super) closing: CancellationToken,
}

/// What was agreed on, and the headers that say so.
#[derive(Debug)]
struct NegotiatedProtocol {
    version: ProtocolVersion,
    headers: HeaderMap,
    has_session: bool,
}

impl HttpLink {
    pub(super) fn new(
        client: Arc<HttpClient>,
        headers: &HeaderMap,
        news: Arc<NotificationSink>,
        means: &ConnectContext,
    ) -> Result<Arc<Self>, Error> {
        let unusable = |_| Error::Refused("the address cannot be asked for".to_owned());
        let mut base = headers.clone();
        base.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        base.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        Ok(Arc::new(Self {
            uri: client.target().path.parse().map_err(unusable)?,
            client,
            base_headers: base,
            negotiated: OnceLock::new(),
            in_flight: Arc::default(),
            budget: TrafficBudget::new(means.traffic_rate),
            post_permits: Arc::new(Semaphore::new(MAX_PENDING_POSTS)),
            next_id: AtomicI64::new(1),
            tasks: means.tasks.clone(),
            cleanup: means.cleanup.clone(),
            log: Arc::clone(&means.log),
            notification_sink: news,
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
        }))
    }

    /// Settles the version and the session for everything that follows.
    pub(super) fn set_negotiated(&self, version: ProtocolVersion, session: Option<&HeaderValue>) {
        let mut headers = self.base_headers.clone();
        headers.insert(
            &PROTOCOL_VERSION_HEADER,
            HeaderValue::from_static(version.as_str()),
        );
        if let Some(session) = session {
            headers.insert(&SESSION_ID_HEADER, session.clone());
        }
        let has_session = session.is_some();
        // Agreed once: a second session needs a new link.
        let _ = self.negotiated.set(NegotiatedProtocol {
            version,
            headers,
            has_session,
        });
    }

    fn version(&self) -> ProtocolVersion {
        self.negotiated
            .get()
            .map_or(ProtocolVersion::V2026_07_28, |it| it.version)
    }

    /// Sends a request; before anything is agreed on, as 2026-07-28 wants it.
    pub(super) async fn start_call(
        self: &Arc<Self>,
        ask: &OutgoingRequest<'_>,
    ) -> Result<HttpCall, Error> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let text = write_raw_request(&RpcId::Number(id), ask.method, &(ask.params)(id));
        self.log.record_sent(&text);
        let mut more = if self.version().is_modern() && ask.method != "initialize" {
            self.mirrored_headers(ask)
        } else {
            Vec::new()
        };
        more.extend(trace_headers());
        let client = ask.client.filter(|_| !self.version().is_modern());
        let client = client.map(|it| self.in_flight.register(id, it));
        let mut pending = CancelGuard::new(self, id, ask.method);
        match self.post(&more, text).await {
            Ok(reply) => HttpCall::new(pending, reply, client).await,
            Err(why) => {
                pending.done = true;
                if matches!(
                    why,
                    Error::Unreachable(_) | Error::Busy(_) | Error::Refused(_)
                ) {
                    // It was never sent, so the server cannot ask on behalf of it.
                    client.iter().for_each(CallGuard::end);
                }
                Err(why)
            }
        }
    }

    /// Sends a message that wants no answer.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        self.log.record_sent(&text);
        let exchange = async {
            let mut reply = self.post(&[], text).await?;
            self.check_session_status(&reply)?;
            reply.bytes().await.map_err(Error::from)
        };
        let late = |_| Error::Lost("the server did not take a message within 30 s".to_owned());
        time::timeout(MESSAGE_TIMEOUT, exchange)
            .await
            .map_err(late)?
            .map(drop)
    }

    /// Answers a request of the server. A server that asks and does not take the
    /// answers is an error: each would keep a connection.
    fn send_reply(self: &Arc<Self>, text: String) -> Result<(), Error> {
        if self.send_detached(text) {
            return Ok(());
        }
        Err(Error::Lost(format!(
            "the server sends requests and does not take the answers ({MAX_PENDING_POSTS} wait), so it was disconnected"
        )))
    }

    /// Sends a message that nobody waits for; false if too many wait already.
    fn send_detached(self: &Arc<Self>, text: String) -> bool {
        let Ok(permit) = Arc::clone(&self.post_permits).try_acquire_owned() else {
            return false;
        };
        let link = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                // The server finds out by itself otherwise.
                _ = link.send(text) => (),
                () = link.closing.cancelled() => (),
                () = link.lost.cancelled() => (),
            }
            drop(permit);
        });
        true
    }

    /// Whether the server has forgotten our session. Some say 400 to that, which may
    /// mean anything else as well, so the session is tried with a `ping`.
    async fn is_session_unknown(&self) -> bool {
        if !self.has_session() {
            return false;
        }
        let id = RpcId::Number(self.next_id.fetch_add(1, Relaxed));
        let ping = async {
            let mut reply = self.post(&[], write_raw_request(&id, "ping", "{}")).await?;
            let _read = reply.bytes().await?;
            Ok::<_, Error>(reply.status)
        };
        let asked = time::timeout(SESSION_CHECK_TIMEOUT, ping).await;
        matches!(asked, Ok(Ok(status)) if UNKNOWN_SESSION_STATUSES.contains(&status))
    }

    fn has_session(&self) -> bool {
        self.negotiated.get().is_some_and(|it| it.has_session)
    }

    fn headers(&self) -> &HeaderMap {
        self.negotiated
            .get()
            .map_or(&self.base_headers, |it| &it.headers)
    }

    /// What a request of 2026-07-28 says in its headers once more.
    fn mirrored_headers(&self, ask: &OutgoingRequest<'_>) -> Vec<(HeaderName, HeaderValue)> {
        let mut more = Vec::with_capacity(3 + ask.mirrored_params.len());
        if self.negotiated.get().is_none() {
            let version = HeaderValue::from_static(ProtocolVersion::V2026_07_28.as_str());
            more.push((PROTOCOL_VERSION_HEADER.clone(), version));
        }
        more.push((METHOD_HEADER.clone(), HeaderValue::from_static(ask.method)));
        let value = |text: &str| HeaderValue::from_str(&encode_header_value(text)).ok();
        if let Some(name) = ask.target_name.and_then(value) {
            more.push((NAME_HEADER.clone(), name));
        }
        for (name, text) in ask.mirrored_params {
            let name = HeaderName::try_from(format!("mcp-param-{name}"));
            if let (Ok(name), Some(value)) = (name, value(text)) {
                more.push((name, value));
            }
        }
        more
    }

    async fn post(
        &self,
        extra_headers: &[(HeaderName, HeaderValue)],
        body: String,
    ) -> Result<HttpResponse, Error> {
        self.send_http(&HttpRequest {
            method: &Method::POST,
            uri: &self.uri,
            headers: self.headers(),
            extra_headers,
            body: &Bytes::from(body),
        })
        .await
    }

    async fn send_http(&self, request: &HttpRequest<'_>) -> Result<HttpResponse, Error> {
        let reply = self.client.send(request).await?;
        if !reply.status.is_success() {
            self.log
                .record_event(&format!("the server answered {}", reply.status));
        }
        Ok(reply)
    }

    /// Opens the stream of events that come after `last`, or from now on.
    async fn open_event_stream(&self, last: Option<&str>) -> Result<HttpResponse, Error> {
        let mut headers = self.headers().clone();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|it| HeaderValue::from_str(it).ok()) {
            headers.insert(&LAST_EVENT_ID_HEADER, last);
        }
        self.send_http(&HttpRequest {
            method: &Method::GET,
            uri: &self.uri,
            headers: &headers,
            extra_headers: &[],
            body: &Bytes::new(),
        })
        .await
    }

    /// What the status says; a missing session is told apart.
    fn check_session_status(&self, reply: &HttpResponse) -> Result<(), Error> {
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE if self.has_session() => {
                Err(Error::SessionExpired)
            }
            _ => check_status(reply),
        }
    }

    /// The server is gone.
    pub(super) fn mark_lost(&self, why: Error) {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
        self.lost.cancel();
    }

    pub(super) fn close_reason(&self) -> Error {
        let cause = self
            .cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        cause.unwrap_or_else(|| Error::Lost("the connection was closed".to_owned()))
    }

    /// Says goodbye to the session.
    pub(super) fn close(self: &Arc<Self>) {
        if self.closing.is_cancelled() {
            return;
        }
        self.closing.cancel();
        let has_session = self.has_session();
        let was_lost = self.lost.is_cancelled();
        self.mark_lost(Error::Lost("the connection was closed".to_owned()));
        if !has_session || was_lost {
            return;
        }
        let (link, trace) = (Arc::clone(self), self.cleanup.token());
        self.tasks.spawn(async move {
            let goodbye = HttpRequest {
                method: &Method::DELETE,
                uri: &link.uri,
                headers: link.headers(),
                extra_headers: &[],
                body: &Bytes::new(),
            };
            // Who does not hear it ends the session by itself.
            let _ = time::timeout(Duration::from_secs(2), link.send_http(&goodbye)).await;
            drop(trace);
        });
    }
}

/// The trace that a request is part of, where spans are exported.
fn trace_headers() -> Vec<(HeaderName, HeaderValue)> {
    let trace = OutgoingTrace::current();
    let members = trace.iter().flat_map(OutgoingTrace::members);
    let headers = members.map(|(name, value)| {
        let value = HeaderValue::from_str(value).ok()?;
        Some((HeaderName::from_static(name), value))
    });
    headers.flatten().collect()
}

/// What the status of an answer says about us. The body is never quoted.
pub(super) fn check_status(reply: &HttpResponse) -> Result<(), Error> {
    let status = reply.status;
    let code = status.as_u16();
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Error::Refused(format!(
            "the server answered {code}: the credentials are missing or wrong; see the headers of its configuration"
        ))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Err(Error::Busy(
            format!("the server answered {code}: it has too much to do"),
        )),
        _ if status.is_redirection() => Err(Error::Refused(format!(
            "the server answered {code}: it points elsewhere, and redirects are not followed"
        ))),
        _ => Err(Error::HttpStatus(code)),
    }
}
