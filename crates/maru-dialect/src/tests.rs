//! Tests of the whole parser: corpora, every chunking, hostile text.

mod argument_stream;
mod behavior;
mod corpus;
mod escape;
mod format_fixer;
mod hostile;
mod prompted;

use std::sync::Arc;

use serde_json::{Value, json};

use super::{DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet};

/// For a model that our own prompt told how to call.
const PROMPTED: DialectOptions = DialectOptions {
    starts_in_reasoning: false,
    may_start_in_reasoning: false,
    accept_trailing_draft: true,
    prompted: true,
    stream_arguments: false,
};

/// Parses `pieces` as one message and joins what belongs together.
fn parse_pieces<'a>(
    tools: &Arc<ToolSet>,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<DialectEvent> {
    parse_with(tools, DialectOptions::default(), pieces)
}

fn parse_with<'a>(
    tools: &Arc<ToolSet>,
    options: DialectOptions,
    pieces: impl IntoIterator<Item = &'a str>,
) -> Vec<DialectEvent> {
    let mut parser = DialectParser::new(Arc::clone(tools), DialectSelection::Auto, options);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece, &mut events);
    }
    parser.finish(false, &mut events);
    joined(events)
}

/// Joins adjacent pieces of the same kind.
fn joined(events: Vec<DialectEvent>) -> Vec<DialectEvent> {
    let mut out: Vec<DialectEvent> = Vec::new();
    for event in events {
        match (out.last_mut(), event) {
            (Some(DialectEvent::Text(last)), DialectEvent::Text(text))
            | (Some(DialectEvent::Reasoning(last)), DialectEvent::Reasoning(text))
            | (Some(DialectEvent::Hallucination(last)), DialectEvent::Hallucination(text)) => {
                last.push_str(&text);
            }
            (_, event) => out.push(event),
        }
    }
    out
}

/// The text in single characters.
fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices()
        .map(|(at, c)| &text[at..at + c.len_utf8()])
}

/// The text in pieces of one to nine characters, decided by `seed`.
fn random_cuts(text: &str, mut seed: u64) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let count = usize::try_from(seed >> 60).unwrap() / 2 + 1;
        let end = rest
            .char_indices()
            .nth(count)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, left) = rest.split_at(end);
        pieces.push(piece);
        rest = left;
    }
    pieces
}

/// What a client that is not streaming sees.
struct CollectedOutput {
    content: String,
    reasoning: String,
    calls: Vec<(String, Value)>,
    /// The tools that calls name which cannot be made.
    invalid_names: Vec<String>,
}

fn collect_output(events: &[DialectEvent]) -> CollectedOutput {
    let mut output = CollectedOutput {
        content: String::new(),
        reasoning: String::new(),
        calls: Vec::new(),
        invalid_names: Vec::new(),
    };
    for event in events {
        match event {
            DialectEvent::Text(text) => output.content.push_str(text),
            DialectEvent::Reasoning(text) => output.reasoning.push_str(text),
            DialectEvent::TextWasReasoning => {
                output.reasoning = std::mem::take(&mut output.content);
            }
            DialectEvent::InvalidCall(invalid) => {
                output.content.push_str(&invalid.text);
                output.invalid_names.extend(invalid.name.clone());
            }
            DialectEvent::Call(call) | DialectEvent::CallFinished(call) => {
                let arguments = serde_json::from_str(&call.arguments).unwrap();
                output.calls.push((call.name.clone(), arguments));
            }
            DialectEvent::Hallucination(_)
            | DialectEvent::CallStarted(_)
            | DialectEvent::CallArguments(_) => (),
        }
    }
    output
}

/// Some tools of different shapes.
fn tools() -> Arc<ToolSet> {
    let weather = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]});
    let file = json!({"type": "object", "properties": {
        "path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"]});
    let everyone = json!({"type": "object", "properties": {}});
    Arc::new(ToolSet::new([
        ("get_weather", &weather),
        ("write_file", &file),
        ("get_all_employees", &everyone),
    ]))
}
