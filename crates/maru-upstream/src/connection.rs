//! The task that owns the connection to one server; everyone else holds a
//! [`ServerHandle`].

use std::{future::pending, mem, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, Instant, Sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Error,
    cleanup_tracker::CleanupTracker,
    connect::{ActiveConnection, open_connection},
    handle::{ConnectionCommand, ServerHandle, ServerStatus, SharedConnection},
    lifecycle::{LifecycleAction, LifecycleEvent, ServerState, jitter},
    listing::{Refreshed, fetch_listing, tool_names},
    notifications::NotificationSink,
    programs::ProgramSlot,
    server::RegisteredServer,
    server_log::epoch_millis,
    settings::ConnectionSettings,
    subscriptions::listen_for_notifications,
    user_connections::{SHARED_SUBJECT, UserConnections},
};

const COMMAND_QUEUE_CAPACITY: usize = 64;
/// Several `list_changed` notifications within this time cause one refresh.
const REFRESH_DEBOUNCE: Duration = Duration::from_millis(100);
/// The shortest time between two refreshes of one server's lists.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(1);

struct ConnectionTask {
    server: RegisteredServer,
    settings: ConnectionSettings,
    shared: Arc<SharedConnection>,
    commands: mpsc::Receiver<ConnectionCommand>,
    connection_state: ConnectionState,
    /// Callers that wait for the connection attempt in progress.
    connect_waiters: Vec<oneshot::Sender<()>>,
}

/// The connection state, and with it the event that the task waits for.
enum ConnectionState {
    Disconnected,
    Connecting(BoxFuture<'static, Result<(Arc<ActiveConnection>, Refreshed), Error>>),
    Connected(ConnectedState),
    Backoff(Pin<Box<Sleep>>),
}

struct ConnectedState {
    active: Arc<ActiveConnection>,
    /// The entries that the server listed last.
    listing: Refreshed,
    /// When the last refresh started or will start.
    refreshed_at: Instant,
    /// The refresh in progress.
    refreshing: Option<BoxFuture<'static, Result<Refreshed, Error>>>,
    /// The lists have changed since the refresh in progress began.
    is_outdated: bool,
}

enum ConnectionEvent {
    Opened(Arc<ActiveConnection>, Refreshed),
    Listed(Refreshed),
    ListChanged,
    Lost(Error),
    RetryDue,
}

/// Starts the task that owns the connection to `server`.
pub(super) fn spawn_connection(
    server: RegisteredServer,
    settings: &ConnectionSettings,
) -> ServerHandle {
    let (commands, inbox) = mpsc::channel(COMMAND_QUEUE_CAPACITY);
    let state = if server.enabled {
        ServerState::Pending
    } else {
        ServerState::Disabled
    };
    let users = UserConnections::of(&server, settings);
    let shared = Arc::new(SharedConnection {
        users,
        credential: settings.credentials().of(&server, SHARED_SUBJECT),
        sign_in_page: settings
            .credentials()
            .services()
            .options()
            .start_url(server.name.as_str()),
        name: server.name.clone(),
        published: watch::Sender::default(),
        active: watch::Sender::default(),
        status: watch::Sender::new(ServerStatus::new(state)),
        commands,
        log: Arc::default(),
        program_slot: ProgramSlot::default(),
        reconnects_on_demand: settings.reconnect_policy.reconnects_on_demand(),
    });
    let mut settings = settings.clone();
    settings.context.cleanup = CleanupTracker::new();
    settings.context.log = Arc::clone(&shared.log);
    settings.context.program_slot = Arc::clone(&shared.program_slot);
    settings.context.first_request = Arc::default();
    let ended = CancellationToken::new();
    let (tasks, done) = (settings.context.tasks.clone(), ended.clone().drop_guard());
    let connection = ConnectionTask {
        server,
        settings,
        shared: Arc::clone(&shared),
        commands: inbox,
        connection_state: ConnectionState::Disconnected,
        connect_waiters: Vec::new(),
    };
    let stop = tasks.stop_token();
    tasks.spawn(async move {
        connection.run(stop).await;
        drop(done);
    });
    ServerHandle { shared, ended }
}

impl ConnectionTask {
    /// Awaits only in this `select!`; handlers below are plain functions.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(ConnectionCommand::Shutdown) | None => break,
                    Some(command) => self.on_command(command),
                },
                event = self.connection_state.next_event() => self.on_event(event),
            }
        }
        self.disconnect(ConnectionState::Disconnected);
        self.connect_waiters.clear();
        self.settings.catalog.withdraw(self.server.name.as_str());
        self.settings.context.cleanup.wait().await;
    }

    fn on_command(&mut self, command: ConnectionCommand) {
        match command {
            // An attempt in progress still counts; otherwise lost servers stay lost.
            ConnectionCommand::ConnectOnDemand(_reply)
                if !self.settings.reconnect_policy.reconnects_on_demand()
                    && !matches!(self.server_state(), ServerState::Connecting { .. }) => {}
            ConnectionCommand::Connect(reply) | ConnectionCommand::ConnectOnDemand(reply) => {
                self.advance(LifecycleEvent::Connect, None);
                if let ServerState::Connecting { .. } = self.server_state() {
                    self.connect_waiters.push(reply);
                }
            }
            ConnectionCommand::Disconnect(_reply) => {
                self.advance(LifecycleEvent::Disconnect, None);
                self.settings.catalog.withdraw(self.server.name.as_str());
            }
            ConnectionCommand::Disable(_reply) => {
                self.advance(LifecycleEvent::Disable, None);
                self.settings.catalog.withdraw(self.server.name.as_str());
            }
            ConnectionCommand::Enable => self.advance(LifecycleEvent::Enable, None),
            ConnectionCommand::Republish(_reply) => self.publish(),
            ConnectionCommand::ReportLost(connection, error) => {
                // A late report about an old connection does not affect the new one.
                if matches!(&self.connection_state, ConnectionState::Connected(connected) if Arc::ptr_eq(&connected.active, &connection))
                {
                    self.on_event(ConnectionEvent::Lost(error));
                }
            }
            ConnectionCommand::Shutdown => (),
        }
    }

    fn on_event(&mut self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Opened(connection, listed) => {
                info!(server.name = %self.server.name, version = %connection.session.version, "connected");
                self.connection_state = ConnectionState::Connected(ConnectedState {
                    active: Arc::clone(&connection),
                    listing: listed,
                    refreshed_at: Instant::now(),
                    refreshing: None,
                    is_outdated: false,
                });
                if connection.session.version.is_modern() {
                    connection.spawn(listen_for_notifications(Arc::clone(&connection)));
                }
                self.shared.active.send_replace(Some(connection));
                self.publish();
                self.advance(LifecycleEvent::Opened, None);
            }
            ConnectionEvent::Listed(listed) => {
                let mut is_outdated = false;
                if let ConnectionState::Connected(connected) = &mut self.connection_state {
                    connected.refreshing = None;
                    connected.listing = listed;
                    is_outdated = mem::take(&mut connected.is_outdated);
                }
                self.publish();
                if is_outdated {
                    self.refresh();
                }
            }
            ConnectionEvent::ListChanged => match &mut self.connection_state {
                // A refresh that restarted on every change might never finish.
                ConnectionState::Connected(connected) if connected.refreshing.is_some() => {
                    connected.is_outdated = true;
                }
                _ => self.refresh(),
            },
            ConnectionEvent::Lost(error) => {
                self.log_lost(&error);
                let lifecycle_event = match &error {
                    Error::SignInRequired(_) => LifecycleEvent::SignInRequired,
                    error if error.is_final() => LifecycleEvent::Refused,
                    _ => LifecycleEvent::Lost,
                };
                // An expired session is reopened without a delay.
                let is_expired = error == Error::SessionExpired;
                self.advance(lifecycle_event, Some(&error));
                if is_expired {
                    self.advance(LifecycleEvent::Connect, None);
                }
            }
            ConnectionEvent::RetryDue => self.advance(LifecycleEvent::RetryDue, None),
        }
    }

    /// Schedules a refresh of the server's lists after the debounce time.
    fn refresh(&mut self) {
        let shared = Arc::clone(&self.shared);
        let limit = self.settings.connect_timeout;
        let (pins, trust) = (Arc::clone(&self.settings.pins), self.server.trust);
        let hub_id = Arc::clone(self.settings.hub_id());
        if let ConnectionState::Connected(connected) = &mut self.connection_state {
            let connection = Arc::clone(&connected.active);
            // Reading and publishing long lists costs time for all clients, so refreshes
            // are rate-limited.
            let earliest = connected.refreshed_at + MIN_REFRESH_INTERVAL;
            connected.refreshed_at = earliest.max(Instant::now() + REFRESH_DEBOUNCE);
            let start = connected.refreshed_at;
            let work = async move {
                time::sleep_until(start).await;
                let late = |_| Error::Lost("the server did not list its tools in time".to_owned());
                let listed =
                    time::timeout(limit, fetch_listing(&shared, &connection, &hub_id)).await;
                let listed = listed.map_err(late)??;
                pins.accept_new(shared.name.as_str(), trust, &listed).await;
                Ok(listed)
            };
            connected.refreshing = Some(work.boxed());
        }
    }

    /// Publishes the listed entries whose definitions are accepted.
    fn publish(&self) {
        let ConnectionState::Connected(connected) = &self.connection_state else {
            return;
        };
        let name = self.server.name.as_str();
        let (offers, withheld) = self.settings.pins.partition(name, &connected.listing);
        let (tools, withheld) = (tool_names(&offers).into(), withheld.into());
        self.settings.catalog.publish(name, &offers);
        let connection = self.shared.active_connection();
        self.shared.status.send_modify(|status| {
            status.version = connection.as_ref().map(|it| it.session.version);
            status.info = connection.map_or(Value::Null, |it| it.session.info.clone());
            status.tools = tools;
            status.withheld = withheld;
        });
        self.shared.published.send_replace(());
        self.settings.changes.send_replace(());
    }

    fn server_state(&self) -> ServerState {
        self.shared.status.borrow().state
    }

    fn advance(&mut self, event: LifecycleEvent, cause: Option<&Error>) {
        let (state, action) = self
            .server_state()
            .transition(event, &self.settings.reconnect_policy);
        let mut next_attempt_at = None;
        let mut wait = None;
        match action {
            LifecycleAction::Nothing => (),
            LifecycleAction::Open => self.begin_connecting(),
            LifecycleAction::Sleep(delay) => {
                let delay = jitter(delay, random_u32());
                wait = Some(delay);
                let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                next_attempt_at = Some(epoch_millis().saturating_add(millis));
                self.disconnect(ConnectionState::Backoff(Box::pin(time::sleep(delay))));
            }
            LifecycleAction::Close => self.disconnect(ConnectionState::Disconnected),
        }
        self.log_transition(state, wait, cause);
        self.shared.status.send_modify(|status| {
            status.attempts = state.attempts_made(status.attempts);
            if status.state != state {
                status.changed_at = epoch_millis();
                status.next_attempt_at = next_attempt_at;
            }
            status.state = state;
            match (cause, state) {
                (Some(error), _) => {
                    status.cause = Some(error.owner_message());
                    status.public_error = Some(error.to_string());
                }
                (
                    None,
                    ServerState::Connected
                    | ServerState::Disconnected
                    | ServerState::Disabled
                    | ServerState::Pending,
                ) => (status.cause, status.public_error) = (None, None),
                (None, _) => (),
            }
            if matches!(state, ServerState::Disconnected | ServerState::Disabled) {
                status.tools = Arc::default();
                status.withheld = Arc::default();
            }
        });
        self.settings.changes.send_replace(());
        // Waiters read the status when they wake up, so it is updated first.
        if !matches!(state, ServerState::Connecting { .. }) {
            self.connect_waiters.clear();
        }
    }

    /// Records a state change in the server's log, and in the hub's log how a lost server
    /// is handled.
    fn log_transition(&self, state: ServerState, wait: Option<Duration>, cause: Option<&Error>) {
        let log = &self.shared.log;
        if let Some(error) = cause {
            log.record_event(&error.owner_message());
        }
        if self.server_state() == state {
            return;
        }
        let (name, max_attempts) = (
            &self.server.name,
            self.settings.reconnect_policy.max_attempts(),
        );
        let text = match state {
            ServerState::Pending => "registered".to_owned(),
            ServerState::Connecting { attempt: 0 } => "connecting".to_owned(),
            ServerState::Connecting { attempt } => {
                format!("connecting: attempt {attempt} of {max_attempts}")
            }
            ServerState::Connected => "connected".to_owned(),
            ServerState::Waiting { attempt } => {
                let wait = wait.unwrap_or_default().as_secs_f64();
                warn!(server.name = %name, attempt, "server {name}: attempt {attempt} of {max_attempts} follows in {wait:.1} s");
                format!("attempt {attempt} of {max_attempts} follows in {wait:.1} s")
            }
            ServerState::Failed => self.log_failed(cause),
            ServerState::NeedsSignIn => {
                format!("waits for a sign-in: maru servers login {name}")
            }
            ServerState::Disconnected => "disconnected".to_owned(),
            ServerState::Disabled => "switched off".to_owned(),
        };
        log.record_event(&text);
    }

    fn log_lost(&self, error: &Error) {
        let name = &self.server.name;
        let error = self.server.transport.redact(&error.owner_message());
        if let ServerState::Connecting { .. } = self.server_state() {
            warn!(server.name = %name, "server {name} could not be connected: {error}");
        } else {
            warn!(server.name = %name, "server {name} is lost: {error}");
        }
    }

    /// Logs why no further attempt is made, and returns the text.
    fn log_failed(&self, cause: Option<&Error>) -> String {
        let (name, made) = (&self.server.name, self.shared.status.borrow().attempts);
        let again = format!("connect it with: maru servers connect {name}");
        let text = if cause.is_some_and(Error::is_final) {
            format!("not retried, because a retry cannot succeed; fix the cause, then {again}")
        } else if !self.settings.reconnect_policy.enabled {
            format!("not retried, because mcp.reconnection.enabled is false; {again}")
        } else {
            let attempts = if made == 1 { "attempt" } else { "attempts" };
            warn!(server.name = %name, attempts = made, "gave up on server {name} after {made} {attempts} to connect it again");
            return format!("gave up after {made} {attempts} to connect it again; {again}");
        };
        warn!(server.name = %name, "server {name} is {text}");
        text
    }

    fn begin_connecting(&mut self) {
        let (server, settings) = (self.server.clone(), self.settings.clone());
        let shared = Arc::clone(&self.shared);
        let limit = settings.connect_timeout;
        let work = async move {
            // There must never be two connections to one server.
            settings.context.cleanup.wait().await;
            let allowed = settings.rules.check_start(&server);
            allowed.map_err(|error| Error::Refused(format!("not allowed to start: {error}")))?;
            let _permit = settings.connect_permits.acquire().await;
            let opening = async {
                let connection = open_connection(
                    &server,
                    &settings.context,
                    NotificationSink::new(server.name.as_str(), Arc::clone(&settings.catalog)),
                    settings.credentials().of(&server, SHARED_SUBJECT),
                )
                .await?;
                let listed = fetch_listing(&shared, &connection, settings.hub_id()).await?;
                let name = server.name.as_str();
                settings.pins.accept_new(name, server.trust, &listed).await;
                Ok((connection, listed))
            };
            let late =
                |_| Error::Unreachable(format!("the server did not connect within {limit:?}"));
            time::timeout(limit, opening).await.map_err(late)?
        };
        self.connection_state = ConnectionState::Connecting(work.boxed());
    }

    /// Closes the connection and moves to `state`.
    fn disconnect(&mut self, state: ConnectionState) {
        if let ConnectionState::Connected(connected) =
            mem::replace(&mut self.connection_state, state)
        {
            connected.active.link.close();
        }
        if let Some(users) = &self.shared.users {
            users.close_all();
        }
        self.shared.active.send_replace(None);
    }
}

impl ConnectionState {
    /// Waits for the next event. Cancel-safe: dropping the future loses nothing.
    async fn next_event(&mut self) -> ConnectionEvent {
        match self {
            Self::Disconnected => pending().await,
            Self::Connecting(opening) => match opening.await {
                Ok((connection, listed)) => ConnectionEvent::Opened(connection, listed),
                Err(error) => ConnectionEvent::Lost(error),
            },
            Self::Connected(connected) => connected.next_event().await,
            Self::Backoff(sleep) => {
                sleep.await;
                ConnectionEvent::RetryDue
            }
        }
    }
}

impl ConnectedState {
    async fn next_event(&mut self) -> ConnectionEvent {
        let refreshing = async {
            match &mut self.refreshing {
                Some(refreshing) => refreshing.await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.active.link.lost_token().cancelled() => ConnectionEvent::Lost(self.active.link.close_reason()),
            listed = refreshing => match listed {
                Ok(listed) => ConnectionEvent::Listed(listed),
                Err(error) => ConnectionEvent::Lost(error),
            },
            () = self.active.notification_sink.list_changed() => ConnectionEvent::ListChanged,
        }
    }
}

fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    // Without randomness all servers wait equally long, which does no harm.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
