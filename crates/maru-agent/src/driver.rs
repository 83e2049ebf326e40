//! Performs the effects of the machine: asks the model, calls the tools.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use tracing::{Span, info};

use super::{
    Agent, AgentRequest, ApprovalPolicy, CutReason, Error, FinalAnswer, RunEvent, RunOutcome,
    machine::{AgentMachine, MachineEffect, MachineEvent, ModelReply, Observation, RunLimits},
    record::{RunCall, RunCallOutcome, RunCallResult, RunRecord},
    runs::RunGuard,
    toolbox::{AgentTool, FIND_TOOLS, Toolbox, advise_search, find_tools_definition},
};
use maru_llm::{
    self as llm, ChatEvent, ChatMessage, ChatRequest, ChatRequestOptions, ChatRole, ChatToolCall,
    InvalidToolCall,
};
use maru_observability::telemetry::spans;
use maru_tools::{self as tools, Caller, CatalogScope, OWN_SERVER_NAME};

/// How often the model may correct an invalid call.
const MAX_CORRECTIONS: u32 = 2;
/// How many tools a search finds.
const MAX_FOUND_TOOLS: usize = 8;

/// Runs to the end and reports to `events`. A closed channel is no reason to stop: then
/// the whole future is about to be dropped.
pub(super) async fn run(
    agent: Arc<Agent>,
    request: AgentRequest,
    events: mpsc::Sender<RunEvent>,
) -> Result<RunOutcome, Error> {
    let question = request.question();
    let run = agent.runs.begin(&request.principal, &question);
    let mut driver = RunDriver::new(&agent, request, run, events);
    let result = tokio::select! {
        result = driver.drive(&question) => result,
        () = agent.stopping() => Err(Error::Stopping),
    };
    match &result {
        Ok(outcome) => {
            driver.run.update(|it| it.end(Ok(&outcome.answer)));
            driver.emit(RunEvent::Completed(outcome.clone())).await;
        }
        Err(error) => {
            let message = error.to_string();
            spans::record_error(&Span::current(), error.kind());
            driver.run.update(|it| match error {
                Error::Stopping => it.stop(),
                _ => it.end(Err(&message)),
            });
        }
    }
    result
}

struct RunDriver<'a> {
    agent: &'a Agent,
    request: AgentRequest,
    run: RunGuard,
    events: mpsc::Sender<RunEvent>,
    toolbox: Arc<Toolbox>,
    /// Positions in the toolbox. The order never changes, only more are added at the end:
    /// backends cache the prompt up to the first difference.
    offered: Vec<usize>,
    /// How many were offered from the start, if others can be found with `find_tools`.
    selected: Option<usize>,
    model: String,
    deadline: Instant,
}

impl<'a> RunDriver<'a> {
    fn new(
        agent: &'a Agent,
        request: AgentRequest,
        run: RunGuard,
        events: mpsc::Sender<RunEvent>,
    ) -> Self {
        let limit = Duration::from_millis(agent.settings.timeout_ms);
        Self {
            agent,
            request,
            run,
            events,
            toolbox: agent.toolbox(),
            offered: Vec::new(),
            selected: None,
            model: String::new(),
            deadline: Instant::now() + limit,
        }
    }

    async fn drive(&mut self, question: &str) -> Result<RunOutcome, Error> {
        let named = self.request.servers.as_deref().unwrap_or_default();
        let unavailable_servers = self.agent.connect_servers(named).await?;
        self.toolbox = self.agent.toolbox();
        self.select_tools(question).await;
        self.model = self.resolve_model().await?;
        let (tools, tool_tokens) = (self.offered.len(), self.tool_tokens());
        let model = self.model.clone();
        let span = Span::current();
        span.record("gen_ai.request.model", model.as_str());
        span.record("gen_ai.conversation.id", &*self.run.id);
        self.run
            .update(|it| it.set_model(&model, tools, tool_tokens));
        self.emit(RunEvent::Started {
            run: Arc::clone(&self.run.id),
            model,
            tools,
            tool_tokens,
            unavailable_servers: unavailable_servers.clone(),
        })
        .await;
        let (machine, answer) = self.run_rounds().await?;
        let pending = answer.pending_calls.iter();
        let pending_calls = pending
            .map(|it| RunCall::new(it, &self.qualified_name(&it.name)))
            .collect();
        let (calls, tokens) = self.run.update(|it| (it.calls(), it.tokens));
        Ok(RunOutcome {
            run: Arc::clone(&self.run.id),
            model: self.model.clone(),
            answer,
            rounds: machine.rounds(),
            calls,
            pending_calls,
            tokens,
            tool_tokens,
            unavailable_servers,
        })
    }

    async fn run_rounds(&mut self) -> Result<(AgentMachine, FinalAnswer), Error> {
        let (mut machine, mut effect) = AgentMachine::start(self.conversation(), self.limits());
        loop {
            effect = match effect {
                MachineEffect::Finish(answer) => return Ok((machine, answer)),
                MachineEffect::AskModel => {
                    let mut reply = None;
                    match self.ask_model(&machine, &mut reply).await {
                        Ok(()) => {
                            let reply = Box::new(reply.unwrap_or_default());
                            machine.on(MachineEvent::ModelReplied(reply))
                        }
                        Err(error) => self.break_off(&mut machine, error, reply)?,
                    }
                }
                MachineEffect::RunCalls(calls) => {
                    let observations = self.run_calls(calls).await;
                    if self.is_past_deadline() {
                        machine.time_out()
                    } else {
                        machine.on(MachineEvent::CallsFinished(observations))
                    }
                }
            };
        }
    }

    fn is_past_deadline(&self) -> bool {
        self.deadline <= Instant::now()
    }

    /// Ends a run whose model failed: with what it has if the time was over or a reply
    /// broke off, otherwise with the error.
    fn break_off(
        &self,
        machine: &mut AgentMachine,
        error: llm::Error,
        begun: Option<ModelReply>,
    ) -> Result<MachineEffect, Error> {
        let is_late = self.is_past_deadline();
        let cut = if is_late {
            Some(CutReason::Time)
        } else {
            CutReason::from_failure(&error, begun.is_some())
        };
        let reply = begun.unwrap_or_default();
        if let Some(ended) = cut.and_then(|it| machine.break_off(it, &reply)) {
            info!(%error, "the run {} ends with what it has", self.run.id);
            return Ok(ended);
        }
        match error {
            llm::Error::Timeout { model, .. } | llm::Error::Silent { model, .. } if is_late => {
                let limit = Duration::from_millis(self.agent.settings.timeout_ms);
                Err(Error::Timeout { model, limit })
            }
            error => Err(self.request.model_error(error)),
        }
    }

    fn limits(&self) -> RunLimits {
        let settings = &self.agent.settings;
        RunLimits {
            max_rounds: self.request.max_rounds.unwrap_or(settings.max_iterations),
            max_tokens: settings.max_tokens,
            max_observation_chars: settings.max_observation_chars,
            max_corrections: MAX_CORRECTIONS,
        }
    }

    /// Chooses the tools that are offered.
    async fn select_tools(&mut self, question: &str) {
        let settings = &self.agent.settings;
        let (max_tools, budget) = (settings.max_tools_per_request, settings.max_tool_tokens);
        let all = self.toolbox.tools.iter().enumerate();
        let all: Vec<usize> = all
            .filter(|(_, it)| self.may_offer(it))
            .map(|(at, _)| at)
            .collect();
        let cost = |places: &[usize]| -> usize {
            places.iter().map(|at| self.toolbox.tools[*at].tokens).sum()
        };
        if all.len() <= max_tools && cost(&all) <= budget {
            self.offered = all;
            return;
        }
        let ranked = self.rank_tools(question).await;
        let mut spent = 0;
        let fits = |at: &usize| {
            spent += self.toolbox.tools[*at].tokens;
            spent <= budget
        };
        self.offered = ranked
            .into_iter()
            .take(max_tools)
            .take_while(fits)
            .collect();
        self.selected = Some(self.offered.len());
    }

    /// The positions of the tools that may be offered, the best for `query` first.
    async fn rank_tools(&self, query: &str) -> Vec<usize> {
        let (search, snapshot) = (&self.agent.search, &self.toolbox.snapshot);
        let ranked = search.rank(snapshot, query, |_| true).await;
        let mut positions = self.toolbox.positions_of(&ranked);
        positions.retain(|at| self.may_offer(&self.toolbox.tools[*at]));
        positions
    }

    /// Whether the run may use the tool: its server takes part, and so may the caller.
    fn may_offer(&self, tool: &AgentTool) -> bool {
        let snapshot = &self.toolbox.snapshot;
        let toolset = self.agent.toolset_of(&self.request);
        let is_in_toolset = |name: &str| snapshot.toolset_contains(name, &tool.entry);
        if !toolset.is_none_or(is_in_toolset) {
            return false;
        }
        let takes_part = match &self.request.servers {
            Some(named) => named.iter().any(|name| **name == *tool.server),
            // The toolset says which.
            None if toolset.is_some() => true,
            None if *tool.server == *OWN_SERVER_NAME => {
                let default = self.agent.settings.own_tools;
                self.request.own_tools.unwrap_or(default)
            }
            None => true,
        };
        takes_part && snapshot.may_use(&self.request.principal, &tool.entry)
    }

    fn tool_tokens(&self) -> usize {
        let tokens = |at: &usize| self.toolbox.tools[*at].tokens;
        self.offered.iter().map(tokens).sum()
    }

    async fn resolve_model(&self) -> Result<String, Error> {
        let configured = self.agent.settings.model.as_ref();
        if let Some(name) = self.request.model.as_ref().or(configured) {
            return Ok(name.clone());
        }
        let models = self.agent.models.current().list_models().await;
        let first = models.into_iter().next();
        first.map(|it| it.name).ok_or(Error::NoModel)
    }

    fn conversation(&self) -> Vec<ChatMessage> {
        let mut messages = self.request.messages.clone();
        if self.offered.is_empty() {
            return messages;
        }
        let text = self.agent.settings.instructions.as_str();
        match messages.first_mut() {
            Some(first) if first.role == ChatRole::System => {
                let text = format!("{}\n\n{text}", first.text_content());
                *first = ChatMessage::text(ChatRole::System, text);
            }
            _ => messages.insert(0, ChatMessage::text(ChatRole::System, text)),
        }
        messages
    }

    /// Asks the model. `reply` holds what arrived, also of a reply that breaks off; it is
    /// `None` if none has begun.
    async fn ask_model(
        &mut self,
        machine: &AgentMachine,
        reply: &mut Option<ModelReply>,
    ) -> Result<(), llm::Error> {
        self.emit(RunEvent::RoundStarted(machine.rounds() + 1))
            .await;
        let request = ChatRequest {
            model: self.model.clone(),
            messages: machine.messages().to_vec(),
            tools: self.chat_tools(),
            other: self.request.backend_options.clone(),
            ..ChatRequest::default()
        };
        let started = Instant::now();
        let mut options = ChatRequestOptions::streamed(
            self.request.principal.name(),
            self.deadline.saturating_duration_since(started),
        );
        options.prompted = true;
        options.keep_written = true;
        let models = self.agent.models.current();
        let mut stream = models.start_chat(request, &options).await?;
        let reply = reply.insert(ModelReply::default());
        let mut events = Vec::new();
        let ended = loop {
            let more = stream.decode_data(&mut events).await;
            for event in events.drain(..) {
                self.take_model_event(event, reply).await;
            }
            match more {
                Ok(true) => (),
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        reply.written = stream.take_written().unwrap_or_default();
        if let Some(usage) = &reply.response.usage {
            let usage = Value::Object(usage.0.clone());
            self.emit(RunEvent::Usage(usage)).await;
        }
        let took = milliseconds(started);
        let tokens = machine.round_tokens(reply);
        self.run
            .update(|it| it.add_round(&reply.response, tokens, took));
        ended
    }

    /// The offered tools; `find_tools` keeps its place when more are found.
    fn chat_tools(&self) -> Vec<llm::ChatTool> {
        let offered = self.offered.iter();
        let mut tools: Vec<llm::ChatTool> = offered
            .map(|at| self.toolbox.tools[*at].to_llm_tool())
            .collect();
        if let Some(selected) = self.selected {
            tools.insert(selected, find_tools_definition());
        }
        tools
    }

    /// Adds an event to the reply and reports it. Calls that cannot be made are no text.
    async fn take_model_event(&self, event: ChatEvent, reply: &mut ModelReply) {
        let reported = match &event {
            ChatEvent::Text(text) | ChatEvent::Refusal(text) => RunEvent::Text(text.clone()),
            ChatEvent::Reasoning(text) => RunEvent::Reasoning(text.clone()),
            ChatEvent::TextWasReasoning => RunEvent::TextWasReasoning,
            ChatEvent::InvalidCall(invalid) => {
                let mut invalid = invalid.clone();
                invalid.reason = self.explain_invalid_call(&invalid);
                let reason = invalid.reason.clone();
                let text = invalid.text.clone();
                reply.response.invalid_calls.push(invalid);
                self.emit(RunEvent::CallRejected { text, reason }).await;
                return;
            }
            _ => return reply.response.apply_event(event),
        };
        self.emit(reported).await;
        reply.response.apply_event(event);
    }

    /// The message to the model about a call that cannot be made: a tool that exists, but is
    /// not offered, can be found.
    fn explain_invalid_call(&self, invalid: &InvalidToolCall) -> String {
        let (Some(name), Some(_)) = (invalid.name.as_deref(), self.selected) else {
            return invalid.reason.clone();
        };
        let hidden = self.toolbox.tools.iter().enumerate().find(|(at, it)| {
            it.is_called(name) && !self.offered.contains(at) && self.may_offer(it)
        });
        advise_search(&invalid.reason, hidden.map(|(_, it)| it))
    }

    /// Makes the calls of a round concurrently.
    async fn run_calls(&mut self, calls: Vec<ChatToolCall>) -> Vec<Observation> {
        for call in &calls {
            let called = RunCall::new(call, &self.qualified_name(&call.name));
            self.run.update(|it| it.put_call(&called));
            self.emit(RunEvent::CallStarted(called)).await;
        }
        let results = join_all(calls.iter().map(|call| self.run_call(call))).await;
        let mut observations = Vec::with_capacity(calls.len());
        for (call, (result, found)) in calls.iter().zip(results) {
            for position in found {
                if !self.offered.contains(&position) {
                    self.offered.push(position);
                }
            }
            let text = if result.outcome.is_error() {
                format!("Error: {}", result.text)
            } else {
                result.text.clone()
            };
            let mut called = RunCall::new(call, &self.qualified_name(&call.name));
            called.result = Some(result);
            self.run.update(|it| it.put_call(&called));
            self.emit(RunEvent::CallFinished(called)).await;
            let id = call.id.clone();
            observations.push(Observation { id, text });
        }
        observations
    }

    /// The result of a call, and the tools that it found.
    async fn run_call(&self, call: &ChatToolCall) -> (RunCallResult, Vec<usize>) {
        let started = Instant::now();
        let mut found = Vec::new();
        let result = match self.find_offered(&call.name) {
            _ if call.name == FIND_TOOLS && self.selected.is_some() => {
                found = self.search_tools(&call.arguments).await;
                Ok(self.toolbox.describe_found(&found))
            }
            None => Err((
                RunCallOutcome::Rejected,
                format!(
                    "there is no tool {} in this run; use one of those that are offered",
                    call.name
                ),
            )),
            Some(tool) => match self.ensure_approved(call, tool).await {
                Err(reason) => Err((RunCallOutcome::Refused, reason)),
                Ok(()) => self.call_catalog(tool, call).await,
            },
        };
        let (outcome, text) =
            result.map_or_else(|failed| failed, |text| (RunCallOutcome::Ok, text));
        let result = RunCallResult {
            text,
            outcome,
            milliseconds: milliseconds(started),
        };
        (result, found)
    }

    async fn call_catalog(
        &self,
        tool: &AgentTool,
        call: &ChatToolCall,
    ) -> Result<String, (RunCallOutcome, String)> {
        use RunCallOutcome::{Failed, Rejected, TimedOut};
        let settings = &self.agent.settings;
        let default = Duration::from_millis(settings.tool_timeout_ms);
        let limit = self.request.tool_timeout;
        let limit = limit.unwrap_or_else(|| tool.entry.call_timeout(default));
        let limit = limit.min(self.deadline.saturating_duration_since(Instant::now()));
        let arguments = tools::CallArguments::parse(Some(&call.arguments))
            .await
            .map_err(|it| (Rejected, it.message.into_owned()))?;
        let scope = match self.agent.toolset_of(&self.request) {
            Some(name) => CatalogScope::Toolset(name.into()),
            None => CatalogScope::All,
        };
        let caller = Caller::new(self.request.principal.clone(), scope);
        let calling =
            self.agent
                .catalog
                .call_tool(&caller, &tool.name, Arc::new(arguments), Arc::default());
        match time::timeout(limit, calling).await {
            Err(_) => {
                let message = format!("{} did not answer within {limit:?}", tool.qualified_name);
                Err((TimedOut, message))
            }
            Ok(Err(error)) => Err((Rejected, error.message.into_owned())),
            Ok(Ok(tools::EntryResponse::Complete(result))) if result.is_error() => {
                Err((Failed, result.to_text()))
            }
            Ok(Ok(tools::EntryResponse::Complete(result))) => Ok(result.to_text()),
            Ok(Ok(tools::EntryResponse::InputRequired(_))) => {
                let message = "the tool asks back, and nobody can answer in a run".to_owned();
                Err((Failed, message))
            }
        }
    }

    /// Whether a call may be made; waits for approval if it needs that.
    async fn ensure_approved(&self, call: &ChatToolCall, tool: &AgentTool) -> Result<(), String> {
        if !(tool.is_destructive || self.request.approval == ApprovalPolicy::EveryCall) {
            return Ok(());
        }
        if self.request.approval == ApprovalPolicy::Nobody {
            return Err(format!(
                "{} may destroy something and needs approval, which nobody can give in this run",
                tool.qualified_name
            ));
        }
        let (id, tool) = (call.id.clone(), tool.qualified_name.clone());
        self.run.update(RunRecord::begin_wait);
        self.emit(RunEvent::AwaitingApproval {
            id,
            tool: tool.clone(),
        })
        .await;
        let decided = self.agent.runs.approvals().wait(&self.run.id, &call.id);
        let decided = time::timeout_at(self.deadline, decided).await;
        self.run.update(RunRecord::end_wait);
        match decided {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("a person refused the call of {tool}")),
            Err(_) => Err(format!("nobody approved of the call of {tool} in time")),
        }
    }

    async fn search_tools(&self, arguments: &str) -> Vec<usize> {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let query = arguments["query"].as_str().unwrap_or_default();
        let mut found = self.rank_tools(query).await;
        found.truncate(MAX_FOUND_TOOLS);
        found
    }

    fn find_offered(&self, name: &str) -> Option<&AgentTool> {
        let mut offered = self.offered.iter().map(|at| &self.toolbox.tools[*at]);
        offered.find(|it| it.name == name)
    }

    fn qualified_name(&self, name: &str) -> String {
        let known = self.find_offered(name);
        known.map_or_else(|| name.to_owned(), |it| it.qualified_name.clone())
    }

    async fn emit(&self, event: RunEvent) {
        // Without a reader the run is about to be dropped.
        let _ = self.events.send(event).await;
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
