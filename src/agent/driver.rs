//! Runs the effects of the machine: asks the model, calls the tools.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};
use tracing::Span;

use super::{
    Agent, AgentRequest, CutReason, Error, FinalAnswer, RunEvent, RunOutcome,
    machine::{AgentMachine, MachineEffect, MachineEvent, Observation, RunLimits},
    record::{RunCall, RunCallResult},
    runs::RunGuard,
    tool_ranking::rank_tools,
    toolbox::{AgentTool, FIND_TOOLS, Toolbox, find_tools_definition},
};
use crate::{
    llm::{self, ChatMessage, ChatRequest, ChatResponse, ChatRole, ChatToolCall, ToolChoice},
    observability::telemetry::spans,
    tools::{self, Caller, CatalogScope, OWN_SERVER_NAME},
};

/// How often a broken call is asked for again.
const MAX_CORRECTIONS: u32 = 2;
/// How many tools a search finds.
const MAX_FOUND_TOOLS: usize = 8;
/// How long a server that was named may take to be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs to the end. What happens is told to `tell`; if nobody listens, that is
/// no reason to stop, because then the whole future is dropped.
pub(super) async fn run(
    agent: Arc<Agent>,
    question: AgentRequest,
    tell: mpsc::Sender<RunEvent>,
) -> Result<RunOutcome, Error> {
    let asked = last_question(&question.messages);
    let run = agent.runs.begin(&question.principal, &asked);
    let mut driver = RunDriver::new(&agent, question, run, tell);
    let done = driver.drive(&asked).await;
    match &done {
        Ok(outcome) => {
            driver.run.update(|it| it.end(Ok(&outcome.answer)));
            driver.emit(RunEvent::Completed(outcome.clone())).await;
        }
        Err(error) => {
            let why = error.to_string();
            spans::record_error(&Span::current(), error.kind());
            driver.run.update(|it| it.end(Err(&why)));
        }
    }
    done
}

struct RunDriver<'a> {
    agent: &'a Agent,
    question: AgentRequest,
    run: RunGuard,
    events: mpsc::Sender<RunEvent>,
    toolbox: Arc<Toolbox>,
    /// Places of the toolbox.
    offered: Vec<usize>,
    /// Whether there are tools that are not offered.
    has_hidden_tools: bool,
    model: String,
    deadline: Instant,
}

impl<'a> RunDriver<'a> {
    fn new(
        agent: &'a Agent,
        question: AgentRequest,
        run: RunGuard,
        events: mpsc::Sender<RunEvent>,
    ) -> Self {
        let limit = Duration::from_millis(agent.settings.timeout_ms);
        Self {
            agent,
            question,
            run,
            events,
            toolbox: agent.toolbox(),
            offered: Vec::new(),
            has_hidden_tools: false,
            model: String::new(),
            deadline: Instant::now() + limit,
        }
    }

    async fn drive(&mut self, asked: &str) -> Result<RunOutcome, Error> {
        self.connect_servers().await;
        self.select_tools(asked).await;
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
        })
        .await;
        let (machine, finished) = self.run_rounds().await?;
        let (calls, tokens) = self.run.update(|it| (it.calls(), it.tokens));
        Ok(RunOutcome {
            run: Arc::clone(&self.run.id),
            model: self.model.clone(),
            answer: finished,
            rounds: machine.rounds(),
            calls,
            tokens,
            tool_tokens,
        })
    }

    async fn run_rounds(&mut self) -> Result<(AgentMachine, FinalAnswer), Error> {
        let (mut machine, mut effect) = AgentMachine::start(self.conversation(), self.limits());
        loop {
            effect = match effect {
                MachineEffect::Finish(finished) => return Ok((machine, finished)),
                MachineEffect::AskModel => match self.ask_model(&machine).await {
                    Ok(answer) => machine.on(MachineEvent::ModelReplied(answer)),
                    Err(_) if self.is_past_deadline() => {
                        MachineEffect::Finish(timed_out_answer(&machine))
                    }
                    Err(error) => return Err(error.into()),
                },
                MachineEffect::RunCalls(calls) => {
                    let observations = self.run_calls(calls).await;
                    if self.is_past_deadline() {
                        MachineEffect::Finish(timed_out_answer(&machine))
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

    fn limits(&self) -> RunLimits {
        let settings = &self.agent.settings;
        RunLimits {
            max_rounds: self.question.max_rounds.unwrap_or(settings.max_iterations),
            max_tokens: settings.max_tokens,
            max_observation_chars: settings.max_observation_chars,
            max_corrections: MAX_CORRECTIONS,
        }
    }

    /// Servers that were named and are not there get one chance.
    async fn connect_servers(&mut self) {
        let named = self.question.servers.iter().flatten();
        let snapshot = self.agent.catalog.snapshot();
        let away: Vec<&String> = named
            .filter(|it| *it != OWN_SERVER_NAME && !snapshot.has_server(it))
            .filter(|it| self.question.principal.may_reach(it))
            .collect();
        if away.is_empty() {
            return;
        }
        let connecting = join_all(away.into_iter().map(|it| self.agent.servers.connect(it)));
        // Those that are late, or not there, have no tools to offer.
        let _ = time::timeout(CONNECT_TIMEOUT, connecting).await;
        self.toolbox = self.agent.toolbox();
    }

    /// Chooses the tools that are offered.
    async fn select_tools(&mut self, asked: &str) {
        let settings = &self.agent.settings;
        let (most, budget) = (settings.max_tools_per_request, settings.max_tool_tokens);
        let all = self.toolbox.tools.iter().enumerate();
        let all: Vec<usize> = all
            .filter(|(_, it)| self.may_offer(it))
            .map(|(at, _)| at)
            .collect();
        let cost = |places: &[usize]| -> usize {
            places.iter().map(|at| self.toolbox.tools[*at].tokens).sum()
        };
        if all.len() <= most && cost(&all) <= budget {
            self.offered = all;
            return;
        }
        self.has_hidden_tools = true;
        let ranked = rank_tools(&self.toolbox, &self.agent.embedder, asked, |it| {
            self.may_offer(it)
        })
        .await;
        let mut spent = 0;
        let fits = |at: &usize| {
            spent += self.toolbox.tools[*at].tokens;
            spent <= budget
        };
        self.offered = ranked.into_iter().take(most).take_while(fits).collect();
    }

    /// Whether the tool is of a server that was named, and the caller's to call.
    fn may_offer(&self, tool: &AgentTool) -> bool {
        let named = self.question.servers.as_ref();
        named.is_none_or(|it| it.iter().any(|name| **name == *tool.server))
            && tools::may_use(&self.question.principal, &tool.entry)
    }

    fn tool_tokens(&self) -> usize {
        let offered = self.offered.iter();
        offered.map(|at| self.toolbox.tools[*at].tokens).sum()
    }

    async fn resolve_model(&self) -> Result<String, Error> {
        let configured = self.agent.settings.model.as_ref();
        match self.question.model.as_ref().or(configured) {
            Some(name) => Ok(name.clone()),
            None => {
                let models = self.agent.models.current().list_models().await;
                let first = models.into_iter().next();
                first.map(|it| it.name).ok_or(Error::NoModel)
            }
        }
    }

    fn conversation(&self) -> Vec<ChatMessage> {
        let mut messages = self.question.messages.clone();
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

    async fn ask_model(&mut self, machine: &AgentMachine) -> Result<ChatResponse, llm::Error> {
        self.emit(RunEvent::RoundStarted(machine.rounds() + 1))
            .await;
        let mut tools: Vec<llm::ChatTool> = self
            .offered
            .iter()
            .map(|at| self.toolbox.tools[*at].to_llm_tool())
            .collect();
        if self.has_hidden_tools {
            tools.push(find_tools_definition());
        }
        let request = ChatRequest {
            model: self.model.clone(),
            messages: machine.messages().to_vec(),
            tools,
            described_tools: Vec::new(),
            tool_choice: ToolChoice::Auto,
            other: self.question.backend_options.clone(),
        };
        let started = Instant::now();
        let left = self.deadline.saturating_duration_since(started);
        let models = self.agent.models.current();
        let mut stream = models.stream_chat(request, left).await?;
        let mut answer = ChatResponse::default();
        let mut events = Vec::new();
        loop {
            let more = stream.decode_data(&mut events).await;
            for event in events.drain(..) {
                self.emit_model_event(&event).await;
                answer.apply_event(event);
            }
            if !more? {
                break;
            }
        }
        let took = milliseconds(started);
        self.run.update(|it| it.add_round(&answer, took));
        Ok(answer)
    }

    async fn emit_model_event(&self, event: &llm::ChatEvent) {
        let happening = match event {
            llm::ChatEvent::Text(text) | llm::ChatEvent::Refusal(text) => {
                RunEvent::Text(text.clone())
            }
            llm::ChatEvent::InvalidCall { text, .. } => RunEvent::Text(text.clone()),
            llm::ChatEvent::Reasoning(text) => RunEvent::Reasoning(text.clone()),
            llm::ChatEvent::TextWasReasoning => RunEvent::TextWasReasoning,
            llm::ChatEvent::Usage(usage) => RunEvent::Usage(Value::Object(usage.0.clone())),
            llm::ChatEvent::ToolCall(_) | llm::ChatEvent::Finish(_) => return,
        };
        self.emit(happening).await;
    }

    /// Makes the calls of a round together.
    async fn run_calls(&mut self, calls: Vec<ChatToolCall>) -> Vec<Observation> {
        for call in &calls {
            let called = RunCall::new(call, &self.qualified_name(&call.name));
            self.run.update(|it| it.put_call(&called));
            self.emit(RunEvent::CallStarted(called)).await;
        }
        let made = join_all(calls.iter().map(|call| self.run_call(call))).await;
        let mut observations = Vec::with_capacity(calls.len());
        for (call, (given, found)) in calls.iter().zip(made) {
            self.offered.extend(found);
            self.offered.sort_unstable();
            self.offered.dedup();
            let text = if given.is_error {
                format!("Error: {}", given.text)
            } else {
                given.text.clone()
            };
            let mut called = RunCall::new(call, &self.qualified_name(&call.name));
            called.result = Some(given);
            self.run.update(|it| it.put_call(&called));
            self.emit(RunEvent::CallFinished(called)).await;
            let id = call.id.clone();
            observations.push(Observation { id, text });
        }
        observations
    }

    /// What a call gives, and the tools that it found.
    async fn run_call(&self, call: &ChatToolCall) -> (RunCallResult, Vec<usize>) {
        let started = Instant::now();
        let mut found = Vec::new();
        let given = match self.find_offered(&call.name) {
            _ if call.name == FIND_TOOLS && self.has_hidden_tools => {
                found = self.search_tools(&call.arguments).await;
                Ok((self.describe_found(&found), false))
            }
            None => Err(format!(
                "there is no tool {} in this run; use one of those that are offered",
                call.name
            )),
            Some(tool) => match self.ensure_approved(call, tool).await {
                Err(why) => Err(why),
                Ok(()) => self.call_catalog(tool, call).await,
            },
        };
        let (text, is_error) = given.unwrap_or_else(|why| (why, true));
        let milliseconds = milliseconds(started);
        let given = RunCallResult {
            text,
            is_error,
            milliseconds,
        };
        (given, found)
    }

    async fn call_catalog(
        &self,
        tool: &AgentTool,
        call: &ChatToolCall,
    ) -> Result<(String, bool), String> {
        let settings = &self.agent.settings;
        let limit = self.question.tool_timeout;
        let limit = limit.unwrap_or(Duration::from_millis(settings.tool_timeout_ms));
        let limit = limit.min(self.deadline.saturating_duration_since(Instant::now()));
        let arguments = tools::CallArguments::parse(Some(&call.arguments))
            .map_err(|it| it.message.into_owned())?;
        let caller = Caller::new(self.question.principal.clone(), CatalogScope::All);
        let asked =
            self.agent
                .catalog
                .call_tool(&caller, &tool.name, Arc::new(arguments), Arc::default());
        match time::timeout(limit, asked).await {
            Err(_) => Err(format!(
                "{} did not answer within {limit:?}",
                tool.qualified_name
            )),
            Ok(Err(error)) => Err(error.message.into_owned()),
            Ok(Ok(tools::EntryResponse::Complete(result))) => {
                Ok((result.to_text(), result.is_error()))
            }
            Ok(Ok(tools::EntryResponse::InputRequired(_))) => {
                Err("the tool asks back, and nobody can answer in a run".to_owned())
            }
        }
    }

    /// Whether a call may be made; waits for someone's word if it needs that.
    async fn ensure_approved(&self, call: &ChatToolCall, tool: &AgentTool) -> Result<(), String> {
        if !tool.is_destructive {
            return Ok(());
        }
        if !self.question.allows_approval {
            return Err(format!(
                "{} may destroy something and needs approval, which nobody can give in this run",
                tool.qualified_name
            ));
        }
        let (id, tool) = (call.id.clone(), tool.qualified_name.clone());
        self.run.update(|it| it.set_waiting(true));
        self.emit(RunEvent::AwaitingApproval {
            id,
            tool: tool.clone(),
        })
        .await;
        let decided = self.agent.runs.approvals().wait(&self.run.id, &call.id);
        let decided = time::timeout_at(self.deadline, decided).await;
        self.run.update(|it| it.set_waiting(false));
        match decided {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("a person refused the call of {tool}")),
            Err(_) => Err(format!("nobody approved of the call of {tool} in time")),
        }
    }

    async fn search_tools(&self, arguments: &str) -> Vec<usize> {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let query = arguments["query"].as_str().unwrap_or_default();
        let mut found = rank_tools(&self.toolbox, &self.agent.embedder, query, |it| {
            self.may_offer(it)
        })
        .await;
        found.truncate(MAX_FOUND_TOOLS);
        found
    }

    fn describe_found(&self, found: &[usize]) -> String {
        let lines = found.iter().map(|at| {
            let tool = &self.toolbox.tools[*at];
            format!("{}: {}", tool.qualified_name, tool.description)
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            "no tool was found".to_owned()
        } else {
            format!("These tools can be called now:\n{}", lines.join("\n"))
        }
    }

    fn find_offered(&self, name: &str) -> Option<&AgentTool> {
        let mut offered = self.offered.iter().map(|at| &self.toolbox.tools[*at]);
        offered.find(|it| it.name == name)
    }

    fn qualified_name(&self, name: &str) -> String {
        let known = self.find_offered(name);
        known.map_or_else(|| name.to_owned(), |it| it.qualified_name.clone())
    }

    async fn emit(&self, happening: RunEvent) {
        // Without a reader the run is about to be dropped.
        let _ = self.events.send(happening).await;
    }
}

fn timed_out_answer(machine: &AgentMachine) -> FinalAnswer {
    FinalAnswer {
        text: machine.last_text().to_owned(),
        cut: Some(CutReason::Time),
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn last_question(messages: &[ChatMessage]) -> String {
    let mut asked = messages.iter().rev().filter(|it| it.role == ChatRole::User);
    asked
        .next()
        .map(ChatMessage::text_content)
        .unwrap_or_default()
}
