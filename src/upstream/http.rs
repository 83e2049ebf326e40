//! Streamable HTTP: a request is a POST, its answer comes back on it. Runs in
//! the task of the caller, on a kept connection.

mod call;
mod listen;

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
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
};
use tokio::{sync::Semaphore, time};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    budget::TrafficBudget,
    in_flight::{CallGuard, InFlightCalls},
    link::Ask,
    log::Log,
    news::News,
    open::Means,
    traces::Traces,
};
use crate::{
    mcp::{Id, Version, header_text, raw_request},
    outbound::{Client, Reply, Request, Target},
    tasks::Tasks,
};

pub(super) use call::Call;
use call::Pending;
pub(super) use listen::listen;

static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");
static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How long a small message may take.
const SOON: Duration = Duration::from_secs(30);

/// How long a server may take to say whether it knows our session.
const SESSION_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// What servers answer in a session that they do not know.
const FORGOTTEN: [StatusCode; 3] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::GONE,
];
/// Answers and cancellations on their way to the server.
const MAX_WAITING_POSTS: usize = 64;

/// A server behind one address.
#[derive(Debug)]
pub(super) struct Link {
    client: Arc<Client>,
    uri: Uri,
    /// What every request carries before anything is agreed on.
    base: HeaderMap,
    agreed: OnceLock<Agreed>,
    /// Calls of clients; older servers tell of them on a stream of its own.
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each message of ours that nobody waits for.
    posts: Arc<Semaphore>,
    next: AtomicI64,
    tasks: Tasks,
    traces: Traces,
    log: Arc<Log>,
    news: Arc<News>,
    cause: Mutex<Option<Error>>,
    pub(super) lost: CancellationToken,
    pub(super) closing: CancellationToken,
}

/// What was agreed on, and the headers that say so.
#[derive(Debug)]
struct Agreed {
    version: Version,
    headers: HeaderMap,
    has_session: bool,
}

impl Link {
    pub(super) fn new(
        client: Arc<Client>,
        headers: &HeaderMap,
        news: Arc<News>,
        means: &Means,
    ) -> Result<Arc<Self>, Error> {
        let unusable = |_| Error::Refused("the address cannot be asked for".to_owned());
        let mut base = with_headers(client.target(), headers);
        base.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        base.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        Ok(Arc::new(Self {
            uri: client.target().path.parse().map_err(unusable)?,
            client,
            base,
            agreed: OnceLock::new(),
            in_flight: Arc::default(),
            budget: TrafficBudget::new(means.traffic_rate),
            posts: Arc::new(Semaphore::new(MAX_WAITING_POSTS)),
            next: AtomicI64::new(1),
            tasks: means.tasks.clone(),
            traces: means.traces.clone(),
            log: Arc::clone(&means.log),
            news,
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
        }))
    }

    /// Settles the version and the session for everything that follows.
    pub(super) fn agree(&self, version: Version, session: Option<&HeaderValue>) {
        let mut headers = self.base.clone();
        headers.insert(&VERSION, HeaderValue::from_static(version.as_str()));
        if let Some(session) = session {
            headers.insert(&SESSION, session.clone());
        }
        let has_session = session.is_some();
        // Agreed once: a second session needs a new link.
        let _ = self.agreed.set(Agreed {
            version,
            headers,
            has_session,
        });
    }

    fn version(&self) -> Version {
        self.agreed
            .get()
            .map_or(Version::V2026_07_28, |it| it.version)
    }

    /// Sends a request; before anything is agreed on, as 2026-07-28 wants it.
    pub(super) async fn start(self: &Arc<Self>, ask: &Ask<'_>) -> Result<Call, Error> {
        let id = self.next.fetch_add(1, Relaxed);
        let text = raw_request(&Id::Number(id), ask.method, &(ask.params)(id));
        self.log.sent(&text);
        let more = match self.version().is_modern() && ask.method != "initialize" {
            true => self.mirrors(ask),
            false => Vec::new(),
        };
        let client = ask.client.filter(|_| !self.version().is_modern());
        let client = client.map(|it| self.in_flight.register(id, it));
        let mut pending = Pending::new(self, id, ask.method);
        match self.post(&more, text).await {
            Ok(reply) => Call::new(pending, reply, client).await,
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
        self.log.sent(&text);
        let exchange = async {
            let mut reply = self.post(&[], text).await?;
            self.refusal(&reply)?;
            reply.text().await.map_err(Error::from)
        };
        let late = |_| Error::Lost("the server did not take a message within 30 s".to_owned());
        time::timeout(SOON, exchange).await.map_err(late)?.map(drop)
    }

    /// Answers a request of the server. A server that asks and does not take the
    /// answers is an error: each would keep a connection.
    fn reply(self: &Arc<Self>, text: String) -> Result<(), Error> {
        if self.send_soon(text) {
            return Ok(());
        }
        Err(Error::Lost(format!(
            "the server sends requests and does not take the answers ({MAX_WAITING_POSTS} wait), so it was disconnected"
        )))
    }

    /// Sends a message that nobody waits for; false if too many wait already.
    fn send_soon(self: &Arc<Self>, text: String) -> bool {
        let Ok(permit) = Arc::clone(&self.posts).try_acquire_owned() else {
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
        let id = Id::Number(self.next.fetch_add(1, Relaxed));
        let ping = async {
            let mut reply = self.post(&[], raw_request(&id, "ping", "{}")).await?;
            let _read = reply.text().await?;
            Ok::<_, Error>(reply.status)
        };
        let asked = time::timeout(SESSION_CHECK_TIMEOUT, ping).await;
        matches!(asked, Ok(Ok(status)) if FORGOTTEN.contains(&status))
    }

    fn has_session(&self) -> bool {
        self.agreed.get().is_some_and(|it| it.has_session)
    }

    fn headers(&self) -> &HeaderMap {
        self.agreed.get().map_or(&self.base, |it| &it.headers)
    }

    /// What a request of 2026-07-28 says in its headers once more.
    fn mirrors(&self, ask: &Ask<'_>) -> Vec<(HeaderName, HeaderValue)> {
        let mut more = Vec::with_capacity(3 + ask.mirrors.len());
        if self.agreed.get().is_none() {
            let version = HeaderValue::from_static(Version::V2026_07_28.as_str());
            more.push((VERSION.clone(), version));
        }
        more.push((METHOD.clone(), HeaderValue::from_static(ask.method)));
        let value = |text: &str| HeaderValue::from_str(&header_text(text)).ok();
        if let Some(name) = ask.name.and_then(value) {
            more.push((NAME.clone(), name));
        }
        for (name, text) in ask.mirrors {
            let name = HeaderName::try_from(format!("mcp-param-{name}"));
            if let (Ok(name), Some(value)) = (name, value(text)) {
                more.push((name, value));
            }
        }
        more
    }

    async fn post(&self, more: &[(HeaderName, HeaderValue)], body: String) -> Result<Reply, Error> {
        self.request(&Request {
            method: &Method::POST,
            uri: &self.uri,
            headers: self.headers(),
            more,
            body: &Bytes::from(body),
        })
        .await
    }

    async fn request(&self, request: &Request<'_>) -> Result<Reply, Error> {
        let reply = self.client.send(request).await?;
        if !reply.status.is_success() {
            self.log
                .event(&format!("the server answered {}", reply.status));
        }
        Ok(reply)
    }

    /// Opens the stream of events that come after `last`, or from now on.
    async fn listen_after(&self, last: Option<&str>) -> Result<Reply, Error> {
        let mut headers = self.headers().clone();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|it| HeaderValue::from_str(it).ok()) {
            headers.insert(&LAST_EVENT, last);
        }
        self.request(&Request {
            method: &Method::GET,
            uri: &self.uri,
            headers: &headers,
            more: &[],
            body: &Bytes::new(),
        })
        .await
    }

    /// What the status says; a missing session is told apart.
    fn refusal(&self, reply: &Reply) -> Result<(), Error> {
        match reply.status {
            StatusCode::NOT_FOUND | StatusCode::GONE if self.has_session() => {
                Err(Error::SessionOver)
            }
            _ => refusal(reply),
        }
    }

    /// The server is gone.
    pub(super) fn lose(&self, why: Error) {
        self.cause
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(why);
        self.lost.cancel();
    }

    pub(super) fn why(&self) -> Error {
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
        self.lose(Error::Lost("the connection was closed".to_owned()));
        if !has_session || was_lost {
            return;
        }
        let (link, trace) = (Arc::clone(self), self.traces.leave());
        self.tasks.spawn(async move {
            let goodbye = Request {
                method: &Method::DELETE,
                uri: &link.uri,
                headers: link.headers(),
                more: &[],
                body: &Bytes::new(),
            };
            // Who does not hear it ends the session by itself.
            let _ = time::timeout(Duration::from_secs(2), link.request(&goodbye)).await;
            drop(trace);
        });
    }
}

/// What the status of an answer says about us. The body is never quoted.
pub(super) fn refusal(reply: &Reply) -> Result<(), Error> {
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
        _ => Err(Error::Status(code)),
    }
}

/// The headers of the configuration and the host.
pub(super) fn with_headers(target: &Target, headers: &HeaderMap) -> HeaderMap {
    let mut all = headers.clone();
    if let Ok(host) = HeaderValue::from_str(&target.authority()) {
        all.insert(HOST, host);
    }
    all
}
