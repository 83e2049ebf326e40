//! Replies of many models, and what they mean.

use super::{
    Arc, DialectEvent, DialectOptions, PROMPTED, ToolSet, Value, characters, collect_output,
    parse_pieces, parse_with, random_cuts,
};

/// Published cases, each with its tools.
const CORPORA: [&str; 3] = [
    include_str!("../../../../tests/data/dialects.jsonl"),
    include_str!("../../../../tests/data/dialects_more.jsonl"),
    include_str!("../../../../tests/data/dialects_public_2.jsonl"),
];
/// Further cases; the first line holds the tools of all.
const CASES: &str = include_str!("../../../../tests/data/dialects_cases.jsonl");
/// More of them, of the same tools. `"native": "*"` marks what only prompted models mean.
const MORE_CASES: &str = include_str!("../../../../tests/data/dialects_cases_2.jsonl");
/// Variants of all families: line breaks, quotes, nesting, Korean, and examples that are no calls.
const VARIANT_CASES: &str = include_str!("../../../../tests/data/dialects_cases_3.jsonl");
/// What models write by their chat templates, in the same form.
const TEMPLATE_CASES: &str = include_str!("../../../../tests/data/dialects_templates.jsonl");

#[test]
fn every_case_is_right_in_every_chunking() {
    let mut wrong = Vec::new();
    for case in corpus_cases() {
        let options = DialectOptions::default();
        let expect = &case["expect"];
        check(
            &case,
            &tools_of(&case["tools"]),
            options,
            expect,
            &mut wrong,
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_further_case_is_right_for_native_and_prompted_models() {
    let more = MORE_CASES.lines().chain(VARIANT_CASES.lines());
    check_cases(CASES.lines().chain(more));
}

#[test]
fn every_case_of_chat_templates_is_right_for_native_and_prompted_models() {
    check_cases(TEMPLATE_CASES.lines());
}

/// Checks cases of which the first line holds the tools.
fn check_cases<'a>(lines: impl Iterator<Item = &'a str>) {
    let mut wrong = Vec::new();
    let mut lines = lines.map(|line| serde_json::from_str(line).unwrap());
    let header: Value = lines.next().unwrap();
    let tools = tools_of(&header["tools"]);
    for case in lines {
        if case["native"] != "*" {
            check(&case, &tools, DialectOptions::default(), &case, &mut wrong);
        }
        let prompted = case.get("prompted").unwrap_or(&case);
        if prompted != "*" {
            check(&case, &tools, PROMPTED, prompted, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A model that was told how to call makes no call that a native one does not mean,
/// but for words after a call.
#[test]
fn prompted_models_make_no_false_calls() {
    for case in corpus_cases() {
        let text = case["text"].as_str().unwrap();
        let events = parse_with(&tools_of(&case["tools"]), PROMPTED, [text]);
        let calls = collect_output(&events).calls.len();
        let expected = case["expect"]["tool_calls"].as_array().unwrap().len();
        let words_follow = case["id"] == "bare_json-m03";
        assert!(
            calls <= expected || words_follow,
            "{}: {events:#?}",
            case["id"]
        );
    }
}

#[test]
fn nothing_is_a_call_when_no_tool_is_offered() {
    for case in corpus_cases() {
        let events = parse_pieces(&Arc::default(), [case["text"].as_str().unwrap()]);
        let call = events.iter().find(|it| matches!(it, DialectEvent::Call(_)));
        assert_eq!(call, None, "{}", case["id"]);
    }
}

pub(super) fn corpus_cases() -> impl Iterator<Item = Value> {
    let lines = CORPORA.iter().flat_map(|corpus| corpus.lines());
    lines.map(|line| serde_json::from_str(line).unwrap())
}

/// Notes in `wrong` what differs from `expect`, whole or in some chunking.
fn check(
    case: &Value,
    tools: &Arc<ToolSet>,
    options: DialectOptions,
    expect: &Value,
    wrong: &mut Vec<String>,
) {
    let id = format!("{} prompted={}", case["id"], options.prompted);
    let text = case["text"].as_str().unwrap();
    let whole = parse_with(tools, options, [text]);
    if let Some(problem) = problem(expect, &whole) {
        wrong.push(format!("{id}: {problem}: {whole:#?}"));
    }
    if parse_with(tools, options, characters(text)) != whole {
        wrong.push(format!("{id}: differs by characters"));
    }
    for seed in 0..8 {
        if parse_with(tools, options, random_cuts(text, seed)) != whole {
            wrong.push(format!("{id}: differs by cuts {seed}"));
        }
    }
}

pub(super) fn tools_of(tools: &Value) -> Arc<ToolSet> {
    let tools = tools.as_array().unwrap().iter();
    let tools = tools.map(|it| &it["function"]);
    let tools = tools.map(|it| (it["name"].as_str().unwrap(), &it["parameters"]));
    Arc::new(ToolSet::new(tools))
}

/// What is wrong with `events`, if anything is. The published corpora write calls as
/// objects under `tool_calls`, ours as pairs under `calls`.
fn problem(expect: &Value, events: &[DialectEvent]) -> Option<&'static str> {
    let output = collect_output(events);
    let expected: Vec<(&Value, &Value)> = match expect.get("tool_calls") {
        Some(calls) => calls
            .as_array()
            .unwrap()
            .iter()
            .map(|call| (&call["name"], &call["arguments"]))
            .collect(),
        None => expect["calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| (&call[0], &call[1]))
            .collect(),
    };
    let same = |(call, expected): (&(String, Value), &(&Value, &Value))| {
        call.0 == *expected.0 && is_same(&call.1, expected.1)
    };
    if output.calls.len() != expected.len() || !output.calls.iter().zip(&expected).all(same) {
        return Some("calls");
    }
    let content = expect["content"].as_str().unwrap();
    if content != "*" && collapsed(&output.content) != collapsed(content) {
        return Some("content");
    }
    let reasoning = expect["reasoning"].as_str();
    if reasoning.is_some_and(|it| collapsed(it) != collapsed(&output.reasoning)) {
        return Some("reasoning");
    }
    let invalid = expect["invalid"].as_str();
    if invalid.is_some_and(|name| output.invalid_names != [name]) {
        return Some("invalid call");
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
