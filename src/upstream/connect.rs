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
use maru_http::{AddressPolicy, ClientTls, HttpClient};
use maru_protocol::{LoggingLevel, ProtocolVersion};
use maru_runtime::tasks::Tasks;
use serde_json::json;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    cleanup_tracker::CleanupTracker,
    handshake::{self, NegotiatedSession, initialize, probe},
    http,
    link::UpstreamLink,
    notifications::NotificationSink,
    pending_input::PendingInput,
    programs::{ProgramMonitor, ProgramSlot},
    server::RegisteredServer,
    server_log::ServerLog,
    sse, stdio,
    subscriptions::ResourceSubscriptions,
    traffic_budget::TrafficRate,
    transport::{ProgramSpec, RemoteEndpoint, Transport},
};

/// How long a server may take to open the stream on which it asks.
const LISTEN_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that can be used.
#[derive(Debug)]
pub(super) struct ActiveConnection {
    pub(super) link: UpstreamLink,
    pub(super) session: NegotiatedSession,
    pub(super) pending_input: PendingInput,
    pub(super) notification_sink: Arc<NotificationSink>,
    /// The least severe message that the server was asked to log.
    log_level: Mutex<Option<LoggingLevel>>,
    pub(super) subscriptions: ResourceSubscriptions,
    /// How many watch each resource.
    watcher_counts: Mutex<HashMap<String, usize>>,
    tasks: Tasks,
}

/// What opening needs besides the server itself.
#[derive(Clone, Debug)]
pub(super) struct ConnectContext {
    pub(super) policy: AddressPolicy,
    pub(super) tls: ClientTls,
    pub(super) environment: stdio::InheritedEnvironment,
    /// What starts programs, if not we.
    pub(super) warden: Option<PathBuf>,
    /// All programs that run.
    pub(super) programs: Arc<ProgramMonitor>,
    /// The server's own.
    pub(super) program_slot: ProgramSlot,
    pub(super) tasks: Tasks,
    /// Tells when nothing of earlier connections to the server is left.
    pub(super) cleanup: CleanupTracker,
    /// Keeps what the server says.
    pub(super) log: Arc<ServerLog>,
    /// What a server may send without being asked.
    pub(super) traffic_rate: TrafficRate,
}

/// Connects and shakes hands.
pub(super) async fn open_connection(
    server: &RegisteredServer,
    means: &ConnectContext,
    news: Arc<NotificationSink>,
) -> Result<Arc<ActiveConnection>, Error> {
    let required = server.required_version;
    let (link, session) = match &server.transport {
        Transport::Stdio(program) => open_stdio(program, required, means, &news).await?,
        Transport::Sse(remote) => open_sse(remote, required, means, &news).await?,
        Transport::Http(remote) => match open_http(remote, required, means, &news).await {
            // It may be a server of the old kind.
            Err(first @ Error::HttpStatus(400 | 404 | 405)) => {
                open_sse(remote, required, means, &news)
                    .await
                    .map_err(|_| first)?
            }
            done => done?,
        },
    };
    if let (false, UpstreamLink::Http(link)) = (session.version.is_modern(), &link) {
        open_listen_stream(link, &means.tasks).await;
    }
    Ok(Arc::new(ActiveConnection {
        link,
        session,
        pending_input: PendingInput::default(),
        notification_sink: news,
        log_level: Mutex::default(),
        subscriptions: ResourceSubscriptions::default(),
        watcher_counts: Mutex::default(),
        tasks: means.tasks.clone(),
    }))
}

/// Listens from now on. Older servers ask on that stream, and what they ask
/// before it is open gets lost.
async fn open_listen_stream(link: &Arc<http::HttpLink>, tasks: &Tasks) {
    let opened = CancellationToken::new();
    let opening = opened.clone().drop_guard();
    tasks.spawn(http::listen_for_events(Arc::clone(link), opening));
    // Some say nothing on it, not even that it is open, until there is news.
    let _may_be_open = time::timeout(LISTEN_OPEN_TIMEOUT, opened.cancelled()).await;
}

async fn open_stdio(
    program: &ProgramSpec,
    required: Option<ProtocolVersion>,
    means: &ConnectContext,
    news: &Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let start = || stdio::open(program, means, Arc::clone(news)).map(UpstreamLink::Channel);
    let link = start()?;
    match probe(&link, required).await {
        Ok(Some(session)) => Ok((link, session)),
        Ok(None) => initialize(&link, required)
            .await
            .map(|session| (link, session)),
        // Some die of a question that they do not know.
        Err(Error::Lost(_) | Error::ProgramExited { .. }) => {
            drop(link);
            means.cleanup.wait().await;
            let link = start()?;
            initialize(&link, required)
                .await
                .map(|session| (link, session))
        }
        Err(why) => Err(why),
    }
}

async fn open_sse(
    remote: &RemoteEndpoint,
    required: Option<ProtocolVersion>,
    means: &ConnectContext,
    news: &Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let (client, headers) = build_client(remote, means)?;
    let link = UpstreamLink::Channel(sse::open(client, headers, Arc::clone(news), means).await?);
    initialize(&link, required)
        .await
        .map(|session| (link, session))
}

async fn open_http(
    remote: &RemoteEndpoint,
    required: Option<ProtocolVersion>,
    means: &ConnectContext,
    news: &Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let (client, headers) = build_client(remote, means)?;
    let link = UpstreamLink::Http(http::HttpLink::new(
        client,
        &headers,
        Arc::clone(news),
        means,
    )?);
    match probe(&link, required).await? {
        Some(session) => Ok((link, session)),
        None => initialize(&link, required)
            .await
            .map(|session| (link, session)),
    }
}

fn build_client(
    remote: &RemoteEndpoint,
    means: &ConnectContext,
) -> Result<(Arc<HttpClient>, HeaderMap), Error> {
    let target = means.policy.authorize(&remote.url)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value.reveal())) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    Ok((HttpClient::new(target, means.tls.clone()), headers))
}

impl ActiveConnection {
    /// Runs `task` beside the connection.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Sees to it that the server logs as much as a client wants to hear.
    pub(super) async fn ensure_log_level(&self, level: LoggingLevel) -> Result<(), Error> {
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
    pub(super) fn add_watcher(self: &Arc<Self>, uri: &str) {
        let mut watched = self
            .watcher_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = watched.entry(uri.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            self.update_subscription(
                uri,
                "resources/subscribe",
                watched.keys().cloned().collect(),
            );
        }
    }

    /// Counts one less.
    pub(super) fn remove_watcher(self: &Arc<Self>, uri: &str) {
        let mut watched = self
            .watcher_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(count) = watched.get_mut(uri) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            watched.remove(uri);
            self.update_subscription(
                uri,
                "resources/unsubscribe",
                watched.keys().cloned().collect(),
            );
        }
    }

    fn update_subscription(self: &Arc<Self>, uri: &str, method: &'static str, all: Vec<String>) {
        if self.session.version.is_modern() {
            return self.subscriptions.set_uris(all);
        }
        if self.session.capabilities["resources"]["subscribe"] != true {
            return;
        }
        let (live, params) = (Arc::clone(self), json!({"uri": uri}));
        self.tasks.spawn(async move {
            // A server that refuses tells of nothing.
            let _ = handshake::call_method(&live.link, method, &params).await;
        });
    }
}
