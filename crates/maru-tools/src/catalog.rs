//! The catalog of all tools, prompts and resources. Every call goes through it.

mod extension_calls;
mod prompts_and_resources;
mod search_calls;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use maru_protocol::{LoggingLevel, RpcError, code};
use maru_runtime::tasks::{is_large_document, run_parser, with_timeout};
use serde_json::json;
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};
use tracing::Instrument as _;

use super::{
    call_arguments::CallArguments,
    caller::Caller,
    context::RequestContext,
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, EntryAction, EntryRequest, EntryResponse, OWN_SERVER_NAME},
    not_found::entry_not_found,
    quota::CallQuota,
    result::{EntryResult, FailureFormat, ResultLimits, ResultStatus},
    rules::CatalogRules,
    search::ToolSearch,
    search_tools::SearchTool,
    snapshot::CatalogSnapshot,
    tool_override::ToolOverrides,
    toolset::Toolsets,
    view::CatalogView,
};
pub use extension_calls::ExtensionCall;
use maru_config::ToolSearchSettings;
use maru_observability::journal::{CallJournal, CallRequest, ToolCallOutcome};

/// All tools, prompts and resources; shared by every endpoint, the agent and the command line.
#[derive(Debug)]
pub struct Catalog {
    current: watch::Sender<Arc<CatalogSnapshot>>,
    /// Held while the next snapshot is built from the last.
    building: Mutex<()>,
    resource_updates: broadcast::Sender<Arc<str>>,
    limits: RwLock<CallLimits>,
    /// Identifies this hub; new at every start.
    hub_id: Arc<str>,
    connector: OnceLock<ServerConnector>,
    journal: Arc<CallJournal>,
    quota: OnceLock<Arc<CallQuota>>,
    search: OnceLock<Arc<ToolSearch>>,
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

/// How many updated resource URIs are buffered for the slowest subscriber.
const MAX_PENDING_UPDATES: usize = 1024;

/// A call as a client requests it.
struct RequestedCall<'a> {
    name: &'a str,
    arguments: Arc<CallArguments>,
    /// The search tool that it is called through.
    through: Option<SearchTool>,
}

/// Limits of one call.
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
            search: OnceLock::new(),
        }
    }

    /// Uses the id of another catalog, for a second catalog of the same hub.
    #[must_use]
    pub fn with_hub_id(mut self, id: &Arc<str>) -> Self {
        self.hub_id = Arc::clone(id);
        self
    }

    /// The id of this hub, new at every start.
    pub fn hub_id(&self) -> &Arc<str> {
        &self.hub_id
    }

    /// Sets the limits of calls that start from now on.
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

    /// Replaces all entries of `server`.
    pub fn publish(&self, server: &str, entries: &[Arc<CatalogEntry>]) {
        let view = CatalogView::build(entries, |entry| &entry.key);
        self.rebuild(|servers, _| {
            servers.insert(server.into(), Arc::new(view));
        });
    }

    /// Replaces all entries of `server` and switches some of its tools on or off, in one
    /// snapshot.
    pub fn publish_with_switches<'a>(
        &self,
        server: &str,
        entries: &[Arc<CatalogEntry>],
        switches: impl Iterator<Item = (&'a str, bool)>,
    ) {
        let view = CatalogView::build(entries, |entry| &entry.key);
        self.rebuild(|servers, rules| {
            servers.insert(server.into(), Arc::new(view));
            let disabled = Arc::make_mut(&mut rules.disabled_tools);
            for (tool, on) in switches {
                disabled.set_enabled(server, tool, on);
            }
        });
    }

    /// Switches tools, each given by its server and its name there, in one snapshot.
    pub fn set_tools_enabled(&self, tools: &[(String, String)], on: bool) {
        self.rebuild(|_, rules| {
            let disabled = Arc::make_mut(&mut rules.disabled_tools);
            for (server, tool) in tools {
                disabled.set_enabled(server, tool, on);
            }
        });
    }

    /// Removes `server` and all its entries.
    pub fn withdraw(&self, server: &str) {
        self.rebuild(|servers, _| {
            servers.remove(server);
        });
    }

    fn rebuild(
        &self,
        edit: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<CatalogView>>, &mut CatalogRules),
    ) {
        let _building = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.snapshot();
        let (mut servers, mut rules) = (now.all_servers.clone(), now.rules.clone());
        edit(&mut servers, &mut rules);
        let next = CatalogSnapshot::build(servers, rules);
        self.current.send_replace(Arc::new(next));
    }

    /// Sets which tools are switched off. They are not listed and cannot be called.
    pub fn set_disabled_tools(&self, switches: DisabledTools) {
        self.rebuild(|_, rules| rules.disabled_tools = Arc::new(switches));
    }

    /// Sets the toolsets.
    pub fn set_toolsets(&self, toolsets: Toolsets) {
        self.rebuild(|_, rules| rules.toolsets = Arc::new(toolsets));
    }

    /// Sets how tools are described to clients.
    pub fn set_tool_overrides(&self, overrides: ToolOverrides) {
        self.rebuild(|_, rules| rules.overrides = Arc::new(overrides));
    }

    /// Sets whether clients list or search tools.
    pub fn set_search_settings(&self, settings: ToolSearchSettings) {
        self.rebuild(|_, rules| rules.search = Arc::new(settings));
    }

    /// The journal of all calls.
    pub fn journal(&self) -> &Arc<CallJournal> {
        &self.journal
    }

    /// The catalog as it is now.
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        Arc::clone(&self.current.borrow())
    }

    /// The current snapshot, and the next ones as they are published.
    pub fn subscribe(&self) -> watch::Receiver<Arc<CatalogSnapshot>> {
        self.current.subscribe()
    }

    /// Notifies the subscribers of the resource at `uri` that it has changed.
    pub fn notify_resource_updated(&self, uri: &str) {
        // Fails if there is no subscriber.
        let _ = self.resource_updates.send(uri.into());
    }

    /// The URIs of resources as they change.
    pub fn subscribe_resource_updates(&self) -> broadcast::Receiver<Arc<str>> {
        self.resource_updates.subscribe()
    }

    /// Sets how the server of a tool that is not available is connected.
    pub fn set_connector(&self, connector: ServerConnector) {
        // Set once, when everything is built.
        let _ = self.connector.set(connector);
    }

    /// Counts calls against the limits of `quota`.
    pub fn set_quota(&self, quota: Arc<CallQuota>) {
        // Set once, when everything is built.
        let _ = self.quota.set(quota);
    }

    /// Has tools ranked by `search`.
    pub fn set_search(&self, search: Arc<ToolSearch>) {
        // Set once, when everything is built.
        let _ = self.search.set(search);
    }

    async fn connect_server_of(&self, caller: &Caller, name: &str) -> Result<bool, String> {
        let snapshot = self.snapshot();
        let server = snapshot.server_to_connect(caller, name);
        match (server, self.connector.get()) {
            (Some(server), Some(connector)) => (connector.0)(server.to_owned()).await,
            _ => Ok(false),
        }
    }

    /// Calls a tool. A tool that fails returns a result that says so; an `Err` means that
    /// the request itself was wrong.
    pub fn call_tool<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a str,
        arguments: Arc<CallArguments>,
        context: Arc<RequestContext>,
    ) -> BoxFuture<'a, Result<EntryResponse, RpcError>> {
        // Boxed, so that it is compiled in this crate only, not in each that calls tools
        // (ADR 0010).
        Box::pin(async move {
            match self.snapshot().search_tool(caller, name)? {
                None => {
                    let call = RequestedCall {
                        name,
                        arguments,
                        through: None,
                    };
                    self.call_entry(caller, call, context).await
                }
                // Boxed, because it would make the future of every other call larger.
                Some(tool) => {
                    Box::pin(self.call_search_tool(tool, caller, arguments, context)).await
                }
            }
        })
    }

    async fn call_entry(
        &self,
        caller: &Caller,
        call: RequestedCall<'_>,
        mut context: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        let RequestedCall {
            name,
            arguments,
            through,
        } = call;
        let trace = context.remote_trace();
        let mut request = CallRequest {
            tool: Arc::clone(&NO_NAME),
            server: Arc::clone(&NO_NAME),
            principal: caller.principal.shared_name(),
            client: context.client.clone(),
            remote_ip: caller.remote_ip,
            request_id: context.request_id,
            arguments: arguments.shared_text(),
        };
        let found = match self.available_tool(caller, name) {
            // Boxed, because it is rare and would make the future of every call larger.
            Ok(None) => Box::pin(self.connect_and_find_tool(caller, name)).await,
            Ok(Some(entry)) => Ok(entry),
            Err(error) => Err(error),
        };
        let entry = match found {
            Ok(entry) => entry,
            Err(error) => {
                request.tool = name.chars().take(100).collect::<String>().into();
                self.journal
                    .begin_call(request, trace)
                    .finish(ToolCallOutcome::Refused, &error.message);
                return Err(error);
            }
        };
        request.tool = Arc::clone(&entry.public_name);
        request.server = Arc::clone(&entry.server);
        let mut started = self.journal.begin_call(request, trace);
        if let Some(id) = started.request_id().filter(|it| *it != context.request_id) {
            // This call started a trace, so SQL statements below it use that trace's id.
            Arc::make_mut(&mut context).request_id = id;
        }
        // Checked on the tool that is called: its server may have connected for this call.
        let permitted = through.map_or(Ok(()), |it| it.check_target(&entry));
        let checked = match permitted {
            Ok(()) => self.check_call(caller, &entry, &arguments).await,
            refused => refused,
        };
        if let Err(error) = checked {
            let response = entry.failure(&error);
            started.finish(ToolCallOutcome::Refused, response.as_json());
            return Ok(EntryResponse::Complete(response));
        }
        let log = context
            .log_level
            .map(|_| (Arc::clone(&context), Instant::now()));
        started.mark_forwarded();
        let response = self
            .invoke(caller, &entry, EntryAction::CallTool(arguments), context)
            .instrument(started.span().clone())
            .await;
        started.mark_answered();
        let response = match response {
            Ok(response) => response,
            Err(timed_out) => {
                let response = entry.failure(&format!("{name} {timed_out}"));
                started.finish(ToolCallOutcome::TimedOut, response.as_json());
                return Ok(EntryResponse::Complete(response));
            }
        };
        if let Some((log, started)) = log {
            let took = started.elapsed().as_secs_f64() * 1000.0;
            let data = json!({"tool": name, "milliseconds": took, "answered": response.is_ok()});
            Box::pin(log.send_log(LoggingLevel::Debug, "maru.tool", &data)).await;
        }
        match response {
            Ok(EntryResponse::Complete(result)) => {
                let result = self.limits().result_limits.apply(result);
                let result = fit_output_schema(&entry, result);
                started.finish(call_outcome(&result), result.as_json());
                Ok(EntryResponse::Complete(result))
            }
            Ok(needed @ EntryResponse::InputRequired(_)) => {
                started.discard();
                Ok(needed)
            }
            Err(error) => {
                started.finish(ToolCallOutcome::Refused, &error.message);
                Err(error)
            }
        }
    }

    /// Checks the arguments and the limits of a call; the error is for the caller.
    async fn check_call(
        &self,
        caller: &Caller,
        entry: &Arc<CatalogEntry>,
        arguments: &Arc<CallArguments>,
    ) -> Result<(), String> {
        let validated = if is_large_document(arguments.text().len()) {
            let (entry, arguments) = (Arc::clone(entry), Arc::clone(arguments));
            let validate = move || entry.validate_arguments(&arguments);
            run_parser(usize::MAX, validate).await
        } else {
            entry.validate_arguments(arguments)
        };
        validated.map_err(|error| format!("wrong arguments: {error}"))?;
        match self.quota.get() {
            Some(quota) => {
                let user = caller.principal.name();
                let snapshot = self.snapshot();
                for toolset in snapshot.toolsets_through(caller) {
                    let counted = quota.count_toolset_call(toolset.definition()).await;
                    counted.map_err(|it| it.message)?;
                }
                let counted = quota.count_call(user, entry.public_name()).await;
                counted.map_err(|it| it.message)
            }
            None => Ok(()),
        }
    }

    /// The tool of this name, if it is in the current snapshot.
    fn available_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<Arc<CatalogEntry>>, RpcError> {
        caller.require_call_role()?;
        Ok(self.snapshot().find_tool(caller, name)?.cloned())
    }

    /// The tool of this name, after one attempt to connect its server.
    async fn connect_and_find_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Arc<CatalogEntry>, RpcError> {
        let connected = self.connect_server_of(caller, name).await;
        let connected = connected.map_err(|error| {
            let shown: String = name.chars().take(100).collect();
            let shown = shown.escape_debug();
            RpcError::invalid_params(format!("cannot call {shown}: {error}"))
        })?;
        let entry = connected
            .then(|| self.available_tool(caller, name))
            .transpose()?;
        match entry.flatten() {
            Some(entry) => Ok(entry),
            None => Err(entry_not_found(
                &self.snapshot().visible_to(caller)?.tools,
                "tool",
                name,
            )),
        }
    }

    async fn invoke_or_error(
        &self,
        caller: &Caller,
        entry: &CatalogEntry,
        action: EntryAction,
        context: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        let response = self.invoke(caller, entry, action, context).await;
        response.unwrap_or_else(|timed_out| {
            Err(RpcError::new(
                code::INTERNAL_ERROR,
                format!("the request {timed_out}"),
            ))
        })
    }

    /// Calls the handler of an entry. The outer error means that the deadline passed.
    async fn invoke(
        &self,
        caller: &Caller,
        entry: &CatalogEntry,
        action: EntryAction,
        context: Arc<RequestContext>,
    ) -> Result<Result<EntryResponse, RpcError>, String> {
        // A server's handler passes the failure on to the server, which waits for an
        // answer; our own tools do not wait for one.
        if let Some(error) = context
            .inputs
            .failure
            .as_ref()
            .filter(|_| &*entry.server == OWN_SERVER_NAME)
        {
            return Ok(Err(RpcError::new(code::INTERNAL_ERROR, error.clone())));
        }
        let response = (entry.handler)(EntryRequest {
            action,
            context,
            principal: caller.principal.clone(),
        });
        let timeout = entry.call_timeout(self.limits().timeout);
        let response = with_timeout(timeout, response).await;
        response.ok_or_else(|| format!("did not answer within {timeout:?}"))
    }
}

/// The tool and server of a call until its tool is found.
static NO_NAME: LazyLock<Arc<str>> = LazyLock::new(|| "".into());

/// Removes the structured content of our own error about a server that did not answer, if
/// the tool has an output schema, which that content would violate.
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
