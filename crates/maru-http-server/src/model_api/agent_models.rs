//! Models named `agent/…`: the agent loop as a chat.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use futures_util::stream;
use serde_json::Value;

use super::{
    super::HubState, ApiError, ClientApi, ParsedRequest, call_text::CallOutput,
    response_stream::StreamWriter,
};
use maru_agent::{self as agent, ActiveRun, AgentRequest, ApprovalPolicy, RunEvent, RunOutcome};
use maru_auth::Principal;
use maru_downstream::http::{reply, stream_with_ping};
use maru_llm::{
    ChatEvent, ChatMessage, ChatResponse, ChatRole, FinishReason, TextPrompt, TokenUsage,
};

/// What the name of such a model begins with.
pub(in super::super) const AGENT_MODEL_PREFIX: &str = "agent/";

/// Runs the loop with `model`. maru cannot call the client's own tools and leaves them out.
pub(super) async fn respond<A: ClientApi>(
    hub: &Arc<HubState>,
    principal: &Principal,
    parsed: ParsedRequest<A>,
    model: String,
) -> Result<Response, ApiError> {
    let messages = match parsed.request.text_prompt {
        None => parsed.request.messages,
        Some(prompt) => vec![prompt_as_question(prompt)?],
    };
    let request = AgentRequest {
        principal: principal.clone(),
        model: Some(model),
        messages,
        backend_options: parsed.request.other,
        servers: None,
        toolset: None,
        own_tools: Some(true),
        max_rounds: None,
        tool_timeout: None,
        approval: ApprovalPolicy::Nobody,
    };
    let run = hub.agent.start(request).map_err(|it| ApiError::from(&it))?;
    let run = RunReader {
        run,
        has_text: false,
        round_has_text: false,
    };
    if parsed.stream {
        let writer = StreamWriter::new(parsed.api, CallOutput::ToolCalls);
        let (keep_alive, ping) = (hub.engine.limits().keep_alive(), writer.keep_alive());
        let texts = stream::unfold(Some((run, writer)), next_text);
        Ok(stream_with_ping(A::STREAM_TYPE, texts, keep_alive, ping))
    } else {
        let response = run.collect_response().await;
        let response = response.map_err(|it| ApiError::from(&it))?;
        let body = parsed.api.response_body(response);
        Ok(reply::json(StatusCode::OK, body))
    }
}

/// An agent answers a text, instead of continuing it.
fn prompt_as_question(prompt: TextPrompt) -> Result<ChatMessage, ApiError> {
    match (prompt.prompt, prompt.suffix) {
        (Value::String(text), None) => Ok(ChatMessage::text(ChatRole::User, text)),
        (_, Some(_)) => Err(ApiError::invalid("suffix", "an agent fills no gaps")),
        (_, None) => Err(ApiError::invalid(
            "prompt",
            "prompt must be text for an agent",
        )),
    }
}

/// The next text of a stream, and what is left of it.
async fn next_text<A: ClientApi>(
    rest: Option<(RunReader, StreamWriter<A>)>,
) -> Option<(String, Option<(RunReader, StreamWriter<A>)>)> {
    let (mut run, mut writer) = rest?;
    let mut text = String::new();
    loop {
        match run.run.next().await {
            Ok(Some(event)) => {
                let is_last = matches!(event, RunEvent::Completed(_));
                writer.write(&mut run.visible_events(event), &mut text);
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
                writer.write_error(&ApiError::from(&error), &mut text);
                return Some((text, None));
            }
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
    let shown = outcome.tokens.to_json();
    TokenUsage(shown.as_object().cloned().unwrap_or_default())
}
