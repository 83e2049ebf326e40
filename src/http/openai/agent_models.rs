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
    agent::{self, ActiveRun, AgentRequest, RunEvent, RunOutcome},
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
    let run = RunReader {
        run,
        has_text: false,
        round_has_text: false,
    };
    if completion.stream {
        let writer = ChunkWriter::new(
            &client_model,
            CallOutput::ToolCalls,
            completion.include_usage,
        );
        respond_stream(run, writer, hub.engine.limits().keep_alive())
    } else {
        match run.collect_response().await {
            Ok(response) => {
                let text = completion_json(&client_model, &CallOutput::ToolCalls, response);
                reply::json(StatusCode::OK, text)
            }
            Err(error) => error_response(&error),
        }
    }
}

/// Reads a run as the response of a chat model.
struct RunReader {
    run: ActiveRun,
    /// Whether there was any text.
    has_text: bool,
    /// Whether there was any text in this round.
    round_has_text: bool,
}

fn respond_stream(run: RunReader, writer: ChunkWriter, keep_alive: Duration) -> Response {
    let events = stream::unfold(Some((run, writer)), |state| async move {
        let (mut run, mut writer) = state?;
        let mut text = String::new();
        loop {
            match run.run.next().await {
                Ok(Some(event)) => {
                    let is_last = matches!(event, RunEvent::Completed(_));
                    let mut events = run.visible_events(event);
                    writer.write(&mut events, &mut text);
                    if is_last {
                        writer.write_end(&mut text);
                        return Some((text, None));
                    }
                    if !text.is_empty() {
                        return Some((text, Some((run, writer))));
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

impl RunReader {
    /// Reads to the end. The response has the text and the reasoning of the stream.
    async fn collect_response(mut self) -> Result<ChatResponse, agent::Error> {
        let mut response = ChatResponse::default();
        let mut round_start = 0;
        while let Some(event) = self.run.next().await? {
            if matches!(event, RunEvent::RoundStarted(_)) {
                round_start = response.text.len();
            }
            for event in self.visible_events(event) {
                match event {
                    // Of this round, not of those before.
                    ChatEvent::TextWasReasoning => {
                        let text = response.text.split_off(round_start);
                        response.reasoning.push_str(text.trim_start());
                    }
                    event => response.apply_event(event),
                }
            }
        }
        Ok(response)
    }

    /// What the client sees of an event: text as text, each round a paragraph, the rest as
    /// reasoning.
    fn visible_events(&mut self, event: RunEvent) -> Vec<ChatEvent> {
        match event {
            RunEvent::RoundStarted(_) => {
                self.round_has_text = false;
                Vec::new()
            }
            RunEvent::Text(text) => {
                let begins_paragraph = self.has_text && !self.round_has_text;
                self.has_text = true;
                self.round_has_text = true;
                let gap = if begins_paragraph { "\n\n" } else { "" };
                vec![ChatEvent::Text(format!("{gap}{text}"))]
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
            RunEvent::Completed(outcome) => {
                let mut events = vec![
                    ChatEvent::Finish(finish(&outcome)),
                    ChatEvent::Usage(usage(&outcome)),
                ];
                if !self.has_text {
                    events.insert(0, ChatEvent::Text(outcome.answer.text));
                }
                events
            }
            _ => Vec::new(),
        }
    }
}

fn finish(outcome: &RunOutcome) -> FinishReason {
    match outcome.answer.cut {
        None => FinishReason::Stop,
        Some(_) => FinishReason::Length,
    }
}

fn usage(outcome: &RunOutcome) -> TokenUsage {
    let shown = outcome.tokens.shown();
    TokenUsage(shown.as_object().cloned().unwrap_or_default())
}

fn error_response(error: &agent::Error) -> Response {
    match error {
        agent::Error::Model(error) | agent::Error::UnknownModel(error) => {
            error::model_error_response(error)
        }
        agent::Error::Timeout { .. } => {
            let body = error::timeout_body(&error.to_string());
            reply::json(StatusCode::GATEWAY_TIMEOUT, body.to_string())
        }
        agent::Error::Stopping => error::stopping_response(),
        agent::Error::Busy(_) => {
            error::rejection_response(StatusCode::TOO_MANY_REQUESTS, &error.to_string())
        }
        agent::Error::ServersUnavailable(_) => {
            error::rejection_response(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
        agent::Error::NoModel | agent::Error::UnknownServer { .. } => {
            error::rejection_response(StatusCode::NOT_FOUND, &error.to_string())
        }
    }
}

fn public_error_event(error: &agent::Error) -> String {
    match error {
        agent::Error::Model(error) | agent::Error::UnknownModel(error) => {
            error::model_error_event(error)
        }
        agent::Error::Timeout { .. } => {
            let body = error::timeout_body(&error.to_string());
            write_event(None, None, &body.to_string())
        }
        agent::Error::Stopping => error::stopping_event(),
        other => {
            let body = json!({"error": {"message": other.to_string(), "type": "server_error"}});
            write_event(None, None, &body.to_string())
        }
    }
}
