//! The handle to a server's connection task: its status, commands and forwarded requests.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use maru_protocol::{ProtocolVersion, RpcError, code};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    Error, WithheldEntry,
    connect::ActiveConnection,
    credential::Credential,
    forward::{self, ForwardedRequest},
    lifecycle::ServerState,
    programs::{ProgramSlot, ProgramView},
    server::ServerName,
    server_log::{ServerLog, ServerLogEntry, epoch_millis},
    sign_in_request,
    user_connections::{SHARED_SUBJECT, UserConnections},
};
use maru_auth::{AccessRole, Principal};
use maru_observability::telemetry::spans;
use maru_tools::{EntryResponse, EntryResult, RequestContext};

/// How long a call waits for the sign-in that its caller says is done.
const SIGN_IN_WAIT: Duration = Duration::from_secs(15);
/// How often it looks whether another hub has stored the tokens.
const SIGN_IN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A cheap-to-clone handle to one server.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    pub(super) shared: Arc<SharedConnection>,
    pub(super) ended: CancellationToken,
}

/// The public status of a server.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// The state of its connection.
    pub state: ServerState,
    /// Why it is not connected, for the server's owner.
    pub cause: Option<String>,
    /// Why it is not connected, for callers, without the server's own text.
    pub(super) public_error: Option<String>,
    /// The negotiated protocol version.
    pub version: Option<ProtocolVersion>,
    /// The `serverInfo` that it reported.
    pub info: Value,
    /// The sorted names of its tools.
    pub tools: Arc<[String]>,
    /// Entries that it lists and maru does not publish.
    pub withheld: Arc<[WithheldEntry]>,
    /// When its state last changed, in Unix milliseconds.
    pub changed_at: u64,
    /// Automatic reconnection attempts since the connection was lost.
    pub attempts: u32,
    /// When the next automatic attempt starts, in Unix milliseconds.
    pub next_attempt_at: Option<u64>,
}

/// The part of a connection that its task shares with callers.
#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) name: ServerName,
    pub(super) active: watch::Sender<Option<Arc<ActiveConnection>>>,
    pub(super) status: watch::Sender<ServerStatus>,
    pub(super) commands: mpsc::Sender<ConnectionCommand>,
    pub(super) log: Arc<ServerLog>,
    pub(super) program_slot: ProgramSlot,
    /// Whether a call reconnects a lost server.
    pub(super) reconnects_on_demand: bool,
    /// The connections of callers with credentials of their own.
    pub(super) users: Option<UserConnections>,
    /// The credential that all callers share.
    pub(super) credential: Option<Arc<Credential>>,
    /// The page of the hub at which a person signs in.
    pub(super) sign_in_page: String,
    /// Notifies when the server's lists were read.
    pub(super) published: watch::Sender<()>,
}

#[derive(Debug)]
pub(super) enum ConnectionCommand {
    /// Connect; the sender is dropped when the attempt has ended.
    Connect(oneshot::Sender<()>),
    /// Connect because of a call, unless `mcp.reconnection.enabled` is false.
    ConnectOnDemand(oneshot::Sender<()>),
    Disconnect(oneshot::Sender<()>),
    Enable,
    Disable(oneshot::Sender<()>),
    /// Publish the entries again because the accepted definitions have changed.
    Republish(oneshot::Sender<()>),
    /// A caller found this connection to be lost.
    ReportLost(Arc<ActiveConnection>, Error),
    /// End the task because the server is removed.
    Shutdown,
}

impl ServerHandle {
    /// Returns the current status.
    pub fn status(&self) -> ServerStatus {
        self.shared.status.borrow().clone()
    }

    /// Returns the server's stderr and connection events, oldest first.
    pub fn log(&self) -> Vec<ServerLogEntry> {
        self.shared.log.lines()
    }

    /// Adds an event to the server's log.
    pub(super) fn log_event(&self, text: &str) {
        self.shared.log.record_event(text);
    }

    /// Returns the program that runs for the server, if any.
    pub fn program(&self) -> Option<ProgramView> {
        let slot = self.shared.program_slot.lock();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|it| it.view())
    }

    /// Returns the recent messages to and from the server, oldest first.
    pub fn messages(&self) -> Vec<ServerLogEntry> {
        self.shared.log.messages()
    }

    /// Connects unless connected, waits for the attempt, and returns whether it
    /// succeeded.
    pub async fn connect(&self) -> bool {
        self.shared.connect().await
    }

    /// Makes one attempt to connect a server that is disconnected or failed, unless
    /// `mcp.reconnection.enabled` is false.
    pub(super) async fn reconnect_if_down(&self) {
        use ServerState::{Disconnected, Failed, NeedsSignIn, Waiting};
        let state = self.shared.status.borrow().state;
        if matches!(state, Disconnected | Failed | NeedsSignIn | Waiting { .. }) {
            self.shared.connect_on_demand().await;
        }
    }

    /// Returns why the server cannot be called; `None` unless it has failed.
    pub(super) fn failure(&self) -> Option<String> {
        let status = self.status();
        let has_failed = status.state.as_str() == ServerState::Failed.as_str()
            || status.state == ServerState::NeedsSignIn;
        has_failed.then(|| {
            let reason = status.public_error.unwrap_or_default();
            let (name, advice) = (&self.shared.name, self.shared.reconnect_advice());
            format!(
                "server {name} is {}: {reason}{advice}",
                status.state.as_str()
            )
        })
    }

    /// Enables or disables the server.
    pub(super) async fn set_enabled(&self, enabled: bool) {
        if enabled {
            self.enable().await;
        } else {
            self.disable().await;
        }
    }

    /// Requests a connection without waiting for it.
    pub fn request_connect(&self) {
        let (reply, _nobody_waits) = oneshot::channel();
        // If the queue is full, the task is busy with earlier commands.
        let _ = self
            .shared
            .commands
            .try_send(ConnectionCommand::Connect(reply));
    }

    /// Closes the connection and stops reconnecting.
    pub async fn disconnect(&self) {
        self.shared
            .send_command(ConnectionCommand::Disconnect)
            .await;
    }

    /// Enables the server without connecting it.
    pub async fn enable(&self) {
        // The task lives as long as the server is registered.
        let _ = self.shared.commands.send(ConnectionCommand::Enable).await;
    }

    /// Closes the connection of a credential that was signed out.
    pub(super) async fn sign_out(&self, subject: &str) {
        if subject == SHARED_SUBJECT {
            self.disconnect().await;
        } else if let Some(users) = &self.shared.users {
            users.close(subject);
        }
    }

    /// Disables the server and closes its connection.
    pub async fn disable(&self) {
        self.shared.send_command(ConnectionCommand::Disable).await;
    }

    /// Publishes the listed entries again with the definitions accepted now.
    pub(super) async fn republish(&self) {
        self.shared.send_command(ConnectionCommand::Republish).await;
    }

    /// Ends the connection and its task, and waits for their cleanup.
    pub async fn shutdown(&self) {
        let _ = self.shared.commands.send(ConnectionCommand::Shutdown).await;
        self.ended.cancelled().await;
    }
}

impl ServerStatus {
    pub(super) fn new(state: ServerState) -> Self {
        Self {
            state,
            cause: None,
            public_error: None,
            version: None,
            info: Value::Null,
            tools: Arc::default(),
            withheld: Arc::default(),
            changed_at: epoch_millis(),
            attempts: 0,
            next_attempt_at: None,
        }
    }
}

impl SharedConnection {
    pub(super) fn name(&self) -> &ServerName {
        &self.name
    }

    pub(super) fn active_connection(&self) -> Option<Arc<ActiveConnection>> {
        self.active.borrow().clone()
    }

    async fn connect(&self) -> bool {
        self.send_command(ConnectionCommand::Connect).await;
        self.status.borrow().state == ServerState::Connected
    }

    pub(super) async fn connect_on_demand(&self) {
        self.send_command(ConnectionCommand::ConnectOnDemand).await;
    }

    async fn send_command(&self, command: impl FnOnce(oneshot::Sender<()>) -> ConnectionCommand) {
        let (reply, done) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_ok() {
            // The task drops the sender when the command is done.
            let _ = done.await;
        }
    }

    /// Forwards a request, connecting first if the server is down. An unreachable server
    /// is reported as a failed tool result, not as a protocol error.
    pub(super) async fn forward(
        &self,
        request: ForwardedRequest<'_>,
        context: &RequestContext,
        principal: &Principal,
    ) -> Result<EntryResponse, RpcError> {
        let is_call = request.method == "tools/call";
        let span = spans::upstream_request(&request.method, request.key, self.name.as_str());
        let answer = sign_in_request::SignInAnswer::of(context);
        let context = &*answer.remaining_context(context);
        let subject = self.subject_of(principal);
        if answer.is_accepted() {
            Box::pin(self.wait_for_sign_in(subject)).await;
        }
        let forwarded = self.forward_as(subject, &request, context);
        match forwarded.instrument(span.clone()).await {
            Ok(answer) => {
                if answer.is_err() {
                    spans::record_error(&span, "rpc_error");
                }
                answer
            }
            Err(Error::SignInRequired(reason) | Error::ScopeRequired(reason)) => {
                spans::record_error(&span, "sign_in_required");
                let page = (self.users.is_some() || principal.role() == AccessRole::Admin)
                    .then_some(self.sign_in_page.as_str());
                let needed = sign_in_request::SignInRequest {
                    server: self.name.as_str(),
                    reason: &reason,
                    page,
                    is_call,
                };
                needed.respond(context, answer)
            }
            Err(error) => {
                spans::record_error(&span, "unavailable");
                let (name, reason) = (self.name.as_str(), error.to_string());
                if is_call {
                    Ok(EntryResponse::Complete(EntryResult::server_unavailable(
                        name, &reason,
                    )))
                } else {
                    let message = format!("server {name} did not answer: {reason}");
                    Err(RpcError::new(code::INTERNAL_ERROR, message))
                }
            }
        }
    }

    /// Returns whose credential a caller uses.
    fn subject_of<'a>(&self, principal: &'a Principal) -> &'a str {
        if self.users.is_some() {
            principal.name()
        } else {
            SHARED_SUBJECT
        }
    }

    /// Waits a while for the sign-in that a caller says is done.
    async fn wait_for_sign_in(&self, subject: &str) {
        let credential = match &self.users {
            Some(users) => users.credential(subject),
            None => self.credential.clone(),
        };
        let Some(credential) = credential else {
            return;
        };
        let mut changes = credential.changes();
        let deadline = Instant::now() + SIGN_IN_WAIT;
        while !credential.is_signed_in().await && Instant::now() < deadline {
            // Another hub of the same store may receive the redirect.
            let _changed = time::timeout(SIGN_IN_POLL_INTERVAL, changes.changed()).await;
        }
    }

    /// Forwards a request with the credential of `subject`.
    async fn forward_as(
        &self,
        subject: &str,
        request: &ForwardedRequest<'_>,
        context: &RequestContext,
    ) -> Result<Result<EntryResponse, RpcError>, Error> {
        let Some(users) = &self.users else {
            return self.forward_with_retry(request, context).await;
        };
        let connection = Box::pin(users.connection(subject)).await?;
        let answer = forward::forward_request(&connection, request, context).await;
        match answer {
            Err(error @ (Error::SessionExpired | Error::Unreachable(_))) => {
                users.close(subject);
                let connection = Box::pin(users.connection(subject))
                    .await
                    .map_err(|_| error)?;
                forward::forward_request(&connection, request, context).await
            }
            Err(error @ (Error::SignInRequired(_) | Error::Lost(_))) => {
                users.close(subject);
                Err(error)
            }
            answer => answer,
        }
    }

    async fn forward_with_retry(
        &self,
        request: &ForwardedRequest<'_>,
        context: &RequestContext,
    ) -> Result<Result<EntryResponse, RpcError>, Error> {
        let connection = match self.active_connection() {
            Some(connection) => connection,
            None => Box::pin(self.ensure_connected(None)).await?,
        };
        match forward::forward_request(&connection, request, context).await {
            // The server did not process the request, so it is safe to retry.
            Err(error @ (Error::SessionExpired | Error::Unreachable(_))) => {
                // Boxed, because this rare case would enlarge the future of every call.
                Box::pin(self.retry_after_reconnect(&connection, error, request, context)).await
            }
            Err(error @ Error::SignInRequired(_)) => {
                self.report_lost(connection, error.clone()).await;
                Err(error)
            }
            result => result,
        }
    }

    async fn retry_after_reconnect(
        &self,
        dead: &Arc<ActiveConnection>,
        error: Error,
        request: &ForwardedRequest<'_>,
        context: &RequestContext,
    ) -> Result<Result<EntryResponse, RpcError>, Error> {
        self.report_lost(Arc::clone(dead), error).await;
        let connection = self.ensure_connected(Some(dead)).await?;
        forward::forward_request(&connection, request, context).await
    }

    /// Returns the active connection, after one attempt to open it if the only one is the
    /// one just reported lost.
    async fn ensure_connected(
        &self,
        dead: Option<&Arc<ActiveConnection>>,
    ) -> Result<Arc<ActiveConnection>, Error> {
        let is_dead =
            |connection: &Arc<ActiveConnection>| dead.is_some_and(|it| Arc::ptr_eq(it, connection));
        if let Some(connection) = self.active_connection().filter(|it| !is_dead(it)) {
            return Ok(connection);
        }
        // Commands are processed in order, so the task has seen the report before this
        // one.
        self.connect_on_demand().await;
        self.active_connection().ok_or_else(|| {
            let status = self.status.borrow();
            if status.state == ServerState::NeedsSignIn {
                let reason = status.public_error.clone().unwrap_or_default();
                return Error::SignInRequired(reason);
            }
            let cause = status
                .public_error
                .clone()
                .unwrap_or_else(|| "it is not connected".to_owned());
            Error::Unreachable(format!("{cause}{}", self.reconnect_advice()))
        })
    }

    /// Returns a hint for a server that only a person reconnects.
    pub(super) fn reconnect_advice(&self) -> String {
        if self.reconnects_on_demand {
            return String::new();
        }
        let name = &self.name;
        format!(
            "; mcp.reconnection.enabled is false, so connect it with: maru servers connect {name}"
        )
    }

    async fn report_lost(&self, connection: Arc<ActiveConnection>, error: Error) {
        // For HTTP a broken response says nothing about the server, so only failures to
        // connect are reported. The task is gone if the server was just removed.
        let _ = self
            .commands
            .send(ConnectionCommand::ReportLost(connection, error))
            .await;
    }
}
