//! What the crate promises beside the corpus.

use std::str::FromStr as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    Arc, DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet, parse_pieces,
    tools,
};
use crate::{
    DIALECT_NAMES, JsonRepair, NormalizeError, PayloadError, escape_markers, normalize_arguments,
    repair_json,
};

const FRAMED_CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}\n</tool_call>";

fn check(text: &str, expected: &str, repairs: &[JsonRepair]) {
    let (json, made) = repair_json(text).unwrap();
    assert_eq!(json, expected, "{text}");
    assert_eq!(made, repairs, "{text}");
}

#[test]
fn plain_text_flows_at_once() {
    let mut parser = DialectParser::new(tools(), DialectSelection::Auto, DialectOptions::default());
    let mut events = Vec::new();
    parser.push("Hello there, a < b and <", &mut events);
    assert_eq!(
        events,
        [DialectEvent::Text("Hello there, a < b and".to_owned())]
    );
    parser.push("b>x</b>", &mut events);
    let all = "Hello there, a < b and <b>x</b>";
    assert_eq!(events, [DialectEvent::Text(all.to_owned())]);
}

#[test]
fn call_comes_out_with_its_last_character() {
    let mut parser = DialectParser::new(tools(), DialectSelection::Auto, DialectOptions::default());
    let mut events = Vec::new();
    for at in 0..FRAMED_CALL.len() {
        assert_eq!(events, []);
        parser.push(&FRAMED_CALL[at..=at], &mut events);
    }
    assert!(matches!(events.as_slice(), [DialectEvent::Call(call)] if call.raw == FRAMED_CALL));
}

#[test]
fn cut_message_calls_nothing_unfinished() {
    for (text, calls) in [
        (FRAMED_CALL, 1),
        (&FRAMED_CALL[..FRAMED_CALL.len() - 13], 0),
    ] {
        let mut parser =
            DialectParser::new(tools(), DialectSelection::Auto, DialectOptions::default());
        let mut events = Vec::new();
        parser.push(text, &mut events);
        parser.finish(true, &mut events);
        let made = events
            .iter()
            .filter(|it| matches!(it, DialectEvent::Call(_)));
        assert_eq!(made.count(), calls, "{events:?}");
    }
}

#[test]
fn broken_frame_says_why() {
    let text = "<tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>";
    let events = parse_pieces(&tools(), [text]);
    let [DialectEvent::InvalidCall(broken)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(broken.text, text);
    assert_eq!(broken.name.as_deref(), Some("nope"));
    assert_eq!(
        broken.reason,
        "no tool is called \"nope\"; the tools are get_weather, write_file, get_all_employees"
    );
}

#[test]
fn markerless_call_is_marked_as_such() {
    let text = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}";
    let events = parse_pieces(&tools(), [text]);
    assert!(matches!(events.as_slice(), [DialectEvent::Call(call)] if !call.explicit));
    let events = parse_pieces(&tools(), [FRAMED_CALL]);
    assert!(matches!(events.as_slice(), [DialectEvent::Call(call)] if call.explicit));
}

#[test]
fn reasoning_may_be_open_from_the_prompt() {
    let options = DialectOptions {
        starts_in_reasoning: true,
        ..DialectOptions::default()
    };
    let mut parser = DialectParser::new(tools(), DialectSelection::Auto, options);
    let mut events = Vec::new();
    parser.push(&format!("Maybe {FRAMED_CALL}?\n</think>\nNo."), &mut events);
    parser.finish(false, &mut events);
    let thought = format!("Maybe {FRAMED_CALL}?");
    let expected = [
        DialectEvent::Reasoning(thought),
        DialectEvent::Text("No.".to_owned()),
    ];
    assert_eq!(super::joined(events), expected);
}

#[test]
fn reasoning_without_a_beginning_is_no_text_where_it_is_expected() {
    let options = DialectOptions {
        may_start_in_reasoning: true,
        ..DialectOptions::default()
    };
    for (text, reasoning, content) in [
        (
            "I should greet.\n</think>\n\nHello.",
            "I should greet.",
            "Hello.",
        ),
        (
            "Hello there.\nHow are you?",
            "",
            "Hello there.\nHow are you?",
        ),
        ("<think>a</think>Hello.", "a", "Hello."),
        ("", "", ""),
    ] {
        for pieces in [super::characters(text).collect(), vec![text]] {
            let events = super::parse_with(&tools(), options, pieces);
            assert!(
                !events.contains(&DialectEvent::TextWasReasoning),
                "{events:?}"
            );
            let output = super::collect_output(&events);
            assert_eq!((&*output.reasoning, &*output.content), (reasoning, content));
        }
    }
}

#[test]
fn last_draft_counts_only_if_wanted() {
    let text = format!("<think>so {FRAMED_CALL}</think>\n");
    for wanted in [true, false] {
        let options = DialectOptions {
            accept_trailing_draft: wanted,
            ..DialectOptions::default()
        };
        let mut parser = DialectParser::new(tools(), DialectSelection::Auto, options);
        let mut events = Vec::new();
        parser.push(&text, &mut events);
        parser.finish(false, &mut events);
        let called = events.iter().any(|it| matches!(it, DialectEvent::Call(_)));
        assert_eq!(called, wanted);
    }
}

#[test]
fn fixed_dialect_reads_no_other() {
    for (name, calls) in [("hermes", 1), ("kimi_k2", 0), ("glm", 1), ("auto", 1)] {
        let dialect = DialectSelection::from_str(name).unwrap();
        let mut parser = DialectParser::new(tools(), dialect, DialectOptions::default());
        let mut events = Vec::new();
        parser.push(FRAMED_CALL, &mut events);
        parser.finish(false, &mut events);
        let made = events
            .iter()
            .filter(|it| matches!(it, DialectEvent::Call(_)));
        assert_eq!(made.count(), calls, "{name}");
    }
    let error = DialectSelection::from_str("klingon")
        .unwrap_err()
        .to_string();
    assert!(
        DIALECT_NAMES.iter().all(|name| error.contains(name)),
        "{error}"
    );
}

#[test]
fn numbers_keep_their_digits() {
    check(
        "{\"a\": 12345678901234567890.10}",
        "{\"a\":12345678901234567890.10}",
        &[],
    );
    check("{\"a\": 1e400}", "{\"a\":1e400}", &[]);
    check(
        "[0x1F, 1_000, +5, .5, 007]",
        "[31,1000,5,0.5,7]",
        &[JsonRepair::Number],
    );
}

#[test]
fn repairs_are_reported() {
    check("{\"a\": 1,}", "{\"a\":1}", &[JsonRepair::Comma]);
    check(
        "{'a': True}",
        "{\"a\":true}",
        &[JsonRepair::Quote, JsonRepair::Literal],
    );
    check(
        "{\"a\": \"\\d\"}",
        "{\"a\":\"\\\\d\"}",
        &[JsonRepair::EscapeSequence],
    );
    check(
        "```json\n{\"a\": 1}\n```",
        "{\"a\":1}",
        &[JsonRepair::SurroundingText],
    );
    check(
        "Here: {\"a\": 1}",
        "{\"a\":1}",
        &[JsonRepair::SurroundingText],
    );
    check(
        "{\\\"a\\\": \\\"b\\\"}",
        "{\"a\":\"b\"}",
        &[JsonRepair::EscapedPayload],
    );
    assert_eq!(repair_json("{\"a\": \"b"), Err(PayloadError::UnexpectedEnd));
    assert_eq!(
        repair_json("{\"a\": 1, \"b"),
        Err(PayloadError::UnexpectedEnd)
    );
    assert_eq!(
        repair_json(&"[".repeat(100_000)),
        Err(PayloadError::TooDeep)
    );
    assert_eq!(repair_json("hello"), Err(PayloadError::Malformed));
}

#[test]
fn native_arguments_are_fitted_too() {
    let tools = tools();
    let read = normalize_arguments(&tools, "getWeather", "{'city': 5, \"days\": \"3\"}").unwrap();
    assert_eq!(read.name, "get_weather");
    assert_eq!(read.arguments, "{\"city\":\"5\",\"days\":3}");
    assert_eq!(read.repairs, [JsonRepair::Quote]);
    let empty = normalize_arguments(&tools, "get_all_employees", "").unwrap();
    assert_eq!(empty.arguments, "{}");
    let unknown = normalize_arguments(&tools, "nope", "{}");
    assert_eq!(unknown, Err(NormalizeError::UnknownTool("nope".to_owned())));
    assert!(normalize_arguments(&tools, "get_weather", "{\"city\": \"A").is_err());
    assert!(normalize_arguments(&tools, "get_weather", "[1]").is_err());
}

#[test]
fn references_and_alternatives_of_a_schema_are_followed() {
    let schema = json!({
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/count"},
            "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "c": {"type": "array", "items": {"type": "number"}},
            "d": {"$ref": "#/$defs/self"},
        },
        "$defs": {"count": {"type": "integer"}, "self": {"$ref": "#/$defs/self"}},
    });
    let tools = ToolSet::new([("f", &schema)]);
    let text = "{\"a\": \"1\", \"b\": \"None\", \"c\": [\"1.5\", 2], \"d\": \"x\"}";
    let read = normalize_arguments(&tools, "f", text).unwrap();
    assert_eq!(
        read.arguments,
        "{\"a\":1,\"b\":null,\"c\":[1.5,2],\"d\":\"x\"}"
    );
}

#[test]
fn name_that_two_tools_could_mean_means_none() {
    let none = json!({"type": "object"});
    let tools = ToolSet::new([("a__list", &none), ("b__list", &none), ("c__read", &none)]);
    assert!(normalize_arguments(&tools, "list", "").is_err());
    assert_eq!(
        normalize_arguments(&tools, "read", "").unwrap().name,
        "c__read"
    );
    assert_eq!(
        normalize_arguments(&tools, "a.list", "").unwrap().name,
        "a__list"
    );
    assert!(normalize_arguments(&tools, "d.list", "").is_err());
    assert!(normalize_arguments(&tools, "reads", "").is_err());
}

#[test]
fn result_of_a_tool_cannot_pose_as_a_call() {
    let harmless = escape_markers(FRAMED_CALL);
    assert_ne!(harmless, FRAMED_CALL);
    assert_eq!(harmless.replace('\u{200b}', ""), FRAMED_CALL);
    let events = parse_pieces(&tools(), [&*harmless]);
    assert!(!events.iter().any(|it| matches!(it, DialectEvent::Call(_))));
    let plain = "a < b, [1] and `code`";
    assert!(matches!(
        escape_markers(plain),
        std::borrow::Cow::Borrowed(_)
    ));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z{}\\[\\]\",:'<>/#*\\\\\n é]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z\":,{ ]{0,6}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn strict_json_is_never_touched(value in value()) {
        for text in [value.to_string(), format!("{value:#}")] {
            let (json, repairs) = repair_json(&text).unwrap();
            prop_assert_eq!(&repairs, &[], "{}", text);
            let read: Value = serde_json::from_str(&json).unwrap();
            let written: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(read, written, "{}", text);
        }
    }

    #[test]
    fn any_arguments_come_through_a_frame(content in "[ -~\n\t한é]{0,60}") {
        let call = json!({"name": "write_file", "arguments": {"path": "p", "content": content}});
        let text = format!("<tool_call>{call}</tool_call>");
        let events = parse_pieces(&tools(), [text.as_str()]);
        let [DialectEvent::Call(call)] = events.as_slice() else {
            return Err(TestCaseError::fail(format!("{events:?}")));
        };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        prop_assert_eq!(&arguments["content"], &Value::from(content));
    }
}

#[test]
fn one_set_of_tools_serves_many_readers() {
    let tools: Arc<ToolSet> = tools();
    assert!(!tools.is_empty());
    assert_eq!(
        parse_pieces(&tools, [FRAMED_CALL]),
        parse_pieces(&tools, [FRAMED_CALL])
    );
}
