//! Models that our own prompt told how to call: what is meant as a call is one, or
//! comes back with a reason the model can act on.

use super::{
    Arc, DialectEvent, PROMPTED, ToolSet, characters, collect_output, json, parse_pieces,
    parse_with, random_cuts,
};

const ADD: &str = r#"{"tool": "tts.add", "arguments": {"a": 2, "b": 3}}"#;

fn tools() -> Arc<ToolSet> {
    let add = json!({"type": "object", "properties": {
        "a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]});
    let time = json!({"type": "object", "properties": {}});
    Arc::new(ToolSet::new([
        ("tts.add", &add),
        ("math.mul", &add),
        ("music.mul", &add),
        ("clock.now", &time),
    ]))
}

/// The events of a prompted model, the same in every chunking.
fn parse_prompted(text: &str) -> Vec<DialectEvent> {
    let tools = tools();
    let whole = parse_with(&tools, PROMPTED, [text]);
    assert_eq!(parse_with(&tools, PROMPTED, characters(text)), whole);
    for seed in 0..8 {
        assert_eq!(parse_with(&tools, PROMPTED, random_cuts(text, seed)), whole);
    }
    whole
}

/// A native model only shows it: the text comes out as it is.
fn assert_native_text(text: &str) {
    let events = parse_pieces(&tools(), [text]);
    let output = collect_output(&events);
    assert!(output.calls.is_empty(), "{text}: {events:#?}");
}

/// `json` bare, in fences, and among words.
fn surrounded(json: &str) -> [String; 6] {
    [
        json.to_owned(),
        format!("```json\n{json}\n```"),
        format!("```\n{json}\n```"),
        format!("네, 더하겠습니다.\n\n```json\n{json}\n```\n\n결과를 기다려 주세요."),
        format!("네, {json} 결과를 기다려 주세요."),
        format!("```tool_code\n{json}\n```"),
    ]
}

/// The one call of `text` that cannot be made: its tool and the reason.
fn invalid_call(text: &str) -> (Option<String>, String) {
    let events = parse_prompted(text);
    let mut invalid = events.iter().filter_map(|event| match event {
        DialectEvent::InvalidCall(invalid) => Some(invalid),
        DialectEvent::Call(call) => panic!("{text}: {call:?}"),
        _ => None,
    });
    let first = invalid.next();
    let first = first.unwrap_or_else(|| panic!("{text}: {events:#?}"));
    assert_eq!(invalid.next(), None, "{text}");
    (first.name.clone(), first.reason.clone())
}

#[test]
fn call_of_the_wrong_shape_says_what_is_wrong() {
    let needed = r#"{"a": …, "b": …}"#;
    let object =
        |kind| format!("the arguments of tts.add must be an object such as {needed}, not {kind}");
    let named = Some("tts.add");
    let unnamed = |key| format!("{key:?} must be the name of one tool, as a string");
    for (json, name, reason) in [
        (
            r#"{"tool": "tts.add", "arguments": [2, 3]}"#,
            named,
            object("a list"),
        ),
        (
            r#"{"arguments": [2, 3], "tool": "tts.add"}"#,
            named,
            object("a list"),
        ),
        (
            r#"{"step": 1, "tool": "tts.add", "arguments": [2, 3]}"#,
            named,
            object("a list"),
        ),
        (
            r#"{"name": "tts.add", "parameters": [2, 3]}"#,
            named,
            object("a list"),
        ),
        (
            r#"{"tool": "tts.add", "arguments": 5}"#,
            named,
            object("a number"),
        ),
        (
            r#"{"tool": "tts.add", "arguments": true}"#,
            named,
            object("a boolean"),
        ),
        (
            r#"{"tool": "tts.add", "arguments": "2, 3"}"#,
            named,
            object("a string"),
        ),
        (
            r#"{"tool": "tts.add", "arguments": null}"#,
            named,
            format!("tts.add needs the arguments {needed}"),
        ),
        (
            r#"{"tool": "tts.add", "arguments": ""}"#,
            named,
            format!("tts.add needs the arguments {needed}"),
        ),
        (
            r#"{"tool": "tts.add"}"#,
            named,
            format!("tts.add needs the arguments {needed}"),
        ),
        (
            r#"{"tool": "tts.add", "x": 2, "y": 3}"#,
            named,
            format!("the arguments of tts.add must stand in one object: \"arguments\": {needed}"),
        ),
        (
            r#"{"tool": ["tts.add"], "arguments": {"a": 2, "b": 3}}"#,
            None,
            unnamed("tool"),
        ),
        (
            r#"{"tool": 5, "arguments": {"a": 2, "b": 3}}"#,
            None,
            unnamed("tool"),
        ),
        (
            r#"{"arguments": {"a": 2, "b": 3}, "tool": 5}"#,
            None,
            unnamed("tool"),
        ),
        (
            r#"{"tool": null, "arguments": {"a": 2, "b": 3}}"#,
            None,
            unnamed("tool"),
        ),
        (
            r#"{"tool": "", "arguments": {"a": 2, "b": 3}}"#,
            None,
            unnamed("tool"),
        ),
    ] {
        for text in surrounded(json) {
            let (found_name, found_reason) = invalid_call(&text);
            assert_eq!(
                (found_name.as_deref(), found_reason),
                (name, reason.clone()),
                "{text}"
            );
            assert_native_text(&text);
        }
    }
}

/// What is left of a call that cannot be read opens no fence around the words after it.
#[test]
fn fence_of_an_unreadable_call_belongs_to_it() {
    let call = "```json\n{\"tool\": \"tts.add\", \"arguments\": {\"a\": 2, \"b\": {\n```";
    let events = parse_prompted(&format!("네.\n{call}\n기다려 주세요."));
    let [
        DialectEvent::Text(before),
        DialectEvent::InvalidCall(invalid),
        DialectEvent::Text(after),
    ] = events.as_slice()
    else {
        panic!("{events:#?}");
    };
    assert_eq!((before.trim(), after.trim()), ("네.", "기다려 주세요."));
    assert_eq!(invalid.text, call);
}

#[test]
fn order_of_the_keys_does_not_matter() {
    let arguments = json!({"a": 2, "b": 3});
    for json in [
        r#"{"server": "tts", "tool": "add", "arguments": {"a": 2, "b": 3}}"#,
        r#"{"tool": "add", "server": "tts", "arguments": {"a": 2, "b": 3}}"#,
        r#"{"arguments": {"a": 2, "b": 3}, "server": "tts", "tool": "tts.add"}"#,
        r#"{"step": 1, "thought": "x", "tool": "tts.add", "arguments": {"a": 2, "b": 3}}"#,
        r#"{"reason": "{ \" }", "plan": [{"a": [1]}], "tool": "tts.add", "arguments": {"a": 2, "b": 3}}"#,
        r#"[{"step": 1, "tool": "tts.add", "arguments": {"a": 2, "b": 3}}]"#,
        r#"{"step": 1, "function": {"name": "tts.add", "arguments": {"a": 2, "b": 3}}}"#,
    ] {
        for text in surrounded(json) {
            let output = collect_output(&parse_prompted(&text));
            assert_eq!(
                output.calls,
                [("tts.add".to_owned(), arguments.clone())],
                "{text}"
            );
        }
    }
    let text = r#"{"server": "music", "tool": "mul", "arguments": {"a": 2, "b": 3}}"#;
    let output = collect_output(&parse_prompted(text));
    assert_eq!(output.calls, [("music.mul".to_owned(), arguments)]);
    let text = r#"{"server": "math", "tool": "add", "arguments": {"a": 2, "b": 3}}"#;
    assert_eq!(invalid_call(text).0.as_deref(), Some("math.add"));
}

#[test]
fn objects_that_are_data_stay_text() {
    for json in [
        r#"{"name": "Alice", "age": 30}"#,
        r#"{"step": 1, "name": "Alice", "input": 5}"#,
        r#"{"tool": "hammer", "price": 5}"#,
        r#"{"name": "tts.add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}"#,
        r#"[{"name": "tts.add", "description": "Adds"}, {"name": "clock.now", "description": "Time"}]"#,
        r#"{"answer": 5, "unit": "kg"}"#,
        r#"{"a": 1, "b": 2}"#,
        "{name}",
        "{x | x > 0}",
    ] {
        for text in surrounded(json) {
            assert_eq!(
                parse_prompted(&text),
                [DialectEvent::Text(text.clone())],
                "{text}"
            );
            assert_native_text(&text);
        }
    }
}

#[test]
fn broken_tool_code_that_names_a_tool_says_why() {
    for code in [
        "tts.add(a=2, b=",
        "tts.add(a=2, b=3",
        "print(tts.add(a=2, b=3)",
        "for i in range(3): tts.add(a=i, b=2)",
        "for i in range(3):\n    tts.add(a=i, b=2)",
        "if True:\n    tts.add(a=1, b=2)",
        "tts.add(a=tts.add(a=1, b=2), b=3)",
        "tts.add(tts.add(1, 2), 3)",
        "print(tts.add(a=clock.now(), b=3))",
        "tts.add(1, 2, 3)",
    ] {
        for text in [
            format!("```tool_code\n{code}\n```"),
            format!("```tool_code\n{code}"),
            format!("네.\n```tool_code\n{code}\n```\n결과를 기다려 주세요."),
            format!("tool_code\n{code}"),
        ] {
            let output = collect_output(&parse_prompted(&text));
            assert_eq!(output.calls, [], "{text}");
            assert_eq!(output.invalid_names, ["tts.add"], "{text}");
            assert_native_text(&text);
        }
    }
    for code in ["x = 5", "for i in range(3): print(i)", "tts.add"] {
        let text = format!("```tool_code\n{code}\n```");
        assert_eq!(parse_prompted(&text), [DialectEvent::Text(text.clone())]);
    }
}

#[test]
fn call_in_the_middle_of_a_line_is_made() {
    for (before, after) in [
        ("네, ", " 결과를 기다려 주세요."),
        ("**도구 호출:** ", ""),
        ("- ", ""),
        ("I call (", ") now"),
        ("| call | ", " |"),
        ("도구:", ""),
        ("`tts.add` 를 부릅니다 ", ""),
    ] {
        let text = format!("{before}{ADD}{after}");
        let output = collect_output(&parse_prompted(&text));
        let expected = ("tts.add".to_owned(), json!({"a": 2, "b": 3}));
        assert_eq!(output.calls, [expected], "{text}");
        assert_native_text(&text);
    }
    for (before, after) in [
        ("> ", ""),
        ("예를 들어 ", " 처럼"),
        ("For example, ", " adds."),
        ("Write `", "` to add."),
        ("I will not run ", "."),
        ("1. ", "\n2. done"),
        ("2026-11-15 INFO tool_call ", ""),
        ("[12:00:01.500] called ", ""),
        ("INFO: ", " in 3ms"),
    ] {
        let text = format!("{before}{ADD}{after}");
        assert_eq!(parse_prompted(&text), [DialectEvent::Text(text.clone())]);
    }
}

#[test]
fn unknown_name_is_answered_with_the_names_there_are() {
    let call = |name: &str| format!(r#"{{"tool": {name:?}, "arguments": {{"a": 1}}}}"#);
    assert_eq!(
        invalid_call(&call("tts.sub")).1,
        "no tool is called \"tts.sub\"; the tools are tts.add, math.mul, music.mul, clock.now"
    );
    assert_eq!(
        invalid_call(&call("mul")).1,
        "the name \"mul\" is ambiguous; write one of math.mul, music.mul"
    );
    let names: Vec<String> = (0..20).map(|at| format!("files.op{at}")).collect();
    let schema = json!({"type": "object"});
    let known = ["mail.send_message", "mail.read_message", "chat.send"];
    let known = known.into_iter().chain(names.iter().map(String::as_str));
    let tools = ToolSet::new(known.map(|name| (name, &schema)));
    assert_eq!(
        tools.explain_unknown("message_send"),
        "no tool is called \"message_send\"; the nearest are mail.send_message, mail.read_message, chat.send"
    );
    assert_eq!(tools.explain_unknown("zip"), "no tool is called \"zip\"");
}
