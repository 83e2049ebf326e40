//! Models named `agent/…`: the loop with maru's tools, as a chat.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::Response,
};
use futures_util::stream;

use super::{
    super::Hub,
    chat::event_stream,
    chunk::{Writer, whole},
    error,
    wire::Asked,
};
use crate::{
    access::Principal,
    agent::{self, Cut, Happening, Live, Outcome, Question},
    config::ClientMode,
    downstream::http::reply,
    llm::{Answer, Event, Finish, Usage},
};

/// What the name of such a model begins with.
pub(super) const PREFIX: &str = "agent/";

/// Runs the loop. Tools of the client are not maru's to call; they are left out.
pub(super) async fn answer(hub: &Arc<Hub>, who: &Principal, asked: Asked, model: &str) -> Response {
    let shown = asked.request.model.clone();
    let mut other = asked.request.other;
    other.shift_remove("stream_options");
    let question = Question {
        principal: who.clone(),
        model: Some(model.to_owned()),
        messages: asked.request.messages,
        other,
        servers: None,
        rounds: None,
        tool_timeout: None,
        approval: false,
    };
    let live = match hub.agent.start(question) {
        Ok(live) => live,
        Err(error) => return refuse(&error),
    };
    match asked.stream {
        true => streamed(live, Writer::new(&shown, ClientMode::Openai, asked.usage)),
        false => match live.outcome().await {
            Ok(outcome) => {
                let text = whole(&shown, ClientMode::Openai, as_answer(&outcome));
                reply::json(StatusCode::OK, text)
            }
            Err(error) => refuse(&error),
        },
    }
}

fn streamed(live: Live, writer: Writer) -> Response {
    let body = stream::unfold(Some((live, writer, false)), |state| async move {
        let (mut live, mut writer, mut spoke) = state?;
        let mut text = String::new();
        loop {
            match live.next().await {
                Ok(Some(Happening::Answered(outcome))) => {
                    let mut last = vec![
                        Event::Finish(finish(&outcome)),
                        Event::Usage(usage(&outcome)),
                    ];
                    writer.write(&mut last, &mut text);
                    writer.end(&mut text);
                    return Some((Ok::<_, Infallible>(Bytes::from(text)), None));
                }
                Ok(Some(happening)) => {
                    writer.write(&mut events(happening, &mut spoke), &mut text);
                    if !text.is_empty() {
                        return Some((Ok(Bytes::from(text)), Some((live, writer, spoke))));
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    text.push_str(&told(&error));
                    return Some((Ok(Bytes::from(text)), None));
                }
            }
        }
    });
    event_stream(Body::from_stream(body))
}

/// What the client sees of it: the text as text, each round a paragraph, the
/// rest as thought.
fn events(happening: Happening, spoke: &mut bool) -> Vec<Event> {
    match happening {
        Happening::Round(_) if std::mem::take(spoke) => vec![Event::Text("\n\n".to_owned())],
        Happening::Text(text) => {
            *spoke = true;
            vec![Event::Text(text)]
        }
        Happening::Reasoning(text) => vec![Event::Reasoning(text)],
        Happening::TextWasReasoning => vec![Event::TextWasReasoning],
        Happening::Called(called) => {
            vec![Event::Reasoning(format!(
                "\n[{} {}]\n",
                called.tool, called.arguments
            ))]
        }
        _ => Vec::new(),
    }
}

fn as_answer(outcome: &Outcome) -> Answer {
    Answer {
        text: outcome.finished.text.clone(),
        usage: Some(usage(outcome)),
        finish: finish(outcome),
        ..Answer::default()
    }
}

fn finish(outcome: &Outcome) -> Finish {
    match outcome.finished.cut {
        None => Finish::Stop,
        Some(Cut::Rounds | Cut::Tokens | Cut::Length | Cut::Time | Cut::Repeats | Cut::Broken) => {
            Finish::Length
        }
    }
}

fn usage(outcome: &Outcome) -> Usage {
    let shown = outcome.tokens.shown();
    Usage(shown.as_object().cloned().unwrap_or_default())
}

fn refuse(error: &agent::Error) -> Response {
    match error {
        agent::Error::Model(error) => error::failed(error),
        agent::Error::Busy(_) => error::refuse(StatusCode::TOO_MANY_REQUESTS, &error.to_string()),
        agent::Error::NoModel | agent::Error::UnknownServer { .. } => {
            error::refuse(StatusCode::NOT_FOUND, &error.to_string())
        }
    }
}

fn told(error: &agent::Error) -> String {
    match error {
        agent::Error::Model(error) => error::event(error),
        other => format!(
            "data: {}\n\n",
            serde_json::json!({"error": {"message": other.to_string(), "type": "server_error"}})
        ),
    }
}
