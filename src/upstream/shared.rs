//! What everyone else holds of a connection: its state, and the way to ask.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Error, Withheld,
    forward::{self, Question},
    lifecycle::State,
    log::{Entry, Log, now},
    open::Live,
    programs::{ProgramSlot, ProgramView},
    server::ServerName,
};
use crate::{
    mcp::{RpcError, Version, code},
    tool::{Answer, Peer, output},
};

/// Cheap-to-clone way to one server.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) ended: CancellationToken,
}

/// What everyone may know of a server.
#[derive(Clone, Debug)]
pub struct Status {
    /// Where its connection stands.
    pub state: State,
    /// Why it is not connected, for its owner.
    pub cause: Option<String>,
    /// The same for callers.
    pub(super) told: Option<String>,
    /// The protocol version spoken with it.
    pub version: Option<Version>,
    /// What it says about itself.
    pub info: Value,
    /// Names of its tools, sorted.
    pub tools: Arc<[String]>,
    /// What it lists and maru does not offer.
    pub withheld: Arc<[Withheld]>,
    /// When its state last changed, in milliseconds since 1970.
    pub changed_at: u64,
    /// Attempts of our own to connect it again since it was lost.
    pub attempts: u32,
    /// When it is tried again, if it is.
    pub next_attempt_at: Option<u64>,
}

/// The part of a connection that callers see.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: ServerName,
    pub(super) live: watch::Sender<Option<Arc<Live>>>,
    pub(super) status: watch::Sender<Status>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) log: Arc<Log>,
    pub(super) program: ProgramSlot,
}

#[derive(Debug)]
pub(super) enum Command {
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
    Lost(Arc<Live>, Error),
    /// The server is removed.
    End,
}

impl Handle {
    /// What is known of the server now.
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// What the server said and what happened, oldest first.
    pub fn log(&self) -> Vec<Entry> {
        self.shared.log.lines()
    }

    /// Leaves a line in the server's log.
    pub(super) fn note(&self, text: &str) {
        self.shared.log.event(text);
    }

    /// The program that runs for the server, if one does.
    pub fn program(&self) -> Option<ProgramView> {
        let slot = self.shared.program.lock();
        let slot = slot.unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|it| it.view())
    }

    /// Messages to and from it, oldest first.
    pub fn messages(&self) -> Vec<Entry> {
        self.shared.log.messages()
    }

    /// Connects, unless it is connected; waits for how that goes.
    pub async fn connect(&self) -> bool {
        self.shared.connect().await
    }

    /// Connects for a call; false where lost servers are not connected again.
    pub(super) async fn connect_on_demand(&self) -> bool {
        self.shared.connect_on_demand().await
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
    pub fn connect_soon(&self) {
        let (reply, _nobody_waits) = oneshot::channel();
        // Full, then much is going on there already.
        let _ = self.shared.commands.try_send(Command::Connect(reply));
    }

    /// Closes the connection and stops trying.
    pub async fn disconnect(&self) {
        self.shared.tell(Command::Disconnect).await;
    }

    /// Switches the server on; it is not connected by that.
    pub async fn enable(&self) {
        // The task lives as long as the server is registered.
        let _ = self.shared.commands.send(Command::Enable).await;
    }

    /// Switches the server off.
    pub async fn disable(&self) {
        self.shared.tell(Command::Disable).await;
    }

    /// Offers what the server listed anew, as far as it is accepted now.
    pub(super) async fn republish(&self) {
        self.shared.tell(Command::Republish).await;
    }

    /// Ends the connection and its task; waits until nothing is left of it.
    pub async fn end(&self) {
        let _ = self.shared.commands.send(Command::End).await;
        self.ended.cancelled().await;
    }
}

impl Status {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            cause: None,
            told: None,
            version: None,
            info: Value::Null,
            tools: Arc::default(),
            withheld: Arc::default(),
            changed_at: now(),
            attempts: 0,
            next_attempt_at: None,
        }
    }
}

impl Shared {
    pub(super) fn name(&self) -> &ServerName {
        &self.name
    }

    pub(super) fn live(&self) -> Option<Arc<Live>> {
        self.live.borrow().clone()
    }

    async fn connect(&self) -> bool {
        self.tell(Command::Connect).await;
        self.status.borrow().state == State::Connected
    }

    async fn connect_on_demand(&self) -> bool {
        self.tell(Command::ConnectOnDemand).await;
        self.status.borrow().state == State::Connected
    }

    async fn tell(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) {
        let (reply, answer) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_ok() {
            // Dropped unanswered, it is as much over as when answered.
            let _ = answer.await;
        }
    }

    /// Asks the server, connecting first if it is down. A server that cannot be
    /// asked is a failed tool, not a wrong request.
    pub(super) async fn ask(
        &self,
        question: Question<'_>,
        peer: &Peer,
    ) -> Result<Answer, RpcError> {
        let is_call = question.method == "tools/call";
        match self.ask_once_or_twice(&question, peer).await {
            Ok(answer) => answer,
            Err(why) => {
                let (name, why) = (self.name.as_str(), why.to_string());
                match is_call {
                    true => Ok(Answer::Complete(output::unanswered(name, &why))),
                    false => {
                        let why = format!("server {name} did not answer: {why}");
                        Err(RpcError::new(code::INTERNAL, why))
                    }
                }
            }
        }
    }

    async fn ask_once_or_twice(
        &self,
        question: &Question<'_>,
        peer: &Peer,
    ) -> Result<Result<Answer, RpcError>, Error> {
        let live = match self.live() {
            Some(live) => live,
            None => Box::pin(self.ensure(None)).await?,
        };
        match forward::ask(&live, question, peer).await {
            // Nothing was done, so it can be done again.
            Err(why @ (Error::SessionOver | Error::Unreachable(_))) => {
                // On its own: it would make the future of every call larger.
                Box::pin(self.ask_again(&live, why, question, peer)).await
            }
            done => done,
        }
    }

    async fn ask_again(
        &self,
        dead: &Arc<Live>,
        why: Error,
        question: &Question<'_>,
        peer: &Peer,
    ) -> Result<Result<Answer, RpcError>, Error> {
        self.report(Arc::clone(dead), why).await;
        let live = self.ensure(Some(dead)).await?;
        forward::ask(&live, question, peer).await
    }

    /// The connection, after one attempt to make it if there is none but the
    /// one that was just reported dead.
    async fn ensure(&self, dead: Option<&Arc<Live>>) -> Result<Arc<Live>, Error> {
        let is_dead = |live: &Arc<Live>| dead.is_some_and(|it| Arc::ptr_eq(it, live));
        if let Some(live) = self.live().filter(|it| !is_dead(it)) {
            return Ok(live);
        }
        // Commands are taken in order, so the report was heard before this.
        self.connect_on_demand().await;
        self.live().ok_or_else(|| {
            let status = self.status.borrow();
            let cause = status
                .told
                .clone()
                .unwrap_or_else(|| "it is not connected".to_owned());
            Error::Unreachable(cause)
        })
    }

    async fn report(&self, live: Arc<Live>, why: Error) {
        // An answer that breaks off says nothing about a server of single requests,
        // but a connection that cannot be made does.
        let _ = self.commands.send(Command::Lost(live, why)).await;
    }
}
