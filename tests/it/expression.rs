//! Expressions compared with the Python interpreter, and hostile ones. What needs neither
//! is tested in the crate.

use std::{fs, process::Command, time::Duration};

use maru_expression::{Error, ErrorKind, EvaluationLimits, EvaluationOutput, compile};
use serde_json::{Map, Value, value::RawValue};
use tokio::time::Instant;

const MANIFEST_DIR: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn hostile_expressions_are_stopped_and_others_have_the_value_of_python() {
    let mut wrong = Vec::new();
    for case in read_jsonl("tests/security/hostile_exprs.jsonl") {
        let source = source_of(&case);
        let start = Instant::now();
        let done = evaluate(&source, &arguments(&case), &EvaluationLimits::default());
        let most = case["max_ms"].as_u64().unwrap_or(250);
        if start.elapsed() > Duration::from_millis(most) {
            wrong.push(format!("{}: took {:?}", case["id"], start.elapsed()));
        }
        let is_hostile = case["kind"] == "hostile";
        let may_pass = !is_hostile || case.get("accept").is_some();
        match done {
            Err(_) if is_hostile => (),
            Ok(done) if may_pass && matches_expected(&case, &done) => (),
            done => wrong.push(format!("{}: {done:?}", case["id"])),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documented_table_matches_cpython() {
    let cases = read_jsonl("tests/expression/table.jsonl");
    assert!(cases.len() >= 300);
    let wrong: Vec<String> = cases.iter().filter_map(difference_from_python).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn random_expressions_match_cpython() {
    let script = format!("{MANIFEST_DIR}/tests/expression/cpython.py");
    let output = Command::new("python3")
        .args(["-W", "ignore", &script, "random", "20261116", "4000"])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    let cases: Vec<Value> = shown
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert!(
        cases.len() > 3500,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let wrong: Vec<String> = cases.iter().filter_map(difference_from_python).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn evaluate(
    source: &str,
    arguments: &Map<String, Value>,
    limits: &EvaluationLimits,
) -> Result<EvaluationOutput, Error> {
    let names: Vec<&str> = arguments.keys().map(String::as_str).collect();
    compile(source, &names)?.run(arguments, limits)
}

fn read_jsonl(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(format!("{MANIFEST_DIR}/{path}")).unwrap();
    text.lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect()
}

fn to_map(json: &Value) -> Map<String, Value> {
    json.as_object().cloned().unwrap_or_default()
}

fn arguments(case: &Value) -> Map<String, Value> {
    to_map(&case["args"])
}

fn source_of(case: &Value) -> String {
    if let Some(source) = case["expr"].as_str() {
        return source.to_owned();
    }
    let parts = case["parts"].as_array().unwrap();
    let part = |it: &Value| {
        it[0]
            .as_str()
            .unwrap()
            .repeat(it[1].as_u64().unwrap() as usize)
    };
    parts.iter().map(part).collect()
}

fn matches_expected(case: &Value, done: &EvaluationOutput) -> bool {
    let same_type = case.get("type").is_none_or(|it| it == done.type_name);
    // Numbers that no `Value` holds are compared by their digits.
    let wanted: Box<RawValue> = serde_json::value::to_raw_value(&case["value"]).unwrap();
    let given: Value = serde_json::from_str(done.json.get()).unwrap();
    same_type && (given == case["value"] || wanted.get() == done.json.get())
}

/// What differs from the answer of Python, if something does.
fn difference_from_python(case: &Value) -> Option<String> {
    let limits = EvaluationLimits {
        time: Duration::from_secs(5),
        ..EvaluationLimits::default()
    };
    let done = evaluate(case["expr"].as_str().unwrap(), &arguments(case), &limits);
    let same = match (&done, case["error"].as_str()) {
        (Ok(done), None) => done.text == case["text"] && done.type_name == case["type"],
        (Err(fault), Some(error)) => fault.kind.name() == error || fault.kind == ErrorKind::Limit,
        // Values that are too large, or that JSON cannot carry.
        (Err(fault), None) => {
            fault.kind == ErrorKind::Limit || is_not_json_serializable(&fault.message)
        }
        (Ok(_), Some(_)) => false,
    };
    (!same).then(|| format!("{case}: {done:?}"))
}

fn is_not_json_serializable(message: &str) -> bool {
    ["not JSON", "keys must be", "are both written"]
        .iter()
        .any(|it| message.contains(it))
}
