//! What everyone else holds of a connection: its state, and the way to ask.

use std::sync::{Arc, PoisonError};

use maru_protocol::{ProtocolVersion, RpcError, code};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{
    Error, WithheldEntry,
    connect::ActiveConnection,
    forward::{self, ForwardedRequest},
    lifecycle::ServerState,
    programs::{ProgramSlot, ProgramView},
    server::ServerName,
    server_log::{ServerLog, ServerLogEntry, epoch_millis},
};
use crate::{
    observability::telemetry::spans,
    tools::{EntryResponse, EntryResult, RequestContext},
};

/// Cheap-to-clone way to one server.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    pub(super) shared: Arc<SharedConnection>,
    pub(super) ended: CancellationToken,
}

/// What everyone may know of a server.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// Where its connection stands.
    pub state: ServerState,
    /// Why it is not connected, for its owner.
    pub cause: Option<String>,
    /// The same for callers.
    pub(super) public_error: Option<String>,
    /// The protocol version spoken with it.
    pub version: Option<ProtocolVersion>,
    /// What it says about itself.
    pub info: Value,
    /// Names of its tools, sorted.
    pub tools: Arc<[String]>,
    /// What it lists and maru does not offer.
    pub withheld: Arc<[WithheldEntry]>,
    /// When its state last changed, in milliseconds since 1970.
    pub changed_at: u64,
    /// Attempts of our own to connect it again since it was lost.
    pub attempts: u32,
    /// When it is tried again, if it is.
    pub next_attempt_at: Option<u64>,
}

/// The part of a connection that callers see.
#[derive(Debug)]
pub(super) struct SharedConnection {
    pub(super) name: ServerName,
    pub(super) active: watch::Sender<Option<Arc<ActiveConnection>>>,
    pub(super) status: watch::Sender<ServerStatus>,
    pub(super) commands: mpsc::Sender<ConnectionCommand>,
    pub(super) log: Arc<ServerLog>,
    pub(super) program_slot: ProgramSlot,
    /// Whether a call connects the server when it is lost.
    pub(super) reconnects_on_demand: bool,
}

#[derive(Debug)]
pub(super) enum ConnectionCommand {
    /// Connect; tells how it went.
    Connect(oneshot::Sender<()>),
    /// The same because of a call, unless lost servers stay lost.
    ConnectOnDemand(oneshot::Sender<()>),
    Disconnect(oneshot::Sender<()>),
    Enable,
    Disable(oneshot::Sender<()>),
    /// What may be offered has changed; tells when it is.
    Republish(oneshot::Sender<()>),
    /// Someone found this connection dead.
    ReportLost(Arc<ActiveConnection>, Error),
    /// The server is removed.
    Shutdown,
}

impl ServerHandle {
    /// What is known of the server now.
    pub fn status(&self) -> ServerStatus {
        self.shared.status.borrow().clone()
    }

    /// What the server said and what happened, oldest first.
    pub fn log(&self) -> Vec<ServerLogEntry> {
        self.shared.log.lines()
    }

    /// Leaves a line in the server's log.
    pub(super) fn log_event(&self, text: &str) {
        self.shared.log.record_event(text);
    }

    /// The program that runs for the server, if one does.
    pub fn program(&self) -> Option<ProgramView> {
        let slot = self.shared.program_slot.lock();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|it| it.view())
    }

    /// Messages to and from it, oldest first.
    pub fn messages(&self) -> Vec<ServerLogEntry> {
        self.shared.log.messages()
    }

    /// Connects, unless it is connected; waits for how that goes.
    pub async fn connect(&self) -> bool {
        self.shared.connect().await
    }

    /// Connects a server that is closed or has failed, unless lost servers stay lost.
    pub(super) async fn reconnect_if_down(&self) {
        use ServerState::{Disconnected, Failed, Waiting};
        let state = self.shared.status.borrow().state;
        if matches!(state, Disconnected | Failed | Waiting { .. }) {
            self.shared.connect_on_demand().await;
        }
    }

    /// Why the server cannot be called, for those who call; `None` unless it failed.
    pub(super) fn failure(&self) -> Option<String> {
        let status = self.status();
        let has_failed = status.state.as_str() == ServerState::Failed.as_str();
        has_failed.then(|| {
            let why = status.public_error.unwrap_or_default();
            let (name, advice) = (&self.shared.name, self.shared.reconnect_advice());
            format!("server {name} is FAILED: {why}{advice}")
        })
    }

    /// Switches the server on or off.
    pub(super) async fn set_enabled(&self, enabled: bool) {
        if enabled {
            self.enable().await;
        } else {
            self.disable().await;
        }
    }

    /// Asks for a connection without waiting for it.
    pub fn request_connect(&self) {
        let (reply, _nobody_waits) = oneshot::channel();
        // Full, then much is going on there already.
        let _ = self
            .shared
            .commands
            .try_send(ConnectionCommand::Connect(reply));
    }

    /// Closes the connection and stops trying.
    pub async fn disconnect(&self) {
        self.shared
            .send_command(ConnectionCommand::Disconnect)
            .await;
    }

    /// Switches the server on; it is not connected by that.
    pub async fn enable(&self) {
        // The task lives as long as the server is registered.
        let _ = self.shared.commands.send(ConnectionCommand::Enable).await;
    }

    /// Switches the server off.
    pub async fn disable(&self) {
        self.shared.send_command(ConnectionCommand::Disable).await;
    }

    /// Offers what the server listed anew, as far as it is accepted now.
    pub(super) async fn republish(&self) {
        self.shared.send_command(ConnectionCommand::Republish).await;
    }

    /// Ends the connection and its task; waits until nothing is left of it.
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

    async fn connect_on_demand(&self) {
        self.send_command(ConnectionCommand::ConnectOnDemand).await;
    }

    async fn send_command(&self, command: impl FnOnce(oneshot::Sender<()>) -> ConnectionCommand) {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_ok() {
            // Dropped unanswered, it is as much over as when answered.
            let _ = answer.await;
        }
    }

    /// Asks the server, connecting first if it is down. A server that cannot be
    /// asked is a failed tool, not a wrong request.
    pub(super) async fn forward(
        &self,
        question: ForwardedRequest<'_>,
        peer: &RequestContext,
    ) -> Result<EntryResponse, RpcError> {
        let is_call = question.method == "tools/call";
        let span = spans::upstream_request(question.method, question.key, self.name.as_str());
        let forwarded = self.forward_with_retry(&question, peer);
        match forwarded.instrument(span.clone()).await {
            Ok(answer) => {
                if answer.is_err() {
                    spans::record_error(&span, "rpc_error");
                }
                answer
            }
            Err(why) => {
                spans::record_error(&span, "unavailable");
                let (name, why) = (self.name.as_str(), why.to_string());
                if is_call {
                    Ok(EntryResponse::Complete(EntryResult::server_unavailable(
                        name, &why,
                    )))
                } else {
                    let why = format!("server {name} did not answer: {why}");
                    Err(RpcError::new(code::INTERNAL_ERROR, why))
                }
            }
        }
    }

    async fn forward_with_retry(
        &self,
        question: &ForwardedRequest<'_>,
        peer: &RequestContext,
    ) -> Result<Result<EntryResponse, RpcError>, Error> {
        let live = match self.active_connection() {
            Some(live) => live,
            None => Box::pin(self.ensure_connected(None)).await?,
        };
        match forward::forward_request(&live, question, peer).await {
            // Nothing was done, so it can be done again.
            Err(why @ (Error::SessionExpired | Error::Unreachable(_))) => {
                // On its own: it would make the future of every call larger.
                Box::pin(self.retry_after_reconnect(&live, why, question, peer)).await
            }
            done => done,
        }
    }

    async fn retry_after_reconnect(
        &self,
        dead: &Arc<ActiveConnection>,
        why: Error,
        question: &ForwardedRequest<'_>,
        peer: &RequestContext,
    ) -> Result<Result<EntryResponse, RpcError>, Error> {
        self.report_lost(Arc::clone(dead), why).await;
        let live = self.ensure_connected(Some(dead)).await?;
        forward::forward_request(&live, question, peer).await
    }

    /// The connection, after one attempt to make it if there is none but the
    /// one that was just reported dead.
    async fn ensure_connected(
        &self,
        dead: Option<&Arc<ActiveConnection>>,
    ) -> Result<Arc<ActiveConnection>, Error> {
        let is_dead = |live: &Arc<ActiveConnection>| dead.is_some_and(|it| Arc::ptr_eq(it, live));
        if let Some(live) = self.active_connection().filter(|it| !is_dead(it)) {
            return Ok(live);
        }
        // Commands are taken in order, so the report was heard before this.
        self.connect_on_demand().await;
        self.active_connection().ok_or_else(|| {
            let status = self.status.borrow();
            let cause = status
                .public_error
                .clone()
                .unwrap_or_else(|| "it is not connected".to_owned());
            Error::Unreachable(format!("{cause}{}", self.reconnect_advice()))
        })
    }

    /// What to do about a server that nothing but a person connects again.
    pub(super) fn reconnect_advice(&self) -> String {
        if self.reconnects_on_demand {
            return String::new();
        }
        let name = &self.name;
        format!(
            "; mcp.reconnection.enabled is false, so connect it with: maru servers connect {name}"
        )
    }

    async fn report_lost(&self, live: Arc<ActiveConnection>, why: Error) {
        // An answer that breaks off says nothing about a server of single requests,
        // but a connection that cannot be made does.
        let _ = self
            .commands
            .send(ConnectionCommand::ReportLost(live, why))
            .await;
    }
}
