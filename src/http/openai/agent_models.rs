//! Models named `agent/…`: the loop with maru's tools, as a chat.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use futures_util::stream;
use maru_protocol::write_event;
use serde_json::json;

use super::{
    super::HubState,
    chat_request::ChatCompletionRequest,
    chunk::{ChunkWriter, completion_json},
    error,
};
use crate::{
    agent::{self, ActiveRun, AgentRequest, CutReason, RunEvent, RunOutcome},
    auth::Principal,
    config::ClientMode,
    downstream::http::{event_stream, reply},
    llm::{ChatEvent, ChatResponse, FinishReason, TokenUsage},
};

/// What the name of such a model begins with.
pub(super) const AGENT_MODEL_PREFIX: &str = "agent/";

/// Runs the loop. Tools of the client are not maru's to call; they are left out.
pub(super) async fn handle(
    hub: &Arc<HubState>,
    who: &Principal,
    asked: ChatCompletionRequest,
    model: &str,
) -> Response {
    let shown = asked.request.model.clone();
    let mut other = asked.request.other;
    other.shift_remove("stream_options");
    let question = AgentRequest {
        principal: who.clone(),
        model: Some(model.to_owned()),
        messages: asked.request.messages,
        backend_options: other,
        servers: None,
        max_rounds: None,
        tool_timeout: None,
        allows_approval: false,
    };
    let live = match hub.agent.start(question) {
        Ok(live) => live,
        Err(error) => return error_response(&error),
    };
    if asked.stream {
        respond_stream(
            live,
            ChunkWriter::new(&shown, ClientMode::Openai, asked.include_usage),
        )
    } else {
        match live.into_outcome().await {
            Ok(outcome) => {
                let text = completion_json(&shown, ClientMode::Openai, as_answer(&outcome));
                reply::json(StatusCode::OK, text)
            }
            Err(error) => error_response(&error),
        }
    }
}

fn respond_stream(live: ActiveRun, writer: ChunkWriter) -> Response {
    let events = stream::unfold(Some((live, writer, false)), |state| async move {
        let (mut live, mut writer, mut spoke) = state?;
        let mut text = String::new();
        loop {
            match live.next().await {
                Ok(Some(RunEvent::Completed(outcome))) => {
                    let mut last = vec![
                        ChatEvent::Finish(finish(&outcome)),
                        ChatEvent::Usage(usage(&outcome)),
                    ];
                    writer.write(&mut last, &mut text);
                    writer.write_end(&mut text);
                    return Some((text, None));
                }
                Ok(Some(happening)) => {
                    writer.write(&mut visible_events(happening, &mut spoke), &mut text);
                    if !text.is_empty() {
                        return Some((text, Some((live, writer, spoke))));
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
    event_stream(events)
}

/// What the client sees of it: the text as text, each round a paragraph, the
/// rest as thought.
fn visible_events(happening: RunEvent, spoke: &mut bool) -> Vec<ChatEvent> {
    match happening {
        RunEvent::RoundStarted(_) if std::mem::take(spoke) => {
            vec![ChatEvent::Text("\n\n".to_owned())]
        }
        RunEvent::Text(text) => {
            *spoke = true;
            vec![ChatEvent::Text(text)]
        }
        RunEvent::Reasoning(text) => vec![ChatEvent::Reasoning(text)],
        RunEvent::TextWasReasoning => vec![ChatEvent::TextWasReasoning],
        RunEvent::CallStarted(called) => {
            vec![ChatEvent::Reasoning(format!(
                "\n[{} {}]\n",
                called.tool, called.arguments
            ))]
        }
        _ => Vec::new(),
    }
}

fn as_answer(outcome: &RunOutcome) -> ChatResponse {
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
