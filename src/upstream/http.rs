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
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Error, desk::Desk, link::Ask, log::Log, news::News, open::Means, traces::Traces};
use crate::{
    mcp::{Id, Version, header_text, raw_request},
    outbound::{Client, Reply, Request, Target},
    tasks::Tasks,
};

pub(super) use call::Call;
use call::{Pending, Seated};
pub(super) use listen::listen;

static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");
static LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// How long a small message may take.
const SOON: Duration = Duration::from_secs(30);

/// A server behind one address.
#[derive(Debug)]
pub(super) struct Link {
    client: Arc<Client>,
    uri: Uri,
    /// What every request carries before anything is agreed on.
    base: HeaderMap,
    agreed: OnceLock<Agreed>,
    /// Calls of clients; older servers tell of them on a stream of its own.
    desk: Desk,
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
            desk: Desk::default(),
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
        let owner = ask.owner.filter(|_| !self.version().is_modern());
        let side = owner.map(|owner| Seated::new(self, id, owner));
        let mut pending = Pending::new(self, id, ask.method);
        match self.post(&more, text).await {
            Ok(reply) => Call::new(pending, reply, side).await,
            Err(why) => {
                pending.done = true;
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

    /// Sends a message that nobody waits for.
    fn send_soon(self: &Arc<Self>, text: String) {
        let link = Arc::clone(self);
        self.tasks.spawn(async move {
            tokio::select! {
                // The server finds out by itself otherwise.
                _ = link.send(text) => (),
                () = link.closing.cancelled() => (),
            }
        });
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
        let has_session = self.agreed.get().is_some_and(|it| it.has_session);
        match reply.status {
            StatusCode::NOT_FOUND if has_session => Err(Error::SessionOver),
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
        let has_session = self.agreed.get().is_some_and(|it| it.has_session);
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
