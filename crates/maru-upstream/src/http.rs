//! Streamable HTTP: each request is a POST whose response carries the result. It runs in
//! the caller's task on a pooled connection.

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
use maru_http::{HttpRequest, HttpResponse};
use maru_protocol::{ProtocolVersion, RpcId, encode_header_value, write_raw_request};
use maru_runtime::{tasks::Tasks, traffic_budget::TrafficBudget};
use tokio::{sync::Semaphore, time};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    authorized_client::AuthorizedClient,
    cleanup_tracker::CleanupTracker,
    connect::ConnectContext,
    in_flight::{CallGuard, InFlightCalls},
    link::OutgoingRequest,
    notifications::NotificationSink,
    server_log::ServerLog,
};

use call::CancelGuard;
pub(super) use call::HttpCall;
pub(super) use event_stream::listen_for_events;
use maru_observability::telemetry::OutgoingTrace;

static PROTOCOL_VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
static SESSION_ID_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
static METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
static NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
static LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// How long posting a notification or reply may take.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait for the `ping` that tests whether the session still exists.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The statuses with which servers answer in a session that they do not know.
const UNKNOWN_SESSION_STATUSES: [StatusCode; 3] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
];
/// The most replies and cancellations that may be in flight to the server.
const MAX_PENDING_POSTS: usize = 64;

/// A link to a Streamable HTTP server.
#[derive(Debug)]
pub(super) struct HttpLink {
    client: AuthorizedClient,
    uri: Uri,
    /// The headers of every request before the version is negotiated.
    base_headers: HeaderMap,
    negotiated: OnceLock<NegotiatedProtocol>,
    /// Calls of clients, to which older servers send messages on a separate stream.
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each message that is sent in the background.
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

/// The negotiated version, and the headers that carry it.
#[derive(Debug)]
struct NegotiatedProtocol {
    version: ProtocolVersion,
    headers: HeaderMap,
    has_session: bool,
}

impl HttpLink {
    pub(super) fn new(
        client: AuthorizedClient,
        headers: &HeaderMap,
        sink: Arc<NotificationSink>,
        context: &ConnectContext,
    ) -> Result<Arc<Self>, Error> {
        let unusable = |_| Error::Refused("the address cannot be used in a request".to_owned());
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
            budget: TrafficBudget::new(context.traffic_rate),
            post_permits: Arc::new(Semaphore::new(MAX_PENDING_POSTS)),
            next_id: AtomicI64::new(1),
            tasks: context.tasks.clone(),
            cleanup: context.cleanup.clone(),
            log: Arc::clone(&context.log),
            notification_sink: sink,
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
        }))
    }

    /// Sets the version and session of all later requests.
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
        // Set once: a new session needs a new link.
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

    /// Sends a request, in the form of 2026-07-28 until a version is negotiated.
    pub(super) async fn start_call(
        self: &Arc<Self>,
        request: &OutgoingRequest<'_>,
    ) -> Result<HttpCall, Error> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let text = write_raw_request(&RpcId::Number(id), request.method, &(request.params)(id));
        self.log.record_sent(&text);
        let mut extra_headers = if self.version().is_modern() && request.method != "initialize" {
            self.mirrored_headers(request)
        } else {
            Vec::new()
        };
        extra_headers.extend(trace_headers());
        let client = request.client.filter(|_| !self.version().is_modern());
        let client = client.map(|it| self.in_flight.register(id, it));
        let mut pending = CancelGuard::new(self, id, request.method);
        match self.post(&extra_headers, text).await {
            Ok(reply) => HttpCall::new(pending, reply, client).await,
            Err(error) => {
                pending.done = true;
                if matches!(
                    error,
                    Error::Unreachable(_)
                        | Error::Busy(_)
                        | Error::Refused(_)
                        | Error::SignInRequired(_)
                        | Error::ScopeRequired(_)
                ) {
                    // The request was never sent, so the server cannot send requests on
                    // its behalf.
                    client.iter().for_each(CallGuard::end);
                }
                Err(error)
            }
        }
    }

    /// Sends a message that expects no response.
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

    /// Posts the reply to a server's request. A server that does not accept its replies
    /// is an error, because each would hold a connection.
    fn send_reply(self: &Arc<Self>, text: String) -> Result<(), Error> {
        if self.send_detached(text) {
            return Ok(());
        }
        Err(Error::Lost(format!(
            "the server sends requests and does not take the answers ({MAX_PENDING_POSTS} wait), so it was disconnected"
        )))
    }

    /// Sends a message in the background; returns false if too many are in flight.
    fn send_detached(self: &Arc<Self>, text: String) -> bool {
        let Ok(permit) = Arc::clone(&self.post_permits).try_acquire_owned() else {
            return false;
        };
        let link = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                // A failure is ignored: the server has its own timeout.
                _ = link.send(text) => (),
                () = link.closing.cancelled() => (),
                () = link.lost.cancelled() => (),
            }
            drop(permit);
        });
        true
    }

    /// Whether the server no longer knows the session. Some answer 400 to that, which may
    /// have other causes, so a `ping` tests the session.
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
        let outcome = time::timeout(SESSION_CHECK_TIMEOUT, ping).await;
        matches!(outcome, Ok(Ok(status)) if UNKNOWN_SESSION_STATUSES.contains(&status))
    }

    fn has_session(&self) -> bool {
        self.negotiated.get().is_some_and(|it| it.has_session)
    }

    fn headers(&self) -> &HeaderMap {
        self.negotiated
            .get()
            .map_or(&self.base_headers, |it| &it.headers)
    }

    /// Returns the headers that repeat parts of a request of 2026-07-28.
    fn mirrored_headers(&self, request: &OutgoingRequest<'_>) -> Vec<(HeaderName, HeaderValue)> {
        let mut extra_headers = Vec::with_capacity(3 + request.mirrored_params.len());
        if self.negotiated.get().is_none() {
            let version = HeaderValue::from_static(ProtocolVersion::V2026_07_28.as_str());
            extra_headers.push((PROTOCOL_VERSION_HEADER.clone(), version));
        }
        if let Ok(method) = HeaderValue::from_str(request.method) {
            extra_headers.push((METHOD_HEADER.clone(), method));
        }
        let value = |text: &str| HeaderValue::from_str(&encode_header_value(text)).ok();
        if let Some(name) = request.target_name.and_then(value) {
            extra_headers.push((NAME_HEADER.clone(), name));
        }
        for (name, text) in request.mirrored_params {
            let name = HeaderName::try_from(format!("mcp-param-{name}"));
            if let (Ok(name), Some(value)) = (name, value(text)) {
                extra_headers.push((name, value));
            }
        }
        extra_headers
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

    /// Opens the event stream, resuming after the event `last` if given.
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

    /// Maps the response status to an error and distinguishes an expired session.
    fn check_session_status(&self, reply: &HttpResponse) -> Result<(), Error> {
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE if self.has_session() => {
                Err(Error::SessionExpired)
            }
            _ => check_status(reply),
        }
    }

    /// Marks the connection as lost.
    pub(super) fn mark_lost(&self, error: Error) {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
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

    /// Closes the link and ends the session with a DELETE.
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
            // A server that misses it ends the session by its own timeout.
            let _ = time::timeout(Duration::from_secs(2), link.send_http(&goodbye)).await;
            drop(trace);
        });
    }
}

/// Returns the trace context headers of the current span, if spans are exported.
fn trace_headers() -> Vec<(HeaderName, HeaderValue)> {
    let trace = OutgoingTrace::current();
    let members = trace.iter().flat_map(OutgoingTrace::members);
    let headers = members.map(|(name, value)| {
        let value = HeaderValue::from_str(value).ok()?;
        Some((HeaderName::from_static(name), value))
    });
    headers.flatten().collect()
}

/// Maps the status of a response to an error. The body is never quoted.
pub(super) fn check_status(reply: &HttpResponse) -> Result<(), Error> {
    let status = reply.status;
    let code = status.as_u16();
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Error::Refused(format!(
            "the server answered {code}: the credentials are missing or wrong; see the headers of its configuration"
        ))),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Err(Error::Busy(
            format!("the server answered {code}: it is overloaded"),
        )),
        _ if status.is_redirection() => Err(Error::Refused(format!(
            "the server answered {code}: it redirects, and redirects are not followed"
        ))),
        _ => Err(Error::HttpStatus(code)),
    }
}
