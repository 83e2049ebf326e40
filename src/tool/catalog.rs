//! The one catalog: what there is, and the one way to ask for it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

use super::{
    caller::{Caller, Scope},
    name,
    offer::{Action, Answer, Ask, Input, OWN_SERVER, Offer, Watching},
    output::{self, ResultSizes},
    peer::Peer,
    quota::Quota,
    seen::{Parts, Seen, may_use},
    switches::Switches,
    unknown::{no_resource, unknown},
    view::View,
};
use crate::{
    access::Principal,
    journal::{Asked, Journal, Outcome},
    mcp::{LogLevel, RpcError, code},
    tasks::within,
};

/// Everything on offer, shared by every door, the agent and the command line.
#[derive(Debug)]
pub struct Catalog {
    current: watch::Sender<Arc<Snapshot>>,
    /// Held while the next snapshot is built from the last.
    building: Mutex<()>,
    updated: broadcast::Sender<Arc<str>>,
    limits: RwLock<CallLimits>,
    /// Tells this hub from every other.
    hub_id: Arc<str>,
    waker: OnceLock<Waker>,
    journal: Arc<Journal>,
    quota: OnceLock<Arc<Quota>>,
}

/// Connects a server by its name; true if its tools are on offer now.
pub struct Waker(pub Box<dyn Fn(String) -> BoxFuture<'static, bool> + Send + Sync>);

impl fmt::Debug for Waker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Waker")
    }
}

/// How many changed addresses wait for the slowest listener.
const UPDATES: usize = 1024;

/// What is on offer at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    all: View,
    servers: BTreeMap<Arc<str>, Arc<View>>,
    parts: Parts,
    /// The same, with what is switched off.
    full: BTreeMap<Arc<str>, Arc<View>>,
    switches: Arc<Switches>,
}

/// What a call may take.
#[derive(Clone, Copy, Debug)]
struct CallLimits {
    timeout: Duration,
    sizes: ResultSizes,
}

impl Catalog {
    /// An empty catalog.
    pub fn new(timeout: Duration, sizes: ResultSizes) -> Self {
        Self {
            current: watch::Sender::default(),
            building: Mutex::default(),
            updated: broadcast::Sender::new(UPDATES),
            limits: RwLock::new(CallLimits { timeout, sizes }),
            hub_id: uuid::Uuid::new_v4().to_string().into(),
            waker: OnceLock::new(),
            journal: Arc::default(),
            quota: OnceLock::new(),
        }
    }

    /// Another catalog of the same hub.
    #[must_use]
    pub fn of_hub(mut self, id: &Arc<str>) -> Self {
        self.hub_id = Arc::clone(id);
        self
    }

    /// The id that tells this hub from every other, new at every start.
    pub fn hub_id(&self) -> &Arc<str> {
        &self.hub_id
    }

    /// Bounds calls that begin from now on.
    pub fn set_limits(&self, timeout: Duration, sizes: ResultSizes) {
        let mut limits = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        *limits = CallLimits { timeout, sizes };
    }

    fn limits(&self) -> CallLimits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces everything that `server` offers.
    pub fn publish(&self, server: &str, offers: &[Arc<Offer>]) {
        let view = View::build(offers, |offer| &offer.key);
        self.change(|servers| {
            servers.insert(server.into(), Arc::new(view));
        });
    }

    /// Takes `server` and everything it offers away.
    pub fn withdraw(&self, server: &str) {
        self.change(|servers| {
            servers.remove(server);
        });
    }

    fn change(&self, edit: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<View>>)) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let mut servers = now.full.clone();
        edit(&mut servers);
        let next = Snapshot::build(servers, Arc::clone(&now.switches));
        self.current.send_replace(Arc::new(next));
    }

    /// Says which tools are switched off: nobody sees them, nobody calls them.
    pub fn switch(&self, switches: Switches) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let full = self.snapshot().full.clone();
        let next = Snapshot::build(full, Arc::new(switches));
        self.current.send_replace(Arc::new(next));
    }

    /// What was called.
    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// What is on offer now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.borrow())
    }

    /// What is on offer, now and as it changes.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.current.subscribe()
    }

    /// Says that the resource at `uri` has changed.
    pub fn touch(&self, uri: &str) {
        // Nobody may be listening.
        let _ = self.updated.send(uri.into());
    }

    /// Addresses of resources as they change.
    pub fn updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.updated.subscribe()
    }

    /// Lets `waker` bring back the server of a tool that is not on offer now.
    pub fn set_waker(&self, waker: Waker) {
        // Set once, when everything is built.
        let _ = self.waker.set(waker);
    }

    /// Has calls counted against daily limits.
    pub fn set_quota(&self, quota: Arc<Quota>) {
        // Set once, when everything is built.
        let _ = self.quota.set(quota);
    }

    async fn wake(&self, principal: &Principal, name: &str) -> bool {
        let server = name::server_of(name).filter(|it| principal.may_reach(it));
        match (server, self.waker.get()) {
            (Some(server), Some(waker)) => (waker.0)(server.to_owned()).await,
            _ => false,
        }
    }

    /// Calls a tool. A call that fails is an answer that says so; an error is
    /// a question that could not be put.
    pub async fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Arc<Input>,
        peer: Arc<Peer>,
    ) -> Result<Answer, RpcError> {
        let mut asked = Asked {
            tool: Arc::clone(&NOBODY),
            server: Arc::clone(&NOBODY),
            principal: caller.principal.shared_name(),
            client: peer.client.clone(),
            from: caller.from,
            request: peer.request,
            arguments: arguments.shared_text(),
        };
        let found = match self.offered(caller, name) {
            // On its own: it would make the future of every call larger.
            Ok(None) => Box::pin(self.find(caller, name)).await,
            Ok(Some(offer)) => Ok(offer),
            Err(why) => Err(why),
        };
        let offer = match found {
            Ok(offer) => offer,
            Err(why) => {
                asked.tool = name.chars().take(100).collect::<String>().into();
                self.journal
                    .begin(asked)
                    .finish(Outcome::Refused, &why.message);
                return Err(why);
            }
        };
        asked.tool = Arc::clone(&offer.public);
        asked.server = Arc::clone(&offer.server);
        let mut started = self.journal.begin(asked);
        if let Err(why) = self.admit(caller, &offer, &arguments).await {
            let answer = output::failure(&why);
            started.finish(Outcome::Refused, &answer);
            return Ok(Answer::Complete(answer));
        }
        let log = peer.log_level.map(|_| (Arc::clone(&peer), Instant::now()));
        started.passed_on();
        let answer = self
            .ask(caller, &offer, Action::Call(arguments), peer)
            .await;
        started.answered();
        let answer = match answer {
            Ok(answer) => answer,
            Err(late) => {
                let answer = output::failure(&format!("{name} {late}"));
                started.finish(Outcome::TimedOut, &answer);
                return Ok(Answer::Complete(answer));
            }
        };
        if let Some((log, started)) = log {
            let took = started.elapsed().as_secs_f64() * 1000.0;
            let data = json!({"tool": name, "milliseconds": took, "answered": answer.is_ok()});
            Box::pin(log.log(LogLevel::Debug, "maru.tool", &data)).await;
        }
        match answer {
            Ok(Answer::Complete(result)) => {
                let result = self.limits().sizes.hold(result);
                started.finish(outcome(&result, &offer.server), &result);
                Ok(Answer::Complete(result))
            }
            Ok(asked @ Answer::InputRequired(_)) => {
                started.forget();
                Ok(asked)
            }
            Err(why) => {
                started.finish(Outcome::Refused, &why.message);
                Err(why)
            }
        }
    }

    /// Whether the call may be made as it is; says why not.
    async fn admit(&self, caller: &Caller, offer: &Offer, arguments: &Input) -> Result<(), String> {
        offer
            .check(arguments)
            .map_err(|why| format!("wrong arguments: {why}"))?;
        match self.quota.get() {
            Some(quota) => {
                let user = caller.principal.name();
                let counted = quota.count(user, offer.public_key()).await;
                counted.map_err(|it| it.why)
            }
            None => Ok(()),
        }
    }

    /// The tool of this name, if it is on offer.
    fn offered(&self, caller: &Caller, name: &str) -> Result<Option<Arc<Offer>>, RpcError> {
        caller.check_role()?;
        Ok(self.snapshot().tool(caller, name)?.cloned())
    }

    /// A tool that is not on offer, after one attempt to bring back its server.
    async fn find(&self, caller: &Caller, name: &str) -> Result<Arc<Offer>, RpcError> {
        let woken = self.wake(&caller.principal, name).await;
        let offer = woken.then(|| self.offered(caller, name)).transpose()?;
        match offer.flatten() {
            Some(offer) => Ok(offer),
            None => Err(unknown(&self.snapshot().seen(caller)?.tools, "tool", name)),
        }
    }

    /// Renders a prompt.
    pub async fn get_prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Arc<Input>,
        peer: Arc<Peer>,
    ) -> Result<Answer, RpcError> {
        caller.check_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.seen(caller)?;
        let offer = view
            .prompts
            .get(name)
            .ok_or_else(|| unknown(&view.prompts, "prompt", name))?;
        self.ask_or_fail(caller, offer, Action::Get(arguments), peer)
            .await
    }

    /// Reads a resource.
    pub async fn read_resource(
        &self,
        caller: &Caller,
        uri: &str,
        peer: Arc<Peer>,
    ) -> Result<Answer, RpcError> {
        caller.check_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.seen(caller)?;
        let offer = view.resource(uri).ok_or_else(|| no_resource(uri))?;
        self.ask_or_fail(caller, offer, Action::Read(uri.to_owned()), peer)
            .await
    }

    /// Suggests values, as `action` asks, for an argument of the prompt or template `key`.
    pub async fn complete(
        &self,
        caller: &Caller,
        key: &str,
        action: Action,
    ) -> Result<Answer, RpcError> {
        caller.check_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.seen(caller)?;
        let offer = view.prompts.get(key).or_else(|| view.templates.get(key));
        let offer = offer.ok_or_else(|| RpcError::params("no such prompt or resource template"))?;
        self.ask_or_fail(caller, offer, action, Arc::default())
            .await
    }

    async fn ask_or_fail(
        &self,
        caller: &Caller,
        offer: &Offer,
        action: Action,
        peer: Arc<Peer>,
    ) -> Result<Answer, RpcError> {
        let answer = self.ask(caller, offer, action, peer).await;
        answer
            .unwrap_or_else(|late| Err(RpcError::new(code::INTERNAL, format!("the answer {late}"))))
    }

    /// The outer error says that the deadline passed.
    async fn ask(
        &self,
        caller: &Caller,
        offer: &Offer,
        action: Action,
        peer: Arc<Peer>,
    ) -> Result<Result<Answer, RpcError>, String> {
        // A server that waits is told; our own tools do not wait.
        if let Some(why) = peer
            .inputs
            .failed
            .as_ref()
            .filter(|_| &*offer.server == OWN_SERVER)
        {
            return Ok(Err(RpcError::new(code::INTERNAL, why.clone())));
        }
        let answer = (offer.handler)(Ask {
            action,
            peer,
            principal: caller.principal.clone(),
        });
        let timeout = self.limits().timeout;
        let answer = within(timeout, answer).await;
        answer.ok_or_else(|| format!("did not answer within {timeout:?}"))
    }
}

impl Snapshot {
    fn build(full: BTreeMap<Arc<str>, Arc<View>>, switches: Arc<Switches>) -> Self {
        let offered = |(name, view): (&Arc<str>, &Arc<View>)| {
            (Arc::clone(name), switches.offered(name, view))
        };
        let servers: BTreeMap<_, _> = full.iter().map(offered).collect();
        let offers: Vec<Arc<Offer>> = servers
            .values()
            .flat_map(|view| view.offers())
            .cloned()
            .collect();
        Self {
            all: View::build(&offers, Offer::public_key),
            servers,
            parts: Parts::default(),
            full,
            switches,
        }
    }

    /// Every tool, also those that are switched off, and whether it is on.
    pub fn every_tool(&self) -> impl Iterator<Item = (&Arc<Offer>, bool)> {
        let tools = self.full.values().flat_map(|view| view.tools.offers());
        tools.map(|it| (it, !self.switches.is_off(&it.server, &it.key)))
    }

    /// Which tools are switched off.
    pub fn switches(&self) -> &Switches {
        &self.switches
    }

    /// The part that `scope` names.
    pub fn view(&self, scope: &Scope) -> Result<&View, RpcError> {
        match scope {
            Scope::All => Ok(&self.all),
            Scope::Server(name) => {
                self.servers.get(name).map(Arc::as_ref).ok_or_else(|| {
                    RpcError::params(format!("no server named {name:?} is connected"))
                })
            }
        }
    }

    /// What `caller` sees of the part they look at.
    pub fn seen(&self, caller: &Caller) -> Result<Seen<'_>, RpcError> {
        let whole = self.view(&caller.scope)?;
        Ok(self.parts.of(caller, whole))
    }

    /// A tool by the name it is listed under, or as `server.tool`, if it is the
    /// caller's to call.
    fn tool(&self, caller: &Caller, name: &str) -> Result<Option<&Arc<Offer>>, RpcError> {
        let qualified = || {
            let (server, tool) = name.split_once('.')?;
            self.servers.get(server)?.tools.get(tool)
        };
        let found = self.view(&caller.scope)?.tools.get(name);
        let found = found.or_else(|| match caller.scope {
            Scope::All => qualified(),
            Scope::Server(_) => None,
        });
        Ok(found.filter(|it| may_use(&caller.principal, it)))
    }

    /// Begins to watch `uri` for someone; `None` if it cannot be read by them.
    pub fn watch_resource(&self, caller: &Caller, uri: &str) -> Option<Watching> {
        caller.check_role().ok()?;
        let view = self.seen(caller).ok()?;
        let offer = view.resource(uri)?;
        let watching = offer.watcher.as_ref().map(|watch| watch(uri));
        Some(watching.unwrap_or_else(|| Box::new(())))
    }

    /// Whether there is a server of this name.
    pub fn has_server(&self, name: &str) -> bool {
        self.servers.contains_key(name)
    }
}

/// Where nobody was asked.
static NOBODY: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

fn outcome(result: &str, server: &str) -> Outcome {
    match output::is_error(result) {
        false => Outcome::Ok,
        true if output::is_unanswered(result, server) => Outcome::Refused,
        true => Outcome::Failed,
    }
}
