//! Runs the effects of the machine: asks the model, calls the tools.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{self, Instant},
};

use super::{
    Agent, Cut, Error, Finished, Happening, Outcome, Question,
    machine::{Bounds, Effect, Event, Machine, Observation},
    record::{Called, Given},
    runs::Run,
    select::nearest,
    toolbox::{FIND, Known, Toolbox, find_tools},
};
use crate::{
    llm::{self, Answer, Call, ChatRequest, Choice, Message, Role},
    tool::{self, Caller, OWN_SERVER, Scope, output},
};

/// How often a broken call is asked for again.
const CORRECTIONS: u32 = 2;
/// How many tools a search finds.
const FOUND: usize = 8;
/// How long a server that was named may take to be there.
const CONNECT: Duration = Duration::from_secs(10);

/// Runs to the end. What happens is told to `tell`; if nobody listens, that is
/// no reason to stop, because then the whole future is dropped.
pub(super) async fn run(
    agent: Arc<Agent>,
    question: Question,
    tell: mpsc::Sender<Happening>,
) -> Result<Outcome, Error> {
    let asked = last_question(&question.messages);
    let run = agent.runs.begin(&question.principal, &asked);
    let mut driver = Driver::new(&agent, question, run, tell);
    let done = driver.drive(&asked).await;
    match &done {
        Ok(outcome) => {
            driver.run.note(|it| it.end(Ok(&outcome.finished)));
            driver.tell(Happening::Answered(outcome.clone())).await;
        }
        Err(error) => {
            let why = error.to_string();
            driver.run.note(|it| it.end(Err(&why)));
        }
    }
    done
}

struct Driver<'a> {
    agent: &'a Agent,
    question: Question,
    run: Run,
    tell: mpsc::Sender<Happening>,
    toolbox: Arc<Toolbox>,
    /// Places of the toolbox.
    offered: Vec<usize>,
    /// Whether there are tools that are not offered.
    partly: bool,
    model: String,
    end: Instant,
}

impl<'a> Driver<'a> {
    fn new(agent: &'a Agent, question: Question, run: Run, tell: mpsc::Sender<Happening>) -> Self {
        let limit = Duration::from_millis(agent.settings.timeout_ms);
        Self {
            agent,
            question,
            run,
            tell,
            toolbox: agent.toolbox(),
            offered: Vec::new(),
            partly: false,
            model: String::new(),
            end: Instant::now() + limit,
        }
    }

    async fn drive(&mut self, asked: &str) -> Result<Outcome, Error> {
        self.connect().await;
        self.choose(asked).await;
        self.model = self.model().await?;
        let (tools, tool_tokens) = (self.offered.len(), self.tool_tokens());
        let model = self.model.clone();
        self.run.note(|it| it.begin(&model, tools, tool_tokens));
        self.tell(Happening::Began {
            run: Arc::clone(&self.run.id),
            model,
            tools,
            tool_tokens,
        })
        .await;
        let (machine, finished) = self.rounds().await?;
        let (calls, tokens) = self.run.note(|it| (it.calls(), it.tokens));
        Ok(Outcome {
            run: Arc::clone(&self.run.id),
            model: self.model.clone(),
            finished,
            rounds: machine.rounds(),
            calls,
            tokens,
            tool_tokens,
        })
    }

    async fn rounds(&mut self) -> Result<(Machine, Finished), Error> {
        let (mut machine, mut effect) = Machine::start(self.conversation(), self.bounds());
        loop {
            effect = match effect {
                Effect::Finish(finished) => return Ok((machine, finished)),
                Effect::Ask => match self.ask(&machine).await {
                    Ok(answer) => machine.on(Event::Replied(answer)),
                    Err(_) if self.is_late() => Effect::Finish(late(&machine)),
                    Err(error) => return Err(error.into()),
                },
                Effect::Call(calls) => {
                    let observations = self.call(calls).await;
                    match self.is_late() {
                        true => Effect::Finish(late(&machine)),
                        false => machine.on(Event::Observed(observations)),
                    }
                }
            };
        }
    }

    fn is_late(&self) -> bool {
        self.end <= Instant::now()
    }

    fn bounds(&self) -> Bounds {
        let settings = &self.agent.settings;
        Bounds {
            rounds: self.question.rounds.unwrap_or(settings.max_iterations),
            tokens: settings.max_tokens,
            observation: settings.max_observation_chars,
            corrections: CORRECTIONS,
        }
    }

    /// Servers that were named and are not there get one chance.
    async fn connect(&mut self) {
        let named = self.question.servers.iter().flatten();
        let snapshot = self.agent.catalog.snapshot();
        let away: Vec<&String> = named
            .filter(|it| *it != OWN_SERVER && !snapshot.has_server(it))
            .filter(|it| self.question.principal.may_reach(it))
            .collect();
        if away.is_empty() {
            return;
        }
        let connecting = join_all(away.into_iter().map(|it| self.agent.servers.connect(it)));
        // Those that are late, or not there, have no tools to offer.
        let _ = time::timeout(CONNECT, connecting).await;
        self.toolbox = self.agent.toolbox();
    }

    /// Chooses the tools that are offered.
    async fn choose(&mut self, asked: &str) {
        let settings = &self.agent.settings;
        let (most, budget) = (settings.max_tools_per_request, settings.max_tool_tokens);
        let all = self.toolbox.tools.iter().enumerate();
        let all: Vec<usize> = all
            .filter(|(_, it)| self.may(it))
            .map(|(at, _)| at)
            .collect();
        let cost = |places: &[usize]| -> usize {
            places.iter().map(|at| self.toolbox.tools[*at].tokens).sum()
        };
        if all.len() <= most && cost(&all) <= budget {
            self.offered = all;
            return;
        }
        self.partly = true;
        let ranked = nearest(&self.toolbox, &self.agent.embedder, asked, |it| {
            self.may(it)
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
    fn may(&self, tool: &Known) -> bool {
        let named = self.question.servers.as_ref();
        named.is_none_or(|it| it.iter().any(|name| **name == *tool.server))
            && tool::may_use(&self.question.principal, &tool.offer)
    }

    fn tool_tokens(&self) -> usize {
        let offered = self.offered.iter();
        offered.map(|at| self.toolbox.tools[*at].tokens).sum()
    }

    async fn model(&self) -> Result<String, Error> {
        let configured = self.agent.settings.model.as_ref();
        match self.question.model.as_ref().or(configured) {
            Some(name) => Ok(name.clone()),
            None => {
                let models = self.agent.models.current().models().await;
                let first = models.into_iter().next();
                first.map(|it| it.name).ok_or(Error::NoModel)
            }
        }
    }

    fn conversation(&self) -> Vec<Message> {
        let mut messages = self.question.messages.clone();
        if self.offered.is_empty() {
            return messages;
        }
        let text = self.agent.settings.instructions.as_str();
        match messages.first_mut() {
            Some(first) if first.role == Role::System => {
                let text = format!("{}\n\n{text}", first.content());
                *first = Message::text(Role::System, text);
            }
            _ => messages.insert(0, Message::text(Role::System, text)),
        }
        messages
    }

    async fn ask(&mut self, machine: &Machine) -> Result<Answer, llm::Error> {
        self.tell(Happening::Round(machine.rounds() + 1)).await;
        let mut tools: Vec<llm::Tool> = self
            .offered
            .iter()
            .map(|at| self.toolbox.tools[*at].tool())
            .collect();
        if self.partly {
            tools.push(find_tools());
        }
        let request = ChatRequest {
            model: self.model.clone(),
            messages: machine.messages().to_vec(),
            tools,
            described: Vec::new(),
            choice: Choice::Auto,
            other: self.question.other.clone(),
        };
        let started = Instant::now();
        let left = self.end.saturating_duration_since(started);
        let models = self.agent.models.current();
        let mut stream = models.chat(request, left).await?;
        let mut answer = Answer::default();
        let mut events = Vec::new();
        loop {
            let more = stream.read(&mut events).await;
            for event in events.drain(..) {
                self.tell_event(&event).await;
                answer.add(event);
            }
            if !more? {
                break;
            }
        }
        let took = milliseconds(started);
        self.run.note(|it| it.replied(&answer, took));
        Ok(answer)
    }

    async fn tell_event(&self, event: &llm::Event) {
        let happening = match event {
            llm::Event::Text(text) | llm::Event::Refusal(text) => Happening::Text(text.clone()),
            llm::Event::Broken { text, .. } => Happening::Text(text.clone()),
            llm::Event::Reasoning(text) => Happening::Reasoning(text.clone()),
            llm::Event::TextWasReasoning => Happening::TextWasReasoning,
            llm::Event::Usage(usage) => Happening::Usage(Value::Object(usage.0.clone())),
            llm::Event::Call(_) | llm::Event::Finish(_) => return,
        };
        self.tell(happening).await;
    }

    /// Makes the calls of a round together.
    async fn call(&mut self, calls: Vec<Call>) -> Vec<Observation> {
        for call in &calls {
            let called = Called::new(call, &self.shown_name(&call.name));
            self.run.note(|it| it.called(&called));
            self.tell(Happening::Called(called)).await;
        }
        let made = join_all(calls.iter().map(|call| self.call_one(call))).await;
        let mut observations = Vec::with_capacity(calls.len());
        for (call, (given, found)) in calls.iter().zip(made) {
            self.offered.extend(found);
            self.offered.sort_unstable();
            self.offered.dedup();
            let text = match given.is_error {
                true => format!("Error: {}", given.text),
                false => given.text.clone(),
            };
            let mut called = Called::new(call, &self.shown_name(&call.name));
            called.result = Some(given);
            self.run.note(|it| it.called(&called));
            self.tell(Happening::Observed(called)).await;
            let id = call.id.clone();
            observations.push(Observation { id, text });
        }
        observations
    }

    /// What a call gives, and the tools that it found.
    async fn call_one(&self, call: &Call) -> (Given, Vec<usize>) {
        let started = Instant::now();
        let mut found = Vec::new();
        let given = match self.find_offered(&call.name) {
            _ if call.name == FIND && self.partly => {
                found = self.find(&call.arguments).await;
                Ok((self.describe(&found), false))
            }
            None => Err(format!(
                "there is no tool {} in this run; use one of those that are offered",
                call.name
            )),
            Some(tool) => match self.approved(call, tool).await {
                Err(why) => Err(why),
                Ok(()) => self.ask_catalog(tool, call).await,
            },
        };
        let (text, is_error) = given.unwrap_or_else(|why| (why, true));
        let milliseconds = milliseconds(started);
        let given = Given {
            text,
            is_error,
            milliseconds,
        };
        (given, found)
    }

    async fn ask_catalog(&self, tool: &Known, call: &Call) -> Result<(String, bool), String> {
        let settings = &self.agent.settings;
        let limit = self.question.tool_timeout;
        let limit = limit.unwrap_or(Duration::from_millis(settings.tool_timeout_ms));
        let limit = limit.min(self.end.saturating_duration_since(Instant::now()));
        let arguments =
            tool::Input::read(Some(&call.arguments)).map_err(|it| it.message.into_owned())?;
        let caller = Caller::new(self.question.principal.clone(), Scope::All);
        let asked =
            self.agent
                .catalog
                .call(&caller, &tool.name, Arc::new(arguments), Arc::default());
        match time::timeout(limit, asked).await {
            Err(_) => Err(format!(
                "{} did not answer within {limit:?}",
                tool.qualified
            )),
            Ok(Err(error)) => Err(error.message.into_owned()),
            Ok(Ok(tool::Answer::Complete(result))) => Ok(output::read(&result)),
            Ok(Ok(tool::Answer::InputRequired(_))) => {
                Err("the tool asks back, and nobody can answer in a run".to_owned())
            }
        }
    }

    /// Whether a call may be made; waits for someone's word if it needs that.
    async fn approved(&self, call: &Call, tool: &Known) -> Result<(), String> {
        if !tool.destructive {
            return Ok(());
        }
        if !self.question.approval {
            return Err(format!(
                "{} may destroy something and needs approval, which nobody can give in this run",
                tool.qualified
            ));
        }
        let (id, tool) = (call.id.clone(), tool.qualified.clone());
        self.run.note(|it| it.set_waiting(true));
        self.tell(Happening::Waits {
            id,
            tool: tool.clone(),
        })
        .await;
        let decided = self.agent.runs.approvals().wait(&self.run.id, &call.id);
        let decided = time::timeout_at(self.end, decided).await;
        self.run.note(|it| it.set_waiting(false));
        match decided {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("a person refused the call of {tool}")),
            Err(_) => Err(format!("nobody approved of the call of {tool} in time")),
        }
    }

    async fn find(&self, arguments: &str) -> Vec<usize> {
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let query = arguments["query"].as_str().unwrap_or_default();
        let mut found = nearest(&self.toolbox, &self.agent.embedder, query, |it| {
            self.may(it)
        })
        .await;
        found.truncate(FOUND);
        found
    }

    fn describe(&self, found: &[usize]) -> String {
        let lines = found.iter().map(|at| {
            let tool = &self.toolbox.tools[*at];
            format!("{}: {}", tool.qualified, tool.description)
        });
        let lines: Vec<String> = lines.collect();
        match lines.is_empty() {
            true => "no tool was found".to_owned(),
            false => format!("These tools can be called now:\n{}", lines.join("\n")),
        }
    }

    fn find_offered(&self, name: &str) -> Option<&Known> {
        let mut offered = self.offered.iter().map(|at| &self.toolbox.tools[*at]);
        offered.find(|it| it.name == name)
    }

    fn shown_name(&self, name: &str) -> String {
        let known = self.find_offered(name);
        known.map_or_else(|| name.to_owned(), |it| it.qualified.clone())
    }

    async fn tell(&self, happening: Happening) {
        // Without a reader the run is about to be dropped.
        let _ = self.tell.send(happening).await;
    }
}

fn late(machine: &Machine) -> Finished {
    Finished {
        text: machine.said().to_owned(),
        cut: Some(Cut::Time),
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn last_question(messages: &[Message]) -> String {
    let mut asked = messages.iter().rev().filter(|it| it.role == Role::User);
    asked.next().map(Message::content).unwrap_or_default()
}
