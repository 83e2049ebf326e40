//! Expressions: what Python says, and what nothing may do.

use std::{fs, process::Command, thread, time::Duration};

use maru_expression::{
    Error, ErrorKind, EvaluationLimits, EvaluationOutput, LocalTimestamp, compile,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json, value::RawValue};
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

#[test]
fn documented_examples_work() {
    let arguments = to_map(&json!({"num1": 5, "num2": 3}));
    let done = evaluate("num1 * num2", &arguments, &EvaluationLimits::default()).unwrap();
    assert_eq!((done.json.get(), done.text.as_str()), ("15", "15"));
    let done = evaluate(
        "result = num1 * num2",
        &arguments,
        &EvaluationLimits::default(),
    )
    .unwrap();
    assert_eq!(done.json.get(), "15");
}

#[test]
fn a_result_is_json_with_every_digit() {
    for (source, json) in [
        ("10**30", "1000000000000000000000000000000"),
        ("-2**64", "-18446744073709551616"),
        ("(1, 'a', None, True)", r#"[1,"a",null,true]"#),
        (
            "{1: 1.0, None: 1e20, 'k': \"\\n\"}",
            r#"{"1":1.0,"null":1e+20,"k":"\n"}"#,
        ),
        ("date(2024, 5, 6)", r#""2024-05-06""#),
    ] {
        let done = evaluate(source, &Map::new(), &EvaluationLimits::default()).unwrap();
        assert_eq!(done.json.get(), json, "{source}");
    }
}

#[test]
fn values_without_a_json_form_are_refused() {
    for source in [
        "{1, 2}",
        "[{1}]",
        "range(3)",
        "(x for x in [1])",
        "{'a': 1}.keys()",
        "zip([1])",
        "1e308 * 10",
        "float('nan')",
        "{(1, 2): 3}",
        "{1: 2, '1': 3}",
    ] {
        assert!(
            evaluate(source, &Map::new(), &EvaluationLimits::default()).is_err(),
            "{source}"
        );
    }
}

#[test]
fn errors_name_line_and_column() {
    for (source, kind, line, column) in [
        ("1 +", ErrorKind::Syntax, 1, 4),
        (
            "a = 1\nb = a / 0\nresult = b",
            ErrorKind::ZeroDivision,
            2,
            7,
        ),
        ("a = 1\nresult = a + c", ErrorKind::Name, 2, 14),
        ("'한글' + 1", ErrorKind::Type, 1, 6),
        ("f'{1 + nope}'", ErrorKind::Name, 1, 8),
        ("[1, 2][5]", ErrorKind::Index, 1, 7),
        ("'a'.nosuch()", ErrorKind::Attribute, 1, 4),
        ("import os", ErrorKind::Syntax, 1, 1),
        ("sum(\n  [1, 'a'])", ErrorKind::Type, 1, 1),
    ] {
        let fault = evaluate(source, &Map::new(), &EvaluationLimits::default()).unwrap_err();
        assert_eq!(
            (fault.kind, fault.line, fault.column),
            (kind, line, column),
            "{source}: {fault}"
        );
    }
}

#[test]
fn misspelt_name_gets_a_suggestion() {
    for (source, near) in [
        ("nmae", "'name'"),
        ("lne(name)", "'len'"),
        ("name.uper()", "'upper'"),
        ("math.sqr(2)", "'sqrt'"),
        ("'{}'.format(name)", "f-string"),
        ("[1].append(2)", "items + [x]"),
    ] {
        let fault = compile(source, &["name"]).unwrap_err();
        assert!(fault.message.contains(near), "{fault}");
    }
}

#[test]
fn used_parameters_are_known_before_it_runs() {
    let program = compile("[a for b in c]", &["c", "b", "a", "unused"]).unwrap();
    assert_eq!(program.used_parameters().collect::<Vec<_>>(), ["c", "a"]);
}

#[test]
fn clock_is_passed_in() {
    let fault = evaluate("date.today()", &Map::new(), &EvaluationLimits::default()).unwrap_err();
    assert_eq!(fault.kind, ErrorKind::Value);
    let now = Some(LocalTimestamp {
        unix_microseconds: 1_700_000_000_000_000,
        offset_seconds: 9 * 3600,
    });
    let limits = EvaluationLimits {
        now,
        ..EvaluationLimits::default()
    };
    let done = evaluate("[date.today(), datetime.now()]", &Map::new(), &limits).unwrap();
    assert_eq!(done.json.get(), r#"["2023-11-15","2023-11-15T07:13:20"]"#);
}

#[test]
fn every_limit_is_enforced() {
    for source in [
        "sum(1 for x in range(9999) for y in range(9999))",
        "[[0] * 9999 for x in range(9999)]",
        "2 ** 5000",
        "'a' * 100001",
        "list(range(10001))",
        "[0] * 10001",
        "[pow(3, 2**1000, 2**1024 - 3) for i in range(1000)]",
        "[('a' * 90000).replace('a', 'b') for i in range(9999)]",
        "math.factorial(10**9)",
        "math.comb(10**15, 10**14)",
        "f'{1.5:.999999999f}'",
        "'%*d' % (10**9, 1)",
        "('\\t' * 50000).expandtabs(10**9)",
        "'x'.center(10**12)",
        "dict(**{'a' + str(i): i for i in range(9999)}, **{'b' + str(i): i for i in range(9999)})",
        "max([('a',) * 9999] * 9999)",
        "str([[1] * 9999] * 9999)",
        "a = [0] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\nresult = a",
    ] {
        let start = Instant::now();
        let fault = evaluate(source, &Map::new(), &EvaluationLimits::default()).unwrap_err();
        assert_eq!(fault.kind, ErrorKind::Limit, "{source}: {fault}");
        assert!(
            start.elapsed() < Duration::from_millis(500),
            "{source}: {:?}",
            start.elapsed()
        );
    }
}

#[test]
fn depth_never_ends_a_small_stack() {
    let deep = |open: &str, middle: &str, close: &str| -> Vec<String> {
        [20, 40, 55, 59, 60, 61, 200, 800]
            .map(|n| format!("{}{middle}{}", open.repeat(n), close.repeat(n)))
            .to_vec()
    };
    let mut sources = Vec::new();
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("[", "", "]"),
        ("abs(", "1", ")"),
        ("-(", "1", ")"),
        ("not (", "1", ")"),
        ("1 if 1 else ", "1", ""),
        ("2 ** ", "1", ""),
        ("{1:", "1", "}"),
        ("[x for x in ", "[1]", "]"),
        ("sum(x for x in ", "[1]", ")"),
        ("list(map(lambda v: v, ", "[1]", "))"),
        ("sorted([1], key=lambda v: ", "1", ")"),
        ("f'{", "1", "}'"),
        ("x[", "0", "]"),
        ("1 or 1 and not 1 == 1 | 1 ^ 1 & 1 << 1 + 1 * (", "1", ")"),
    ] {
        sources.extend(deep(open, middle, close));
    }
    let generators: String = (0..120)
        .map(|n| format!("g{}=(sum(g{n}) for x in [1])\n", n + 1))
        .collect();
    sources.push(format!("g0=[1]\n{generators}result=sum(g120)"));
    sources.push(format!("a=[1]\n{}result=a", "a=[a]\n".repeat(500)));
    sources.push(format!(
        "g=[1]\n{}result=list(g)",
        "g=map(abs,g)\n".repeat(250)
    ));
    let arguments = to_map(&json!({"x": [0]}));
    let work = move || {
        for source in &sources {
            let _ = evaluate(source, &arguments, &EvaluationLimits::default());
        }
    };
    // Half of what a thread of the runtime has.
    let thread = thread::Builder::new()
        .stack_size(1 << 20)
        .spawn(work)
        .unwrap();
    thread.join().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_soup_of_tokens_is_answered(tokens in prop::collection::vec(prop::sample::select(FUZZ_TOKENS), 0..40)) {
        let source = tokens.join(" ");
        let arguments = to_map(&json!({"x": 5, "s": "hong", "xs": [3, 1, 2]}));
        let start = Instant::now();
        let _ = evaluate(&source, &arguments, &EvaluationLimits::default());
        prop_assert!(start.elapsed() < Duration::from_millis(500), "{}", source);
    }

    #[test]
    fn any_text_is_answered(source in "\\PC{0,60}") {
        let _ = evaluate(&source, &Map::new(), &EvaluationLimits::default());
    }

    #[test]
    fn quotient_and_rest_make_the_number_again(a in any::<i64>(), b in any::<i64>()) {
        prop_assume!(b != 0);
        let arguments = to_map(&json!({"a": a, "b": b}));
        let law = "(a // b) * b + a % b == a and (a ** 2 - b ** 2) == (a - b) * (a + b) and abs(a % b) < abs(b)";
        let done = evaluate(law, &arguments, &EvaluationLimits::default()).unwrap();
        prop_assert_eq!(done.json.get(), "true");
    }

    #[test]
    fn floats_read_back_as_they_were_written(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite());
        let arguments = to_map(&json!({"a": number}));
        let done = evaluate("[a, float(repr(a)) == a]", &arguments, &EvaluationLimits::default()).unwrap();
        let back: Value = serde_json::from_str(done.json.get()).unwrap();
        prop_assert_eq!(back, json!([number, true]));
    }

    #[test]
    fn slices_and_joins_keep_characters(text in "\\PC{0,30}", at in 0_usize..40) {
        let arguments = to_map(&json!({"s": text, "n": at}));
        let law = "s[:n] + s[n:] == s and ''.join(list(s)) == s and s[::-1][::-1] == s and len(s) == len([c for c in s])";
        let done = evaluate(law, &arguments, &EvaluationLimits::default()).unwrap();
        prop_assert_eq!(done.json.get(), "true");
    }
}

const FUZZ_TOKENS: &[&str] = &[
    "x",
    "s",
    "xs",
    "1",
    "0",
    "2.5",
    "'a'",
    "f'{x}'",
    "f'{x:>9}'",
    "None",
    "True",
    "(",
    ")",
    "(",
    ")",
    "[",
    "]",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "+",
    "-",
    "*",
    "**",
    "/",
    "//",
    "%",
    "<<",
    ">>",
    "<",
    "==",
    "in",
    "not",
    "and",
    "or",
    "if",
    "else",
    "for",
    "y",
    "lambda",
    "=",
    "\n",
    ";",
    "sum",
    "sorted",
    "range",
    "9999",
    "99999999",
    "str",
    ".upper()",
    "math.sqrt",
    "date",
    "key",
    "import",
    "__class__",
    "한",
    "\\",
    "'",
    "\"",
    "#",
    "!",
    "_",
    "result",
    "*xs",
    "**{}",
];

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
