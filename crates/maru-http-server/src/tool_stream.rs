//! A tool call of the console as a stream of events: progress and log messages of the tool,
//! its questions to the person, and the result.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::{FutureExt as _, future::BoxFuture, stream};
use maru_peers::PeerTopic;
use maru_protocol::{LoggingLevel, RpcError, write_event};
use maru_runtime::message_queue;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    time::{self, Instant},
};

use super::{HubState, body::JsonBody, servers::json_error, tools};
use maru_auth::Principal;
use maru_downstream::http::{event_stream, reply};
use maru_tools::{
    CallArguments, Caller, CatalogScope, EntryResponse, InputResponses, RequestContext,
};

/// How often a tool may ask in one call.
const MAX_INPUT_ROUNDS: usize = 10;
/// How long a person has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// How many questions may wait at a time.
const MAX_PENDING_INPUTS: usize = 256;
/// Events that wait to be written.
const EVENT_QUEUE: usize = 16;

type InputAnswer = Map<String, Value>;

/// An answer of a person, as hubs pass it on.
#[derive(Debug, Deserialize, Serialize)]
struct ToolInputAnswer {
    id: String,
    principal: String,
    responses: InputAnswer,
}

/// Questions of tools that wait for the answer of the person who called, by id.
#[derive(Debug, Default)]
pub struct PendingToolInputs(Mutex<HashMap<String, PendingToolInput>>);

#[derive(Debug)]
struct PendingToolInput {
    principal: Arc<str>,
    answer: oneshot::Sender<InputAnswer>,
}

/// Removes a question when the call that asked it ends.
struct PendingInputGuard<'a> {
    inputs: &'a PendingToolInputs,
    id: String,
}

/// A call of the console, made once more for every answer.
pub(super) struct StreamedCall {
    pub(super) hub: Arc<HubState>,
    pub(super) principal: Principal,
    pub(super) tool: String,
    pub(super) arguments: Arc<CallArguments>,
}

/// The events of a call, and the call while it runs.
struct CallEvents {
    events: mpsc::Receiver<String>,
    running: Option<BoxFuture<'static, ()>>,
}

/// `POST /api/tool-inputs/{id}`: `{"responses"}`, the results by key.
pub(super) async fn answer(
    State(hub): State<Arc<HubState>>,
    Path(id): Path<String>,
    Extension(principal): Extension<Principal>,
    JsonBody(mut body): JsonBody,
) -> Response {
    let responses = body.get_mut("responses").map(Value::take);
    let Some(Value::Object(responses)) = responses else {
        let message = "must be an object with a result for each key";
        return json_error(StatusCode::BAD_REQUEST, message, Some("responses"));
    };
    let answer = ToolInputAnswer {
        id,
        principal: principal.name().to_owned(),
        responses,
    };
    if hub.answer_tool(answer).await {
        reply::empty(StatusCode::NO_CONTENT)
    } else {
        let message = "no call waits for this answer; it has ended, or another caller made it";
        json_error(StatusCode::NOT_FOUND, message, None)
    }
}

impl HubState {
    /// Passes an answer to the call that waits, at this hub or another one.
    async fn answer_tool(&self, answer: ToolInputAnswer) -> bool {
        let owner = answer.id.split_once('.').map_or("", |(hub, _)| hub);
        match self.peers.as_ref().filter(|it| **it.id() != *owner) {
            None => self.tool_inputs.decide(answer),
            Some(peers) => {
                let body = json!(answer).to_string();
                let reply = peers.request(owner, PeerTopic::ToolInput, &body).await;
                reply.is_ok_and(|it| it == "true")
            }
        }
    }
}

/// Takes an answer that reached another hub; returns whether a call waited for it.
pub(super) fn take_answer(hub: &HubState, answer: &str) -> bool {
    serde_json::from_str(answer).is_ok_and(|it| hub.tool_inputs.decide(it))
}

impl StreamedCall {
    /// The call advances as the page reads; it is cancelled when the page leaves.
    pub(super) fn respond(self) -> Response {
        let keep_alive = self.hub.engine.limits().keep_alive();
        let (sender, events) = mpsc::channel(EVENT_QUEUE);
        let running = Some(self.run(sender).boxed());
        let events = stream::unfold(CallEvents { events, running }, CallEvents::next);
        event_stream(events, keep_alive)
    }

    async fn run(self, events: mpsc::Sender<String>) {
        let started = Instant::now();
        let mut inputs = InputResponses::default();
        for _ in 0..MAX_INPUT_ROUNDS {
            let response = self.call_once(mem::take(&mut inputs), &events).await;
            let needed = match response {
                Ok(EntryResponse::InputRequired(needed)) => needed,
                other => {
                    let result = tools::call_json(other, started);
                    return send_event(&events, "result", &result).await;
                }
            };
            match self.ask(needed.requests, &events).await {
                Some(responses) => {
                    inputs = InputResponses {
                        responses,
                        failure: None,
                        state: needed.state,
                    }
                }
                None => break,
            }
        }
        let message = "the tool asked for input, and nobody answered";
        let result = tools::error_json("input_required", message);
        send_event(&events, "result", &result).await;
    }

    /// Calls the tool and forwards its messages meanwhile.
    async fn call_once(
        &self,
        inputs: InputResponses,
        events: &mpsc::Sender<String>,
    ) -> Result<EntryResponse, RpcError> {
        let (outgoing, mut messages) = message_queue::channel();
        let context = RequestContext {
            client: Some(tools::CONSOLE_CLIENT_NAME.into()),
            outgoing: Some(outgoing),
            progress_token: Some("console".into()),
            log_level: Some(LoggingLevel::Debug),
            capabilities: Arc::new(json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}})),
            inputs,
            ..RequestContext::default()
        };
        let caller = Caller::new(self.principal.clone(), CatalogScope::All);
        let catalog = self.hub.engine.catalog();
        let arguments = Arc::clone(&self.arguments);
        let mut calling = catalog
            .call_tool(&caller, &self.tool, arguments, Arc::new(context))
            .boxed();
        let response = loop {
            tokio::select! {
                biased;
                Some(message) = messages.recv() => send_event(events, "message", &message).await,
                response = &mut calling => break response,
            }
        };
        while let Some(message) = messages.try_recv() {
            send_event(events, "message", &message).await;
        }
        response
    }

    /// Asks the person; `None` if there is no answer in time.
    async fn ask(
        &self,
        requests: BTreeMap<String, Value>,
        events: &mpsc::Sender<String>,
    ) -> Option<InputAnswer> {
        let hub = self.hub.peers.as_ref().map_or("", |it| it.id());
        let (guard, answered) = self.hub.tool_inputs.register(&self.principal, hub)?;
        let question = json!({"id": guard.id, "requests": requests});
        send_event(events, "input", &question.to_string()).await;
        time::timeout(ANSWER_TIMEOUT, answered).await.ok()?.ok()
    }
}

impl CallEvents {
    async fn next(mut self) -> Option<(String, Self)> {
        while let Some(running) = &mut self.running {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Some((event, self)),
                () = running => self.running = None,
            }
        }
        let event = self.events.recv().await?;
        Some((event, self))
    }
}

impl PendingToolInputs {
    /// Adds a question of the hub with this id.
    fn register(
        &self,
        principal: &Principal,
        hub: &str,
    ) -> Option<(PendingInputGuard<'_>, oneshot::Receiver<InputAnswer>)> {
        let mut bytes = [0; 18];
        getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
        let id = format!("{hub}.{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        let (answer, answered) = oneshot::channel();
        let mut all = self.lock();
        if all.len() >= MAX_PENDING_INPUTS {
            return None;
        }
        let principal = principal.shared_name();
        all.insert(id.clone(), PendingToolInput { principal, answer });
        Some((PendingInputGuard { inputs: self, id }, answered))
    }

    /// Passes an answer to the call that waits; false if this caller has no such call.
    fn decide(&self, answer: ToolInputAnswer) -> bool {
        let mut all = self.lock();
        if (all.get(&answer.id)).is_none_or(|it| *it.principal != *answer.principal) {
            return false;
        }
        all.remove(&answer.id)
            .is_some_and(|it| it.answer.send(answer.responses).is_ok())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PendingToolInput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PendingInputGuard<'_> {
    fn drop(&mut self) {
        self.inputs.lock().remove(&self.id);
    }
}

async fn send_event(events: &mpsc::Sender<String>, name: &str, data: &str) {
    // Fails if the page has left; then the call is about to be dropped.
    let _ = events.send(write_event(Some(name), None, data)).await;
}
