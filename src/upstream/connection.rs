//! One task per server. It owns the connection; everyone else holds a [`Handle`].

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
    lifecycle::{Action, Event, State, jitter},
    listen::listen,
    log::now,
    news::News,
    offers::{Listed, list, tools},
    open::{Live, open},
    programs::ProgramSlot,
    server::Server,
    settings::Settings,
    shared::{Command, Handle, Shared, Status},
    traces::Traces,
};
const COMMANDS: usize = 64;
/// A server may change its lists many times at once; they are read once.
const SETTLE: Duration = Duration::from_millis(100);
/// The lists of one server are read again this often at most.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

struct Connection {
    server: Server,
    settings: Settings,
    shared: Arc<Shared>,
    commands: mpsc::Receiver<Command>,
    line: Line,
    /// Those who wait for the attempt in progress.
    waiting: Vec<oneshot::Sender<()>>,
}

/// What the task waits for besides commands.
enum Line {
    Down,
    Opening(BoxFuture<'static, Result<(Arc<Live>, Listed), Error>>),
    Up(Up),
    Waiting(Pin<Box<Sleep>>),
}

struct Up {
    live: Arc<Live>,
    /// What it listed last.
    listed: Listed,
    /// When the lists were last asked for.
    listed_at: Instant,
    /// The lists, being read again.
    refreshing: Option<BoxFuture<'static, Result<Listed, Error>>>,
    /// The lists have changed while they were being read.
    is_outdated: bool,
}

enum Heard {
    Opened(Arc<Live>, Listed),
    Listed(Listed),
    Changed,
    Lost(Error),
    Elapsed,
}

/// Starts the task that owns the connection to `server`.
pub(super) fn spawn(server: Server, settings: &Settings) -> Handle {
    let (commands, inbox) = mpsc::channel(COMMANDS);
    let state = if server.enabled {
        State::Pending
    } else {
        State::Disabled
    };
    let shared = Arc::new(Shared {
        name: server.name.clone(),
        live: watch::Sender::default(),
        status: watch::Sender::new(Status::new(state)),
        commands,
        log: Arc::default(),
        program: ProgramSlot::default(),
    });
    let mut settings = settings.clone();
    settings.means.traces = Traces::new();
    settings.means.log = Arc::clone(&shared.log);
    settings.means.program = Arc::clone(&shared.program);
    let ended = CancellationToken::new();
    let (tasks, done) = (settings.means.tasks.clone(), ended.clone().drop_guard());
    let connection = Connection {
        server,
        settings,
        shared: Arc::clone(&shared),
        commands: inbox,
        line: Line::Down,
        waiting: Vec::new(),
    };
    let stop = tasks.stop();
    tasks.spawn(async move {
        connection.run(stop).await;
        drop(done);
    });
    Handle { shared, ended }
}

impl Connection {
    /// Awaits only in this `select!`; handlers below are plain functions.
    async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                command = self.commands.recv() => match command {
                    Some(Command::End) | None => break,
                    Some(command) => self.on_command(command),
                },
                heard = self.line.next() => self.on_heard(heard),
            }
        }
        self.hang_up(Line::Down);
        self.waiting.clear();
        self.settings.catalog.withdraw(self.server.name.as_str());
        self.settings.means.traces.gone().await;
    }

    fn on_command(&mut self, command: Command) {
        match command {
            // A session that was lost with its server is being made anew already.
            Command::ConnectOnDemand(_reply)
                if !self.settings.backoff.is_on_demand()
                    && !matches!(self.state(), State::Connecting { .. }) => {}
            Command::Connect(reply) | Command::ConnectOnDemand(reply) => {
                self.advance(Event::Connect, None);
                if let State::Connecting { .. } = self.state() {
                    self.waiting.push(reply);
                }
            }
            Command::Disconnect(_reply) => {
                self.advance(Event::Disconnect, None);
                self.settings.catalog.withdraw(self.server.name.as_str());
            }
            Command::Disable(_reply) => {
                self.advance(Event::Disable, None);
                self.settings.catalog.withdraw(self.server.name.as_str());
            }
            Command::Enable => self.advance(Event::Enable, None),
            Command::Republish(_reply) => self.publish(),
            Command::Lost(live, why) => {
                // Late news of an old connection does not touch the new one.
                if matches!(&self.line, Line::Up(up) if Arc::ptr_eq(&up.live, &live)) {
                    self.on_heard(Heard::Lost(why));
                }
            }
            Command::End => (),
        }
    }

    fn on_heard(&mut self, heard: Heard) {
        match heard {
            Heard::Opened(live, listed) => {
                info!(server.name = %self.server.name, version = %live.session.version, "connected");
                self.line = Line::Up(Up {
                    live: Arc::clone(&live),
                    listed,
                    listed_at: Instant::now(),
                    refreshing: None,
                    is_outdated: false,
                });
                if live.session.version.is_modern() {
                    live.spawn(listen(Arc::clone(&live)));
                }
                self.shared.live.send_replace(Some(live));
                self.publish();
                self.advance(Event::Opened, None);
            }
            Heard::Listed(listed) => {
                let mut is_outdated = false;
                if let Line::Up(up) = &mut self.line {
                    up.refreshing = None;
                    up.listed = listed;
                    is_outdated = mem::take(&mut up.is_outdated);
                }
                self.publish();
                if is_outdated {
                    self.refresh();
                }
            }
            Heard::Changed => match &mut self.line {
                // Started anew at every change, it would never end.
                Line::Up(up) if up.refreshing.is_some() => up.is_outdated = true,
                _ => self.refresh(),
            },
            Heard::Lost(why) => {
                warn!(server.name = %self.server.name, "server {} is lost: {why}", self.server.name);
                let event = match why {
                    Error::Refused(_) => Event::Refused,
                    _ => Event::Lost,
                };
                // A session that the server forgot is opened anew at once.
                let over = why == Error::SessionOver;
                self.advance(event, Some(&why));
                if over {
                    self.advance(Event::Connect, None);
                }
            }
            Heard::Elapsed => self.advance(Event::Elapsed, None),
        }
    }

    /// Reads the lists again, once things have settled.
    fn refresh(&mut self) {
        let shared = Arc::clone(&self.shared);
        let limit = self.settings.connect_timeout;
        let (pins, trust) = (Arc::clone(&self.settings.pins), self.server.trust);
        let hub_id = Arc::clone(self.settings.hub_id());
        if let Line::Up(up) = &mut self.line {
            let live = Arc::clone(&up.live);
            // Reading and publishing long lists takes time from everybody.
            let earliest = up.listed_at + REFRESH_INTERVAL;
            up.listed_at = earliest.max(Instant::now() + SETTLE);
            let start = up.listed_at;
            let work = async move {
                time::sleep_until(start).await;
                let late = |_| Error::Lost("the server did not list its tools in time".to_owned());
                let listed = time::timeout(limit, list(&shared, &live, &hub_id)).await;
                let listed = listed.map_err(late)??;
                pins.learn(shared.name.as_str(), trust, &listed).await;
                Ok(listed)
            };
            up.refreshing = Some(work.boxed());
        }
    }

    /// Offers what was listed, as far as it was accepted.
    fn publish(&self) {
        let Line::Up(up) = &self.line else {
            return;
        };
        let name = self.server.name.as_str();
        let (offers, withheld) = self.settings.pins.sort(name, &up.listed);
        let (tools, withheld) = (tools(&offers).into(), withheld.into());
        self.settings.catalog.publish(name, &offers);
        let live = self.shared.live();
        self.shared.status.send_modify(|status| {
            status.version = live.as_ref().map(|it| it.session.version);
            status.info = live.map_or(Value::Null, |it| it.session.info.clone());
            status.tools = tools;
            status.withheld = withheld;
        });
        self.settings.changes.send_replace(());
    }

    fn state(&self) -> State {
        self.shared.status.borrow().state
    }

    fn advance(&mut self, event: Event, cause: Option<&Error>) {
        let (state, action) = self.state().on(event, &self.settings.backoff);
        let mut next_attempt_at = None;
        let mut wait = None;
        match action {
            Action::Nothing => (),
            Action::Open => self.open(),
            Action::Sleep(delay) => {
                let delay = jitter(delay, chance());
                wait = Some(delay);
                let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                next_attempt_at = Some(now().saturating_add(millis));
                self.hang_up(Line::Waiting(Box::pin(time::sleep(delay))));
            }
            Action::Close => self.hang_up(Line::Down),
        }
        self.note(state, wait, cause);
        self.shared.status.send_modify(|status| {
            status.attempts = state.attempts(status.attempts);
            if status.state != state {
                status.changed_at = now();
                status.next_attempt_at = next_attempt_at;
            }
            status.state = state;
            match (cause, state) {
                (Some(why), _) => {
                    status.cause = Some(why.for_owner());
                    status.told = Some(why.to_string());
                }
                (
                    None,
                    State::Connected | State::Disconnected | State::Disabled | State::Pending,
                ) => (status.cause, status.told) = (None, None),
                (None, _) => (),
            }
            if matches!(state, State::Disconnected | State::Disabled) {
                status.tools = Arc::default();
                status.withheld = Arc::default();
            }
        });
        self.settings.changes.send_replace(());
        // They read the status when they are told, so it comes first.
        if !matches!(state, State::Connecting { .. }) {
            self.waiting.clear();
        }
    }

    /// Leaves a line in the server's log, and one in ours of what is done about a
    /// server that is lost.
    fn note(&self, state: State, wait: Option<Duration>, cause: Option<&Error>) {
        let log = &self.shared.log;
        if let Some(why) = cause {
            log.event(&why.for_owner());
        }
        if self.state() == state {
            return;
        }
        let (name, most) = (&self.server.name, self.settings.backoff.attempts());
        let text = match state {
            State::Pending => "registered".to_owned(),
            State::Connecting { attempt: 0 } => "connecting".to_owned(),
            State::Connecting { attempt } => format!("connecting: attempt {attempt} of {most}"),
            State::Connected => "connected".to_owned(),
            State::Waiting { attempt } => {
                let wait = wait.unwrap_or_default().as_secs_f64();
                warn!(server.name = %name, attempt, "server {name}: attempt {attempt} of {most} follows in {wait:.1} s");
                format!("attempt {attempt} of {most} follows in {wait:.1} s")
            }
            State::Failed => {
                let made = self.shared.status.borrow().attempts;
                warn!(server.name = %name, attempts = made, "gave up on server {name} after {made} attempts to connect it again");
                format!("gave up after {made} attempts to connect it again")
            }
            State::Disconnected => "disconnected".to_owned(),
            State::Disabled => "switched off".to_owned(),
        };
        log.event(&text);
    }

    fn open(&mut self) {
        let (server, settings) = (self.server.clone(), self.settings.clone());
        let shared = Arc::clone(&self.shared);
        let limit = settings.connect_timeout;
        let work = async move {
            // Never two connections to one server.
            settings.means.traces.gone().await;
            let allowed = settings.rules.check_start(&server);
            allowed.map_err(|why| Error::Refused(format!("not allowed to start: {why}")))?;
            let _room = settings.room.acquire().await;
            let opening = async {
                let live = open(
                    &server,
                    &settings.means,
                    News::new(Arc::clone(&settings.catalog)),
                )
                .await?;
                let listed = list(&shared, &live, settings.hub_id()).await?;
                let name = server.name.as_str();
                settings.pins.learn(name, server.trust, &listed).await;
                Ok((live, listed))
            };
            let late =
                |_| Error::Unreachable(format!("the server did not connect within {limit:?}"));
            time::timeout(limit, opening).await.map_err(late)?
        };
        self.line = Line::Opening(work.boxed());
    }

    /// Leaves the line.
    fn hang_up(&mut self, line: Line) {
        if let Line::Up(up) = mem::replace(&mut self.line, line) {
            up.live.link.close();
        }
        self.shared.live.send_replace(None);
    }
}

impl Line {
    /// Cancel-safe: dropping the future loses nothing.
    async fn next(&mut self) -> Heard {
        match self {
            Self::Down => pending().await,
            Self::Opening(opening) => match opening.await {
                Ok((live, listed)) => Heard::Opened(live, listed),
                Err(why) => Heard::Lost(why),
            },
            Self::Up(up) => up.next().await,
            Self::Waiting(sleep) => {
                sleep.await;
                Heard::Elapsed
            }
        }
    }
}

impl Up {
    async fn next(&mut self) -> Heard {
        let refreshing = async {
            match &mut self.refreshing {
                Some(refreshing) => refreshing.await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.live.link.lost().cancelled() => Heard::Lost(self.live.link.why()),
            listed = refreshing => match listed {
                Ok(listed) => Heard::Listed(listed),
                Err(why) => Heard::Lost(why),
            },
            () = self.live.news.changed() => Heard::Changed,
        }
    }
}

fn chance() -> u32 {
    let mut bytes = [0; 4];
    // Without chance all wait equally long, which is no harm.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
