//! Opening a connection to a server, in whatever version it speaks.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{
    HeaderMap,
    header::{HeaderName, HeaderValue},
};
use serde_json::json;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    budget::TrafficRate,
    handshake::{self, Session, initialize, probe},
    http,
    link::Link,
    listen::Wanted,
    log::Log,
    news::News,
    parked::Parked,
    programs::{ProgramSlot, Programs},
    server::Server,
    sse, stdio,
    traces::Traces,
    transport::{Program, Remote, Transport},
};
use crate::{
    mcp::{LogLevel, Version},
    outbound::{Client, Policy, Tls},
    tasks::Tasks,
};

/// How long a server may take to open the stream on which it asks.
const LISTENING: Duration = Duration::from_secs(1);

/// A connection that can be used.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) link: Link,
    pub(super) session: Session,
    pub(super) parked: Parked,
    pub(super) news: Arc<News>,
    /// The least severe message that the server was asked to log.
    log_level: Mutex<Option<LogLevel>>,
    pub(super) wanted: Wanted,
    /// How many watch each resource.
    watched: Mutex<HashMap<String, usize>>,
    tasks: Tasks,
}

/// What opening needs besides the server itself.
#[derive(Clone, Debug)]
pub(super) struct Means {
    pub(super) policy: Policy,
    pub(super) tls: Tls,
    pub(super) environment: stdio::Environment,
    /// What starts programs, if not we.
    pub(super) warden: Option<PathBuf>,
    /// All programs that run.
    pub(super) programs: Arc<Programs>,
    /// The server's own.
    pub(super) program: ProgramSlot,
    pub(super) tasks: Tasks,
    /// Tells when nothing of earlier connections to the server is left.
    pub(super) traces: Traces,
    /// Keeps what the server says.
    pub(super) log: Arc<Log>,
    /// What a server may send without being asked.
    pub(super) traffic_rate: TrafficRate,
}

/// Connects and shakes hands.
pub(super) async fn open(
    server: &Server,
    means: &Means,
    news: Arc<News>,
) -> Result<Arc<Live>, Error> {
    let required = server.required_version;
    let (link, session) = match &server.transport {
        Transport::Stdio(program) => open_stdio(program, required, means, &news).await?,
        Transport::Sse(remote) => open_sse(remote, required, means, &news).await?,
        Transport::Http(remote) => match open_http(remote, required, means, &news).await {
            // It may be a server of the old kind.
            Err(first @ Error::Status(400 | 404 | 405)) => open_sse(remote, required, means, &news)
                .await
                .map_err(|_| first)?,
            done => done?,
        },
    };
    if let (false, Link::Http(link)) = (session.version.is_modern(), &link) {
        hear(link, &means.tasks).await;
    }
    Ok(Arc::new(Live {
        link,
        session,
        parked: Parked::default(),
        news,
        log_level: Mutex::default(),
        wanted: Wanted::default(),
        watched: Mutex::default(),
        tasks: means.tasks.clone(),
    }))
}

/// Listens from now on. Older servers ask on that stream, and what they ask
/// before it is open gets lost.
async fn hear(link: &Arc<http::Link>, tasks: &Tasks) {
    let opened = CancellationToken::new();
    let opening = opened.clone().drop_guard();
    tasks.spawn(http::listen(Arc::clone(link), opening));
    // Some say nothing on it, not even that it is open, until there is news.
    let _may_be_open = time::timeout(LISTENING, opened.cancelled()).await;
}

async fn open_stdio(
    program: &Program,
    required: Option<Version>,
    means: &Means,
    news: &Arc<News>,
) -> Result<(Link, Session), Error> {
    let start = || stdio::open(program, means, Arc::clone(news)).map(Link::Channel);
    let link = start()?;
    match probe(&link, required).await {
        Ok(Some(session)) => Ok((link, session)),
        Ok(None) => initialize(&link, required)
            .await
            .map(|session| (link, session)),
        // Some die of a question that they do not know.
        Err(Error::Lost(_) | Error::Ended { .. }) => {
            drop(link);
            means.traces.gone().await;
            let link = start()?;
            initialize(&link, required)
                .await
                .map(|session| (link, session))
        }
        Err(why) => Err(why),
    }
}

async fn open_sse(
    remote: &Remote,
    required: Option<Version>,
    means: &Means,
    news: &Arc<News>,
) -> Result<(Link, Session), Error> {
    let (client, headers) = reach(remote, means)?;
    let link = Link::Channel(sse::open(client, headers, Arc::clone(news), means).await?);
    initialize(&link, required)
        .await
        .map(|session| (link, session))
}

async fn open_http(
    remote: &Remote,
    required: Option<Version>,
    means: &Means,
    news: &Arc<News>,
) -> Result<(Link, Session), Error> {
    let (client, headers) = reach(remote, means)?;
    let link = Link::Http(http::Link::new(client, &headers, Arc::clone(news), means)?);
    match probe(&link, required).await? {
        Some(session) => Ok((link, session)),
        None => initialize(&link, required)
            .await
            .map(|session| (link, session)),
    }
}

fn reach(remote: &Remote, means: &Means) -> Result<(Arc<Client>, HeaderMap), Error> {
    let target = means.policy.judge(&remote.url)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value.reveal())) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    Ok((Client::new(target, means.tls.clone()), headers))
}

impl Live {
    /// Runs `task` beside the connection.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Sees to it that the server logs as much as a client wants to hear.
    pub(super) async fn log_as_much_as(&self, level: LogLevel) -> Result<(), Error> {
        if self.session.version.is_modern() || self.session.capabilities.get("logging").is_none() {
            return Ok(());
        }
        {
            let mut now = self
                .log_level
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if now.is_some_and(|it| it <= level) {
                return Ok(());
            }
            *now = Some(level);
        }
        handshake::set_log_level(&self.link, level).await
    }

    /// Counts one more who watches `uri`.
    pub(super) fn watch(self: &Arc<Self>, uri: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let count = watched.entry(uri.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            self.subscribe(
                uri,
                "resources/subscribe",
                watched.keys().cloned().collect(),
            );
        }
    }

    /// Counts one less.
    pub(super) fn unwatch(self: &Arc<Self>, uri: &str) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = watched.get_mut(uri) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            watched.remove(uri);
            self.subscribe(
                uri,
                "resources/unsubscribe",
                watched.keys().cloned().collect(),
            );
        }
    }

    fn subscribe(self: &Arc<Self>, uri: &str, method: &'static str, all: Vec<String>) {
        if self.session.version.is_modern() {
            return self.wanted.set(all);
        }
        if self.session.capabilities["resources"]["subscribe"] != true {
            return;
        }
        let (live, params) = (Arc::clone(self), json!({"uri": uri}));
        self.tasks.spawn(async move {
            // A server that refuses tells of nothing.
            let _ = handshake::ask(&live.link, method, &params).await;
        });
    }
}
