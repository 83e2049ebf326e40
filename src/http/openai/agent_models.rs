//! Models named `agent/…`: the agent loop as a chat.

use std::{sync::Arc, time::Duration};

use axum::{http::StatusCode, response::Response};
use futures_util::stream;
use maru_protocol::write_event;
use serde_json::json;

use super::{
    super::HubState,
    call_text::CallOutput,
    chat_request::ChatCompletionRequest,
    chunk::{ChunkWriter, completion_json},
    error,
};
use crate::{
    agent::{self, ActiveRun, AgentRequest, CutReason, RunEvent, RunOutcome},
    auth::Principal,
    downstream::http::{event_stream, reply},
    llm::{ChatEvent, ChatResponse, FinishReason, TokenUsage},
};

/// What the name of such a model begins with.
pub(super) const AGENT_MODEL_PREFIX: &str = "agent/";

/// Runs the loop. maru cannot call the client's own tools and leaves them out.
pub(super) async fn handle(
    hub: &Arc<HubState>,
    principal: &Principal,
    completion: ChatCompletionRequest,
    model: &str,
) -> Response {
    let client_model = completion.request.model.clone();
    let request = AgentRequest {
        principal: principal.clone(),
        model: Some(model.to_owned()),
        messages: completion.request.messages,
        backend_options: completion.request.other,
        servers: None,
        own_tools: Some(true),
        max_rounds: None,
        tool_timeout: None,
        allows_approval: false,
    };
    let run = match hub.agent.start(request) {
        Ok(run) => run,
        Err(error) => return error_response(&error),
    };
    if completion.stream {
        let writer = ChunkWriter::new(
            &client_model,
            CallOutput::ToolCalls,
            completion.include_usage,
        );
        let stream = RunStream {
            run,
            writer,
            has_text: false,
            round_has_text: false,
        };
        respond_stream(stream, hub.engine.limits().keep_alive())
    } else {
        match run.into_outcome().await {
            Ok(outcome) => {
                let response = to_response(&outcome);
                let text = completion_json(&client_model, &CallOutput::ToolCalls, response);
                reply::json(StatusCode::OK, text)
            }
            Err(error) => error_response(&error),
        }
    }
}

/// A run while it is streamed to a client.
struct RunStream {
    run: ActiveRun,
    writer: ChunkWriter,
    /// Whether any text was sent.
    has_text: bool,
    /// Whether any text was sent in this round.
    round_has_text: bool,
}

fn respond_stream(stream: RunStream, keep_alive: Duration) -> Response {
    let events = stream::unfold(Some(stream), |state| async move {
        let mut stream = state?;
        let mut text = String::new();
        loop {
            match stream.run.next().await {
                Ok(Some(RunEvent::Completed(outcome))) => {
                    stream.write_end(&outcome, &mut text);
                    return Some((text, None));
                }
                Ok(Some(event)) => {
                    let mut events = stream.visible_events(event);
                    stream.writer.write(&mut events, &mut text);
                    if !text.is_empty() {
                        return Some((text, Some(stream)));
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    text.push_str(&public_error_event(&error));
                    return Some((text, None));
                }
            }
        }
    });
    event_stream(events, keep_alive)
}

impl RunStream {
    /// What the client sees of an event: text as text, each round a paragraph, the rest as
    /// reasoning.
    fn visible_events(&mut self, event: RunEvent) -> Vec<ChatEvent> {
        match event {
            RunEvent::RoundStarted(_) if std::mem::take(&mut self.round_has_text) => {
                vec![ChatEvent::Text("\n\n".to_owned())]
            }
            RunEvent::Text(text) => {
                self.has_text = true;
                self.round_has_text = true;
                vec![ChatEvent::Text(text)]
            }
            RunEvent::Reasoning(text) => vec![ChatEvent::Reasoning(text)],
            RunEvent::TextWasReasoning => vec![ChatEvent::TextWasReasoning],
            RunEvent::CallStarted(call) => {
                let text = format!("\n[{} {}]\n", call.tool, call.arguments);
                vec![ChatEvent::Reasoning(text)]
            }
            RunEvent::CallRejected { reason, .. } => {
                vec![ChatEvent::Reasoning(format!(
                    "\n[rejected call: {reason}]\n"
                ))]
            }
            _ => Vec::new(),
        }
    }

    fn write_end(&mut self, outcome: &RunOutcome, out: &mut String) {
        let mut events = Vec::new();
        if !self.has_text {
            events.push(ChatEvent::Text(outcome.answer.text.clone()));
        }
        events.push(ChatEvent::Finish(finish(outcome)));
        events.push(ChatEvent::Usage(usage(outcome)));
        self.writer.write(&mut events, out);
        self.writer.write_end(out);
    }
}

fn to_response(outcome: &RunOutcome) -> ChatResponse {
    ChatResponse {
        text: outcome.answer.text.clone(),
        usage: Some(usage(outcome)),
        finish_reason: finish(outcome),
        ..ChatResponse::default()
    }
}

fn finish(outcome: &RunOutcome) -> FinishReason {
    match outcome.answer.cut {
        None => FinishReason::Stop,
        Some(
            CutReason::Rounds
            | CutReason::Tokens
            | CutReason::Length
            | CutReason::Time
            | CutReason::Repeats
            | CutReason::Broken,
        ) => FinishReason::Length,
    }
}

fn usage(outcome: &RunOutcome) -> TokenUsage {
    let shown = outcome.tokens.shown();
    TokenUsage(shown.as_object().cloned().unwrap_or_default())
}

fn error_response(error: &agent::Error) -> Response {
    match error {
        agent::Error::Model(error) => error::model_error_response(error),
        agent::Error::Busy(_) => {
            error::rejection_response(StatusCode::TOO_MANY_REQUESTS, &error.to_string())
        }
        agent::Error::NoModel | agent::Error::UnknownServer { .. } => {
            error::rejection_response(StatusCode::NOT_FOUND, &error.to_string())
        }
    }
}

fn public_error_event(error: &agent::Error) -> String {
    match error {
        agent::Error::Model(error) => error::model_error_event(error),
        other => {
            let body = json!({"error": {"message": other.to_string(), "type": "server_error"}});
            write_event(None, None, &body.to_string())
        }
    }
}
