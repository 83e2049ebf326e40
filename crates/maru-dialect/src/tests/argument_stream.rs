//! Arguments that come in pieces are those of the whole call.

use proptest::prelude::*;

use super::{
    Arc, DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet, Value, characters,
    json, parse_with, random_cuts, tools,
};

const STREAMED: DialectOptions = DialectOptions {
    starts_in_reasoning: false,
    may_start_in_reasoning: false,
    accept_trailing_draft: true,
    prompted: false,
    stream_arguments: true,
};

const PROMPTED_STREAMED: DialectOptions = DialectOptions {
    prompted: true,
    ..STREAMED
};

/// A prompted model's call of `write_file` without markers.
fn markerless_calls(arguments: &str) -> Vec<String> {
    let call = format!("{{\"tool\": \"write_file\", \"arguments\": {arguments}}}");
    vec![
        call.clone(),
        format!("Let me do that.\n```json\n{call}\n```"),
        format!("제가 파일을 쓰겠습니다.\n\n```json\n{call}\n```\n\n위의 결과를 기다려 주세요."),
        format!("I will write it. {call} That is the payload."),
        format!("<think>\nwrite it\n</think>\n\n{call}"),
    ]
}

/// Frames of every kind around a call of `write_file`.
fn frames(arguments: &str) -> Vec<String> {
    let call = format!("{{\"name\": \"write_file\", \"arguments\": {arguments}}}");
    vec![
        format!("<tool_call>\n{call}\n</tool_call>"),
        format!(
            "I will.\n<tool_call>{{\"id\": \"1\", \"type\": \"function\", \"name\": \"write_file\", \"parameters\": {arguments}}}</tool_call> Done."
        ),
        format!("[TOOL_CALLS][{call}, {call}]"),
        format!("[TOOL_CALLS]write_file[CALL_ID]abcdefghi[ARGS]{arguments}"),
        format!("<function=write_file>{arguments}</function>"),
        format!("<tool_call name=\"write_file\">{arguments}</tool_call>"),
        format!(
            "<|channel|>commentary to=functions.write_file <|constrain|>json<|message|>{arguments}<|call|>"
        ),
        format!(
            "<|tool_call_begin|>functions.write_file:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        ),
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>write_file\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        format!("<|python_tag|>{call}<|eom_id|>"),
        format!(
            "<|START_ACTION|>[{{\"tool_call_id\": \"0\", \"tool_name\": \"write_file\", \"parameters\": {arguments}}}]<|END_ACTION|>"
        ),
    ]
}

/// Streamed calls put together again; each was begun, continued and finished in order.
fn reassembled(events: Vec<DialectEvent>) -> Vec<DialectEvent> {
    let mut out = Vec::new();
    let mut open: Option<(String, String)> = None;
    for event in events {
        match (event, &mut open) {
            (DialectEvent::CallStarted(start), None) => {
                open = Some((start.name, String::new()));
            }
            (DialectEvent::CallArguments(piece), Some((_, arguments))) => {
                arguments.push_str(&piece);
            }
            (DialectEvent::CallFinished(call), Some((name, arguments))) => {
                assert_eq!((&call.name, &call.arguments), (&*name, &*arguments));
                open = None;
                out.push(DialectEvent::Call(call));
            }
            (event @ DialectEvent::InvalidCall(_), Some(_)) => {
                open = None;
                out.push(event);
            }
            (event, open) => {
                assert_eq!(*open, None, "{event:?}");
                out.push(event);
            }
        }
    }
    assert_eq!(open, None);
    out
}

fn check(tools: &Arc<ToolSet>, text: &str, seed: u64) {
    for streamed in [STREAMED, PROMPTED_STREAMED] {
        check_with(tools, streamed, text, seed);
    }
}

fn check_with(tools: &Arc<ToolSet>, streamed: DialectOptions, text: &str, seed: u64) {
    let options = DialectOptions {
        stream_arguments: false,
        ..streamed
    };
    let whole = parse_with(tools, options, [text]);
    let in_pieces = [
        parse_with(tools, streamed, [text]),
        parse_with(tools, streamed, characters(text)),
        parse_with(tools, streamed, random_cuts(text, seed)),
    ];
    let is_call = |it: &DialectEvent| matches!(it, DialectEvent::Call(_));
    for events in in_pieces {
        let events = reassembled(events);
        // What stands before a call is decided when it begins: where it turns out to be
        // none, white space and tokens before it may differ.
        if events
            .iter()
            .any(|it| matches!(it, DialectEvent::InvalidCall(_)))
        {
            let calls: Vec<_> = events.iter().filter(|it| is_call(it)).collect();
            let expected: Vec<_> = whole.iter().filter(|it| is_call(it)).collect();
            assert_eq!(calls, expected, "{text}");
        } else {
            assert_eq!(events, whole, "{text}");
        }
    }
}

#[test]
fn text_of_an_argument_comes_as_it_is_written() {
    let arguments = "{\"path\": \"a.txt\", \"content\": \"one two\\nthree\"}";
    let framed = frames(arguments).into_iter().map(|text| (text, STREAMED));
    let bare = markerless_calls(arguments).into_iter();
    for (text, options) in framed.chain(bare.map(|text| (text, PROMPTED_STREAMED))) {
        let mut parser = DialectParser::new(tools(), DialectSelection::Auto, options);
        let mut events = Vec::new();
        let at = text.find("\\nthree").unwrap();
        for piece in characters(&text[..at]) {
            parser.push(piece, &mut events);
        }
        let pieces = events.iter().filter_map(|it| match it {
            DialectEvent::CallArguments(piece) => Some(piece.as_str()),
            _ => None,
        });
        let expected = "{\"path\":\"a.txt\",\"content\":\"one two";
        assert_eq!(pieces.collect::<String>(), expected, "{text}");
    }
}

#[test]
fn values_come_as_the_schema_wants_them() {
    let schema = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "object"},
        "maybe": {"type": ["string", "null"]}, "flag": {"type": "boolean"}}});
    let tools = Arc::new(ToolSet::new([("f", &schema)]));
    let arguments = r#"{"city": 5, "days": "3", "deep": {"a": [1, {"b": "},]"}]}, "maybe": "None", "flag": "true", "other": 1.50}"#;
    let text = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {arguments}}}</tool_call>");
    check(&tools, &text, 1);
    let events = parse_with(&tools, STREAMED, characters(&text));
    let streamed = events
        .iter()
        .any(|it| matches!(it, DialectEvent::CallStarted(_)));
    assert!(streamed, "{events:?}");
}

/// Arguments that need repair come whole, or with a beginning that the repair keeps.
#[test]
fn broken_arguments_are_the_same_streamed_or_not() {
    for arguments in [
        r#"{"path": "a", "content": "say "hi" now"}"#,
        r#"{"path": "a", "content": "say "yes", "no" or x"}"#,
        r#"{"path": "a, "content": "b"}"#,
        r#"{"path": "a", "content": "b" + "c"}"#,
        r#"{"path": "a", "content": """b"""}"#,
        r#"{"path": "a", "content": "\d+"}"#,
        r#"{"path": "a", "content": "x\ud83d"}"#,
        r#"{"path": "a", "content": "x\ud83d\ude00y"}"#,
        "{\"path\": \"a\", \"content\": \"b\nc\"}",
        r#"{"path": "a", "content": "b",}"#,
        r#"{"path": "a", "content": "b"}}"#,
        r#"{"path": "a" "content": "b"}"#,
        r#"{"path": 'a', "content": "b"}"#,
        r#"{path: "a", "content": "b"}"#,
        r#"{"arguments": {"path": "a", "content": "b"}}"#,
        r#"{"path": "a", "content": ["b", "c"]}"#,
        r#"{"path": "a", "content": None}"#,
        r#"{"path": "a", /* x */ "content": "b"}"#,
        r#"{"path": "a", "content": "</tool_call>"}"#,
        r#"{"path": "a", "content": "b", "}": "c"}"#,
        "{\"path\": \"a\", \"content\": \"{\"\ncontent: ']\\\"\"\"}",
        r#"{"path": "a", "content": "b", "}": c"}"#,
        r#"{"path": "a", "content": "b", "x, y": c"}"#,
        r#"{"path": "a", "content": "print("b")"}"#,
        r#"{"path": "a", "content": "{"b": "c"}"}"#,
        r#"{"path": "a", "content": "{"b": ["c"]}, "d""}"#,
        r#"{"path": "a", "content": "f("b");\ng("c") + 1"}"#,
        r#"{"path": "a", "content": "b"#,
        r#"{"path": "a", "content""#,
        "{}",
    ] {
        for text in frames(arguments)
            .into_iter()
            .chain(markerless_calls(arguments))
        {
            check(&tools(), &text, 7);
        }
    }
}

#[test]
fn call_that_is_cut_off_ends_as_none() {
    let text =
        "<tool_call>{\"name\": \"write_file\", \"arguments\": {\"path\": \"a\", \"content\": \"b";
    let mut parser = DialectParser::new(tools(), DialectSelection::Auto, STREAMED);
    let mut events = Vec::new();
    parser.push(text, &mut events);
    parser.finish(true, &mut events);
    assert!(
        matches!(events.first(), Some(DialectEvent::CallStarted(start)) if start.name == "write_file")
    );
    assert!(
        matches!(events.last(), Some(DialectEvent::InvalidCall(_))),
        "{events:?}"
    );
}

#[test]
fn cases_of_the_corpora_are_the_same_streamed_or_not() {
    for case in super::corpus::corpus_cases() {
        check(
            &super::corpus::tools_of(&case["tools"]),
            case["text"].as_str().unwrap(),
            3,
        );
    }
}

fn argument_text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "\"",
        "\\\"",
        "\\",
        "\\n",
        "\\u00e9",
        "\\ud83d\\ude00",
        ", ",
        ",",
        ": ",
        "}",
        "{",
        "[",
        "]",
        "a",
        "word ",
        "\n",
        "</tool_call>",
        "content",
        "\"other\": ",
        "'",
        "한",
        "<|call|>",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// What stands before a call decides: no words after it take back what was handed out.
#[test]
fn call_that_may_be_an_example_is_not_streamed() {
    let call = "{\"tool\": \"write_file\", \"arguments\": {\"path\": \"a\", \"content\": \"b\"}}";
    for text in [
        format!("예를 들어:\n```json\n{call}\n```"),
        format!("The body:\n{call}\nis the payload."),
        format!("```json\n{call}\n```\nThe JSON above shows the call."),
        format!("Use `{call}` here."),
        format!("~~~\n{call}\n~~~"),
        format!("1. {call}"),
    ] {
        let events = parse_with(&tools(), PROMPTED_STREAMED, characters(&text));
        assert_eq!(events, [DialectEvent::Text(text)]);
    }
}

/// A key that comes twice is the one thing that takes back what was handed out.
#[test]
fn repeated_key_ends_a_streamed_call() {
    let arguments = r#"{"path": "a", "content": "b", "path": "c"}"#;
    for text in frames(arguments) {
        let events = reassembled(parse_with(&tools(), STREAMED, characters(&text)));
        let invalid = |it: &DialectEvent| matches!(it, DialectEvent::InvalidCall(_));
        assert!(events.iter().any(invalid), "{events:?}");
    }
}

/// Each case is read in many frames, so a few suffice unless `PROPTEST_CASES` says more.
fn few_cases() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 16;
    }
    config
}

proptest! {
    #![proptest_config(few_cases())]

    #[test]
    fn strict_arguments_are_the_same_streamed_or_not(
        path in "[ -~\n\t한é]{0,20}", content in "[ -~\n\t한é😀]{0,60}", seed: u64
    ) {
        let arguments: Value = json!({"path": path, "content": content});
        let arguments = arguments.to_string();
        for text in frames(&arguments).into_iter().chain(markerless_calls(&arguments)) {
            check(&tools(), &text, seed);
        }
    }

    #[test]
    fn any_arguments_are_the_same_streamed_or_not(content in argument_text(), seed: u64) {
        let arguments = format!("{{\"path\": \"p\", \"content\": \"{content}\"}}");
        for text in frames(&arguments).into_iter().chain(markerless_calls(&arguments)) {
            check(&tools(), &text, seed);
        }
    }
}
