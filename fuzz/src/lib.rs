//! One function per parser of outside text: it takes any bytes and panics where the
//! parser breaks a promise.
//!
//! Two drivers call the same functions: `tests/it/fuzz.rs` with mutated [`seeds`] in every
//! test run, and cargo-fuzz, guided by coverage (`scripts/fuzz`, one target per function).

#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a panic is how a broken promise is reported"
)]

pub mod seeds;

use std::sync::{Arc, LazyLock};

use maru_dialect::{
    DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet, repair_json,
};
use maru_expression::{EvaluationLimits, compile};
use maru_protocol::{RequestParams, RpcMessage, SseEvent, SseReader, validate_json};
use maru_sources::{SqlDialect, check_query_syntax};
use serde_json::{json, value::RawValue};

/// JSON that passes the strict check is JSON for every other parser, and a request can be
/// read without a panic.
pub fn json_rpc(input: &[u8]) {
    let Ok(text) = validate_json(input) else {
        return;
    };
    serde_json::from_str::<&RawValue>(text).unwrap();
    if let Ok(RpcMessage::Request(request)) = RpcMessage::parse(text) {
        let _ = RequestParams::parse(request.params).map(|params| params.meta().is_ok());
    }
}

/// Server-sent events are the same however the bytes are cut into chunks.
pub fn sse(input: &[u8]) {
    fn read_events(chunks: &[&[u8]]) -> (bool, Vec<(Option<String>, String)>) {
        let (mut reader, mut events) = (SseReader::default(), Vec::<SseEvent>::new());
        let is_valid = chunks
            .iter()
            .all(|chunk| reader.feed(chunk, &mut events).is_ok());
        let events = events.into_iter().map(|event| (event.id, event.data));
        (is_valid, events.collect())
    }
    let (cut, input) = take_cut(input);
    let (first, rest) = input.split_at(cut);
    let (second, third) = rest.split_at(rest.len() / 2);
    assert_eq!(read_events(&[input]), read_events(&[first, second, third]));
}

/// Text, reasoning and calls are the same however a model's text is cut into chunks.
pub fn dialect(input: &[u8]) {
    let (cut, input) = take_cut(input);
    let text = String::from_utf8_lossy(input);
    let (first, second) = text.split_at(text.floor_char_boundary(cut));
    for prompted in [false, true] {
        let options = DialectOptions {
            prompted,
            ..DialectOptions::default()
        };
        for was_cut_off in [false, true] {
            assert_eq!(
                ModelOutput::parse(&[&text], options, was_cut_off),
                ModelOutput::parse(&[first, second], options, was_cut_off),
                "{first:?} | {second:?}"
            );
        }
    }
}

/// Repaired JSON is JSON.
pub fn repair(input: &[u8]) {
    if let Ok((repaired, _)) = repair_json(&String::from_utf8_lossy(input)) {
        // As raw text: a number may be too large for some parsers and is JSON all the same.
        serde_json::from_str::<&RawValue>(&repaired).unwrap();
    }
}

/// An expression ends within its limits, with a value or an error.
pub fn expression(input: &[u8]) {
    let arguments = json!({"n": 7, "text": "가나 abc"});
    let source = String::from_utf8_lossy(input);
    if let Ok(program) = compile(&source, &["n", "text"]) {
        let arguments = arguments.as_object().unwrap();
        let _ = program.run(arguments, &EvaluationLimits::default());
    }
}

/// Any text is cut into tokens without a panic, in both SQL dialects.
pub fn sql_lexer(input: &[u8]) {
    let sql = String::from_utf8_lossy(input);
    for dialect in [SqlDialect::Postgres, SqlDialect::Sqlite] {
        let _ = check_query_syntax(&sql, dialect);
    }
}

/// Takes the first two bytes as the position of a cut in the rest.
fn take_cut(input: &[u8]) -> (usize, &[u8]) {
    let Some((position, rest)) = input.split_first_chunk::<2>() else {
        return (0, input);
    };
    let cut = usize::from(u16::from_le_bytes(*position)) % (rest.len() + 1);
    (cut, rest)
}

/// What a parser made of a model's text, adjacent pieces of one kind joined.
#[derive(Debug, Default, PartialEq, Eq)]
struct ModelOutput {
    text: String,
    reasoning: String,
    calls: Vec<DialectEvent>,
}

impl ModelOutput {
    fn parse(chunks: &[&str], options: DialectOptions, was_cut_off: bool) -> Self {
        static TOOLS: LazyLock<Arc<ToolSet>> = LazyLock::new(|| {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}, "n": {"type": "integer"}}});
            Arc::new(ToolSet::new([("echo", &schema)]))
        });
        let mut parser = DialectParser::new(Arc::clone(&TOOLS), DialectSelection::Auto, options);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk, &mut events);
        }
        parser.finish(was_cut_off, &mut events);
        let mut output = Self::default();
        for event in events {
            match event {
                DialectEvent::Text(text) => output.text += &text,
                DialectEvent::Reasoning(text) => output.reasoning += &text,
                DialectEvent::Hallucination(_) => (),
                call => output.calls.push(call),
            }
        }
        output
    }
}
