//! Opens a connection to a server and negotiates the protocol version.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderName, HeaderValue},
};
use maru_http::{AddressPolicy, ClientTls, HttpClient};
use maru_protocol::{LoggingLevel, ProtocolVersion};
use maru_runtime::{tasks::Tasks, traffic_budget::TrafficRate};
use maru_store::HubLock;
use serde_json::json;
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    authorized_client::AuthorizedClient,
    channel::MessageChannel,
    cleanup_tracker::CleanupTracker,
    credential::Credential,
    exit_cause::may_dislike_request,
    handshake::{self, NegotiatedSession, initialize, probe},
    http,
    link::UpstreamLink,
    notifications::NotificationSink,
    peer_channel,
    pending_input::PendingInput,
    programs::{ProgramMonitor, ProgramSlot},
    remote_auth::RemoteAuth,
    server::RegisteredServer,
    server_log::ServerLog,
    single_runs::{CHECK_INTERVAL, RunPlace, SingleRuns},
    sse, stdio,
    subscriptions::ResourceSubscriptions,
    transport::{ProgramRun, ProgramSpec, RemoteEndpoint, Transport},
};

/// How long to wait until the server has opened its event stream.
const LISTEN_OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// An open connection after the handshake.
#[derive(Debug)]
pub(super) struct ActiveConnection {
    pub(super) link: UpstreamLink,
    pub(super) session: NegotiatedSession,
    pub(super) pending_input: PendingInput,
    pub(super) notification_sink: Arc<NotificationSink>,
    /// The log level that was requested from the server.
    log_level: Mutex<Option<LoggingLevel>>,
    pub(super) subscriptions: ResourceSubscriptions,
    /// The number of subscribers of each resource.
    watcher_counts: Mutex<HashMap<String, usize>>,
    tasks: Tasks,
}

/// Shared resources that opening a connection needs.
#[derive(Clone, Debug)]
pub(super) struct ConnectContext {
    pub(super) policy: AddressPolicy,
    pub(super) tls: ClientTls,
    pub(super) environment: stdio::InheritedEnvironment,
    /// The executable that starts programs under a warden, if they do not run directly
    /// below the hub.
    pub(super) warden: Option<PathBuf>,
    /// Monitors all running programs.
    pub(super) programs: Arc<ProgramMonitor>,
    /// The running program of this server.
    pub(super) program_slot: ProgramSlot,
    /// What the next program of this server is asked first.
    pub(super) first_request: Arc<Mutex<FirstRequest>>,
    pub(super) tasks: Tasks,
    /// Tracks the cleanup of earlier connections to the server.
    pub(super) cleanup: CleanupTracker,
    /// Receives the server's stderr, events and messages.
    pub(super) log: Arc<ServerLog>,
    /// The budget for messages that maru did not request.
    pub(super) traffic_rate: TrafficRate,
    /// How long a client may take to answer a question of the server.
    pub(super) input_timeout: Duration,
    /// Programs that the hubs of a store run once, where there may be several hubs.
    pub(super) single_runs: Option<SingleRuns>,
}

/// What a program is asked first. Some programs of older versions exit on a method that they
/// do not know, and some exit whatever they are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FirstRequest {
    /// `server/discover`; if the program exits, it is started again for `initialize` at once.
    #[default]
    DiscoverThenInitialize,
    /// `server/discover`; if the program exits, the next attempt sends `initialize`.
    Discover,
    /// `initialize`; if that fails, the next attempt sends `server/discover`.
    Initialize,
}

/// Connects to a server and performs the handshake.
pub(super) async fn open_connection(
    server: &RegisteredServer,
    context: &ConnectContext,
    sink: Arc<NotificationSink>,
    credential: Option<Arc<Credential>>,
) -> Result<Arc<ActiveConnection>, Error> {
    let required = server.required_version;
    let (link, session) = match &server.transport {
        Transport::Stdio(program) => match &context.single_runs {
            // A server that is only tested has no id.
            Some(runs) if program.run == ProgramRun::Single && !server.id.is_empty() => {
                open_single(runs, server, program, (context, &sink)).await?
            }
            _ => open_stdio(program, required, context, &sink, None).await?,
        },
        Transport::Sse(remote) => {
            let client = build_client(remote, context, credential)?;
            open_sse(client, required, context, &sink).await?
        }
        Transport::Http(remote) => {
            let client = build_client(remote, context, credential)?;
            match open_http(client.clone(), required, context, &sink).await {
                // The server may only support HTTP+SSE of 2024-11-05.
                Err(error @ Error::HttpStatus(400 | 404 | 405)) => {
                    open_sse(client, required, context, &sink)
                        .await
                        .map_err(|_| error)?
                }
                done => done?,
            }
        }
    };
    if let (false, UpstreamLink::Http(link)) = (session.version.is_modern(), &link) {
        open_listen_stream(link, &context.tasks).await;
    }
    Ok(Arc::new(ActiveConnection {
        link,
        session,
        pending_input: PendingInput::new(context.input_timeout),
        notification_sink: sink,
        log_level: Mutex::default(),
        subscriptions: ResourceSubscriptions::default(),
        watcher_counts: Mutex::default(),
        tasks: context.tasks.clone(),
    }))
}

/// Opens the event stream. Older servers send their requests on it and drop those that
/// they send before it is open.
async fn open_listen_stream(link: &Arc<http::HttpLink>, tasks: &Tasks) {
    let opened = CancellationToken::new();
    let opened_guard = opened.clone().drop_guard();
    tasks.spawn(http::listen_for_events(Arc::clone(link), opened_guard));
    // Some servers send no headers on the stream until the first event.
    let _may_be_open = time::timeout(LISTEN_OPEN_TIMEOUT, opened.cancelled()).await;
}

/// Opens the program that one hub runs, here or there.
async fn open_single(
    runs: &SingleRuns,
    server: &RegisteredServer,
    program: &ProgramSpec,
    (context, sink): (&ConnectContext, &Arc<NotificationSink>),
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    loop {
        match runs.decide(&server.id).await? {
            RunPlace::Here(lock) => {
                let required = server.required_version;
                return open_stdio(program, required, context, sink, Some(lock)).await;
            }
            RunPlace::At(hub) => {
                let place = (server.id.as_str(), hub.as_str());
                if let Ok(opened) = peer_channel::open(runs, place, context, Arc::clone(sink)).await
                {
                    return Ok(opened);
                }
                // The hub may have ended, or may not have started the program yet.
                time::sleep(CHECK_INTERVAL).await;
            }
        }
    }
}

/// Ends the program of `channel` when its lock is lost, and keeps the lock until it ended.
fn tie_to_lock(channel: &Arc<MessageChannel>, lock: Arc<HubLock>, context: &ConnectContext) {
    let (channel, token) = (Arc::clone(channel), context.cleanup.token());
    context.tasks.spawn(async move {
        tokio::select! {
            () = lock.lost().cancelled() => {
                channel.killed.cancel();
                channel.closed.cancelled().await;
            }
            () = channel.closed.cancelled() => (),
        }
        drop((lock, token));
    });
}

async fn open_stdio(
    program: &ProgramSpec,
    required: Option<ProtocolVersion>,
    context: &ConnectContext,
    sink: &Arc<NotificationSink>,
    lock: Option<Arc<HubLock>>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let start = || {
        let channel = stdio::open(program, context, Arc::clone(sink))?;
        if let Some(lock) = &lock {
            tie_to_lock(&channel, Arc::clone(lock), context);
        }
        Ok::<_, Error>(UpstreamLink::Channel(channel))
    };
    let first_request = context.first_request();
    let link = start()?;
    let probed = match first_request {
        FirstRequest::Initialize => Ok(None),
        _ => probe(&link, required).await,
    };
    let link = match probed {
        Ok(Some(session)) => return Ok((link, session)),
        Ok(None) => link,
        // One that says what it lacks is not started a second time.
        Err(Error::ProgramExited { code, stderr, how })
            if !may_dislike_request(code, stderr.as_deref()) =>
        {
            return Err(Error::ProgramExited { code, stderr, how });
        }
        Err(error @ (Error::Lost(_) | Error::ProgramExited { .. })) => {
            context.set_first_request(FirstRequest::Initialize);
            if first_request == FirstRequest::Discover {
                return Err(error);
            }
            drop(link);
            context.cleanup.wait().await;
            start()?
        }
        Err(error) => return Err(error),
    };
    let session = initialize(&link, required).await;
    if session.is_err() && context.first_request() == FirstRequest::Initialize {
        context.set_first_request(FirstRequest::Discover);
    }
    session.map(|session| (link, session))
}

/// The client of a server over HTTP, and the headers of its requests.
#[derive(Clone)]
struct RemoteClient {
    client: AuthorizedClient,
    headers: HeaderMap,
}

async fn open_sse(
    remote: RemoteClient,
    required: Option<ProtocolVersion>,
    context: &ConnectContext,
    sink: &Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let link = UpstreamLink::Channel(
        sse::open(remote.client, remote.headers, Arc::clone(sink), context).await?,
    );
    initialize(&link, required)
        .await
        .map(|session| (link, session))
}

async fn open_http(
    remote: RemoteClient,
    required: Option<ProtocolVersion>,
    context: &ConnectContext,
    sink: &Arc<NotificationSink>,
) -> Result<(UpstreamLink, NegotiatedSession), Error> {
    let link = UpstreamLink::Http(http::HttpLink::new(
        remote.client,
        &remote.headers,
        Arc::clone(sink),
        context,
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
    context: &ConnectContext,
    credential: Option<Arc<Credential>>,
) -> Result<RemoteClient, Error> {
    let target = context.policy.authorize(&remote.url)?;
    let mut headers = HeaderMap::new();
    for (name, value) in &remote.headers {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(mut value)) = (name, HeaderValue::from_str(value.reveal())) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    if let RemoteAuth::Bearer(token) = &remote.auth {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let unusable = |_| Error::Refused("auth.token cannot be sent in a header".to_owned());
        let mut value = value.map_err(unusable)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let client = HttpClient::new(target, context.tls.clone());
    Ok(RemoteClient {
        client: AuthorizedClient::new(client, credential),
        headers,
    })
}

impl ConnectContext {
    fn first_request(&self) -> FirstRequest {
        let first = self.first_request.lock();
        *first.unwrap_or_else(PoisonError::into_inner)
    }

    fn set_first_request(&self, next: FirstRequest) {
        let first = self.first_request.lock();
        *first.unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl ActiveConnection {
    /// Spawns a background task of the connection.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Lowers the server's log level to what a client requested.
    pub(super) async fn ensure_log_level(&self, level: LoggingLevel) -> Result<(), Error> {
        if self.session.version.is_modern() || self.session.capabilities.get("logging").is_none() {
            return Ok(());
        }
        {
            let mut current = self
                .log_level
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if current.is_some_and(|it| it <= level) {
                return Ok(());
            }
            *current = Some(level);
        }
        handshake::set_log_level(&self.link, level).await
    }

    /// Adds a subscriber of `uri`; the first one subscribes at the server.
    pub(super) fn add_watcher(self: &Arc<Self>, uri: &str) {
        let mut counts = self
            .watcher_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(uri.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            self.update_subscription(uri, "resources/subscribe", counts.keys().cloned().collect());
        }
    }

    /// Removes a subscriber of `uri`; the last one unsubscribes at the server.
    pub(super) fn remove_watcher(self: &Arc<Self>, uri: &str) {
        let mut counts = self
            .watcher_counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counts.get_mut(uri) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            counts.remove(uri);
            self.update_subscription(
                uri,
                "resources/unsubscribe",
                counts.keys().cloned().collect(),
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
        let (connection, params) = (Arc::clone(self), json!({"uri": uri}));
        self.tasks.spawn(async move {
            // If the server refuses, it sends no updates.
            let _ = handshake::call_method(&connection.link, method, &params).await;
        });
    }
}
