//! Replies of many models, and what they mean.

use super::{
    Arc, DialectEvent, ToolSet, Value, characters, collect_output, parse_pieces, random_cuts,
};

const CORPUS: &str = include_str!("../../../../tests/data/dialects.jsonl");
const EXTRA_CORPUS: &str = include_str!("../../../../tests/data/dialects_more.jsonl");

#[test]
fn every_case_is_right_in_every_chunking() {
    let mut wrong = Vec::new();
    for line in CORPUS.lines().chain(EXTRA_CORPUS.lines()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = case["text"].as_str().unwrap();
        let tools = tools_of(&case);
        let whole = parse_pieces(&tools, [text]);
        if let Some(problem) = problem(&case, &whole) {
            wrong.push(format!("{}: {problem}: {whole:#?}", case["id"]));
        }
        if parse_pieces(&tools, characters(text)) != whole {
            wrong.push(format!("{}: differs by characters", case["id"]));
        }
        for seed in 0..20 {
            if parse_pieces(&tools, random_cuts(text, seed)) != whole {
                wrong.push(format!("{}: differs by cuts {seed}", case["id"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn nothing_is_a_call_when_no_tool_is_offered() {
    for line in CORPUS.lines().chain(EXTRA_CORPUS.lines()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let events = parse_pieces(&Arc::default(), [case["text"].as_str().unwrap()]);
        let call = events.iter().find(|it| matches!(it, DialectEvent::Call(_)));
        assert_eq!(call, None, "{}", case["id"]);
    }
}

fn tools_of(case: &Value) -> Arc<ToolSet> {
    let tools = case["tools"].as_array().unwrap().iter();
    let tools = tools.map(|it| &it["function"]);
    let tools = tools.map(|it| (it["name"].as_str().unwrap(), &it["parameters"]));
    Arc::new(ToolSet::new(tools))
}

/// What is wrong with `events`, if anything is.
fn problem(case: &Value, events: &[DialectEvent]) -> Option<&'static str> {
    let expect = &case["expect"];
    let seen = collect_output(events);
    let wanted = expect["tool_calls"].as_array().unwrap();
    let same = |(call, wanted): (&(String, Value), &Value)| {
        call.0 == wanted["name"] && is_same(&call.1, &wanted["arguments"])
    };
    if seen.calls.len() != wanted.len() || !seen.calls.iter().zip(wanted).all(same) {
        return Some("calls");
    }
    let content = expect["content"].as_str().unwrap();
    if content != "*" && collapsed(&seen.content) != collapsed(content) {
        return Some("content");
    }
    let reasoning = expect["reasoning"].as_str();
    if reasoning.is_some_and(|it| collapsed(it) != collapsed(&seen.reasoning)) {
        return Some("reasoning");
    }
    None
}

/// Whether two values are equal, with `1` and `1.0` the same.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |(key, value): (&String, &Value)| {
                right.get(key).is_some_and(|other| is_same(value, other))
            };
            left.len() == right.len() && left.iter().all(same)
        }
        _ => left == right,
    }
}

fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
