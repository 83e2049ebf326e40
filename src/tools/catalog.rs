//! The one catalog: what there is, and the one way to ask for it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use maru_protocol::{LoggingLevel, RpcError, code};
use maru_runtime::tasks::with_timeout;
use serde_json::json;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tracing::Instrument as _;

use super::{
    caller::Caller,
    context::RequestContext,
    disabled_tools::DisabledTools,
    entry::{
        CallArguments, CatalogEntry, EntryAction, EntryRequest, EntryResponse, OWN_SERVER_NAME,
    },
    name,
    not_found::{entry_not_found, resource_not_found},
    quota::CallQuota,
    result::{EntryResult, FailureFormat, ResultLimits, ResultStatus},
    snapshot::CatalogSnapshot,
    view::CatalogView,
};
use crate::{
    auth::Principal,
    observability::journal::{CallJournal, CallRequest, ToolCallOutcome},
};

/// Everything available, shared by every endpoint, the agent and the command line.
#[derive(Debug)]
pub struct Catalog {
    current: watch::Sender<Arc<CatalogSnapshot>>,
    /// Held while the next snapshot is built from the last.
    building: Mutex<()>,
    resource_updates: broadcast::Sender<Arc<str>>,
    limits: RwLock<CallLimits>,
    /// Tells this hub from every other.
    hub_id: Arc<str>,
    connector: OnceLock<ServerConnector>,
    journal: Arc<CallJournal>,
    quota: OnceLock<Arc<CallQuota>>,
}

/// Connects a server by its name; true if its tools are available now. The error says
/// why the server failed.
pub struct ServerConnector(
    pub Box<dyn Fn(String) -> BoxFuture<'static, Result<bool, String>> + Send + Sync>,
);

impl fmt::Debug for ServerConnector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("ServerConnector")
    }
}

/// How many changed addresses wait for the slowest listener.
const MAX_PENDING_UPDATES: usize = 1024;

/// What a call may take.
#[derive(Clone, Copy, Debug)]
struct CallLimits {
    timeout: Duration,
    result_limits: ResultLimits,
}

impl Catalog {
    /// An empty catalog.
    pub fn new(timeout: Duration, sizes: ResultLimits) -> Self {
        Self {
            current: watch::Sender::default(),
            building: Mutex::default(),
            resource_updates: broadcast::Sender::new(MAX_PENDING_UPDATES),
            limits: RwLock::new(CallLimits {
                timeout,
                result_limits: sizes,
            }),
            hub_id: uuid::Uuid::new_v4().to_string().into(),
            connector: OnceLock::new(),
            journal: Arc::default(),
            quota: OnceLock::new(),
        }
    }

    /// Another catalog of the same hub.
    #[must_use]
    pub fn with_hub_id(mut self, id: &Arc<str>) -> Self {
        self.hub_id = Arc::clone(id);
        self
    }

    /// The id that tells this hub from every other, new at every start.
    pub fn hub_id(&self) -> &Arc<str> {
        &self.hub_id
    }

    /// Bounds calls that begin from now on.
    pub fn set_limits(&self, timeout: Duration, sizes: ResultLimits) {
        let mut limits = self.limits.write().unwrap_or_else(PoisonError::into_inner);
        *limits = CallLimits {
            timeout,
            result_limits: sizes,
        };
    }

    fn limits(&self) -> CallLimits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces everything that `server` offers.
    pub fn publish(&self, server: &str, offers: &[Arc<CatalogEntry>]) {
        let view = CatalogView::build(offers, |offer| &offer.key);
        self.rebuild(|servers| {
            servers.insert(server.into(), Arc::new(view));
        });
    }

    /// Replaces everything that `server` offers and sets the switches of some of its
    /// tools, in one snapshot.
    pub fn publish_with_switches<'a>(
        &self,
        server: &str,
        entries: &[Arc<CatalogEntry>],
        switches: impl Iterator<Item = (&'a str, bool)>,
    ) {
        let view = CatalogView::build(entries, |entry| &entry.key);
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let mut servers = now.all_servers.clone();
        servers.insert(server.into(), Arc::new(view));
        let mut disabled = now.disabled_tools().clone();
        for (tool, on) in switches {
            disabled.set_enabled(server, tool, on);
        }
        let next = CatalogSnapshot::build(servers, Arc::new(disabled));
        self.current.send_replace(Arc::new(next));
    }

    /// Switches tools, each given by its server and its name there, in one snapshot.
    pub fn set_tools_enabled(&self, tools: &[(String, String)], on: bool) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let mut disabled = now.disabled_tools().clone();
        for (server, tool) in tools {
            disabled.set_enabled(server, tool, on);
        }
        let next = CatalogSnapshot::build(now.all_servers.clone(), Arc::new(disabled));
        self.current.send_replace(Arc::new(next));
    }

    /// Takes `server` and everything it offers away.
    pub fn withdraw(&self, server: &str) {
        self.rebuild(|servers| {
            servers.remove(server);
        });
    }

    fn rebuild(&self, edit: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<CatalogView>>)) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let mut servers = now.all_servers.clone();
        edit(&mut servers);
        let next = CatalogSnapshot::build(servers, Arc::clone(&now.disabled_tools));
        self.current.send_replace(Arc::new(next));
    }

    /// Says which tools are switched off: nobody sees them, nobody calls them.
    pub fn set_disabled_tools(&self, switches: DisabledTools) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let full = self.snapshot().all_servers.clone();
        let next = CatalogSnapshot::build(full, Arc::new(switches));
        self.current.send_replace(Arc::new(next));
    }

    /// What was called.
    pub fn journal(&self) -> &Arc<CallJournal> {
        &self.journal
    }

    /// What is available now.
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.current.borrow())
    }

    /// What is available, now and as it changes.
    pub fn subscribe(&self) -> watch::Receiver<Arc<CatalogSnapshot>> {
        self.current.subscribe()
    }

    /// Says that the resource at `uri` has changed.
    pub fn notify_resource_updated(&self, uri: &str) {
        // Nobody may be listening.
        let _ = self.resource_updates.send(uri.into());
    }

    /// Addresses of resources as they change.
    pub fn subscribe_resource_updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.resource_updates.subscribe()
    }

    /// Lets `waker` bring back the server of a tool that is not available now.
    pub fn set_connector(&self, waker: ServerConnector) {
        // Set once, when everything is built.
        let _ = self.connector.set(waker);
    }

    /// Has calls counted against daily limits.
    pub fn set_quota(&self, quota: Arc<CallQuota>) {
        // Set once, when everything is built.
        let _ = self.quota.set(quota);
    }

    async fn connect_server_of(&self, principal: &Principal, name: &str) -> Result<bool, String> {
        let server = name::server_of(name).filter(|it| principal.may_reach(it));
        match (server, self.connector.get()) {
            (Some(server), Some(waker)) => (waker.0)(server.to_owned()).await,
            _ => Ok(false),
        }
    }

    /// Calls a tool. A call that fails is an answer that says so; an error is
    /// a question that could not be put.
    pub async fn call_tool(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Arc<CallArguments>,
        mut peer: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        let trace = peer.remote_trace();
        let mut asked = CallRequest {
            tool: Arc::clone(&NO_NAME),
            server: Arc::clone(&NO_NAME),
            principal: caller.principal.shared_name(),
            client: peer.client.clone(),
            remote_ip: caller.remote_ip,
            request_id: peer.request_id,
            arguments: arguments.shared_text(),
        };
        let found = match self.available_tool(caller, name) {
            // On its own: it would make the future of every call larger.
            Ok(None) => Box::pin(self.connect_and_find_tool(caller, name)).await,
            Ok(Some(offer)) => Ok(offer),
            Err(why) => Err(why),
        };
        let offer = match found {
            Ok(offer) => offer,
            Err(why) => {
                asked.tool = name.chars().take(100).collect::<String>().into();
                self.journal
                    .begin_call(asked, trace)
                    .finish(ToolCallOutcome::Refused, &why.message);
                return Err(why);
            }
        };
        asked.tool = Arc::clone(&offer.public_name);
        asked.server = Arc::clone(&offer.server);
        let mut started = self.journal.begin_call(asked, trace);
        if let Some(id) = started.request_id().filter(|it| *it != peer.request_id) {
            // A trace began with this call; what is below it, such as SQL, names the same.
            Arc::make_mut(&mut peer).request_id = id;
        }
        if let Err(why) = self.check_call(caller, &offer, &arguments).await {
            let answer = offer.failure(&why);
            started.finish(ToolCallOutcome::Refused, answer.as_json());
            return Ok(EntryResponse::Complete(answer));
        }
        let log = peer.log_level.map(|_| (Arc::clone(&peer), Instant::now()));
        started.mark_forwarded();
        let answer = self
            .invoke(caller, &offer, EntryAction::CallTool(arguments), peer)
            .instrument(started.span().clone())
            .await;
        started.mark_answered();
        let answer = match answer {
            Ok(answer) => answer,
            Err(late) => {
                let answer = offer.failure(&format!("{name} {late}"));
                started.finish(ToolCallOutcome::TimedOut, answer.as_json());
                return Ok(EntryResponse::Complete(answer));
            }
        };
        if let Some((log, started)) = log {
            let took = started.elapsed().as_secs_f64() * 1000.0;
            let data = json!({"tool": name, "milliseconds": took, "answered": answer.is_ok()});
            Box::pin(log.send_log(LoggingLevel::Debug, "maru.tool", &data)).await;
        }
        match answer {
            Ok(EntryResponse::Complete(result)) => {
                let result = self.limits().result_limits.apply(result);
                let result = fit_output_schema(&offer, result);
                started.finish(call_outcome(&result), result.as_json());
                Ok(EntryResponse::Complete(result))
            }
            Ok(asked @ EntryResponse::InputRequired(_)) => {
                started.discard();
                Ok(asked)
            }
            Err(why) => {
                started.finish(ToolCallOutcome::Refused, &why.message);
                Err(why)
            }
        }
    }

    /// Whether the call may be made as it is; says why not.
    async fn check_call(
        &self,
        caller: &Caller,
        offer: &CatalogEntry,
        arguments: &CallArguments,
    ) -> Result<(), String> {
        offer
            .validate_arguments(arguments)
            .map_err(|why| format!("wrong arguments: {why}"))?;
        match self.quota.get() {
            Some(quota) => {
                let user = caller.principal.name();
                let counted = quota.count_call(user, offer.public_name()).await;
                counted.map_err(|it| it.message)
            }
            None => Ok(()),
        }
    }

    /// The tool of this name, if it is available.
    fn available_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<Arc<CatalogEntry>>, RpcError> {
        caller.require_call_role()?;
        Ok(self.snapshot().find_tool(caller, name)?.cloned())
    }

    /// A tool that is not available, after one attempt to bring back its server.
    async fn connect_and_find_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<CatalogEntry>, RpcError> {
        let connected = self.connect_server_of(&caller.principal, name).await;
        let connected = connected.map_err(|why| {
            let shown: String = name.chars().take(100).collect();
            let shown = shown.escape_debug();
            RpcError::invalid_params(format!("cannot call {shown}: {why}"))
        })?;
        let offer = connected
            .then(|| self.available_tool(caller, name))
            .transpose()?;
        match offer.flatten() {
            Some(offer) => Ok(offer),
            None => Err(entry_not_found(
                &self.snapshot().visible_to(caller)?.tools,
                "tool",
                name,
            )),
        }
    }

    /// Renders a prompt.
    pub async fn get_prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Arc<CallArguments>,
        peer: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let offer = view
            .prompts
            .get(name)
            .ok_or_else(|| entry_not_found(&view.prompts, "prompt", name))?;
        self.invoke_or_error(caller, offer, EntryAction::GetPrompt(arguments), peer)
            .await
    }

    /// Reads a resource.
    pub async fn read_resource(
        &self,
        caller: &Caller,
        uri: &str,
        peer: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let offer = view
            .find_resource(uri)
            .ok_or_else(|| resource_not_found(uri))?;
        self.invoke_or_error(
            caller,
            offer,
            EntryAction::ReadResource(uri.to_owned()),
            peer,
        )
        .await
    }

    /// Suggests values, as `action` asks, for an argument of the prompt or template `key`.
    pub async fn complete(
        &self,
        caller: &Caller,
        key: &str,
        action: EntryAction,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let offer = view.prompts.get(key).or_else(|| view.templates.get(key));
        let offer =
            offer.ok_or_else(|| RpcError::invalid_params("no such prompt or resource template"))?;
        self.invoke_or_error(caller, offer, action, Arc::default())
            .await
    }

    async fn invoke_or_error(
        &self,
        caller: &Caller,
        offer: &CatalogEntry,
        action: EntryAction,
        peer: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        let answer = self.invoke(caller, offer, action, peer).await;
        answer.unwrap_or_else(|late| {
            Err(RpcError::new(
                code::INTERNAL_ERROR,
                format!("the answer {late}"),
            ))
        })
    }

    /// The outer error says that the deadline passed.
    async fn invoke(
        &self,
        caller: &Caller,
        offer: &CatalogEntry,
        action: EntryAction,
        peer: Arc<RequestContext>,
    ) -> Result<Result<EntryResponse, RpcError>, String> {
        // A server that waits is told; our own tools do not wait.
        if let Some(why) = peer
            .inputs
            .failure
            .as_ref()
            .filter(|_| &*offer.server == OWN_SERVER_NAME)
        {
            return Ok(Err(RpcError::new(code::INTERNAL_ERROR, why.clone())));
        }
        let answer = (offer.handler)(EntryRequest {
            action,
            context: peer,
            principal: caller.principal.clone(),
        });
        let timeout = self.limits().timeout;
        let answer = with_timeout(timeout, answer).await;
        answer.ok_or_else(|| format!("did not answer within {timeout:?}"))
    }
}

/// Where nobody was asked.
static NO_NAME: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// Takes the structured content out of our own report on a server that did not answer,
/// where the tool has an output schema that it would not fit.
fn fit_output_schema(entry: &CatalogEntry, result: EntryResult) -> EntryResult {
    let is_ours = result.status() == ResultStatus::ServerUnavailable;
    if is_ours && entry.failure_format == FailureFormat::TextOnly {
        result.without_structure()
    } else {
        result
    }
}

fn call_outcome(result: &EntryResult) -> ToolCallOutcome {
    match result.status() {
        ResultStatus::Success => ToolCallOutcome::Ok,
        ResultStatus::ToolError => ToolCallOutcome::Failed,
        ResultStatus::ServerUnavailable => ToolCallOutcome::Refused,
    }
}
