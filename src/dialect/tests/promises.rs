//! What the room promises beside the corpus.

use std::str::FromStr as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Arc, Dialect, Event, Options, Reader, Tools, read, tools};
use crate::dialect::{Flaw, KNOWN, Repair, Unusable, arguments, neutralise, repair};

const CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}\n</tool_call>";

fn check(text: &str, expected: &str, repairs: &[Repair]) {
    let (json, made) = repair(text).unwrap();
    assert_eq!(json, expected, "{text}");
    assert_eq!(made, repairs, "{text}");
}

#[test]
fn plain_text_flows_at_once() {
    let mut reader = Reader::new(tools(), Dialect::Auto, Options::default());
    let mut events = Vec::new();
    reader.push("Hello there, a < b and <", &mut events);
    assert_eq!(events, [Event::Text("Hello there, a < b and".to_owned())]);
    reader.push("b>x</b>", &mut events);
    let all = "Hello there, a < b and <b>x</b>";
    assert_eq!(events, [Event::Text(all.to_owned())]);
}

#[test]
fn call_comes_out_with_its_last_character() {
    let mut reader = Reader::new(tools(), Dialect::Auto, Options::default());
    let mut events = Vec::new();
    for at in 0..CALL.len() {
        assert_eq!(events, []);
        reader.push(&CALL[at..=at], &mut events);
    }
    assert!(matches!(events.as_slice(), [Event::Call(call)] if call.raw == CALL));
}

#[test]
fn cut_message_calls_nothing_unfinished() {
    for (text, calls) in [(CALL, 1), (&CALL[..CALL.len() - 13], 0)] {
        let mut reader = Reader::new(tools(), Dialect::Auto, Options::default());
        let mut events = Vec::new();
        reader.push(text, &mut events);
        reader.finish(true, &mut events);
        let made = events.iter().filter(|it| matches!(it, Event::Call(_)));
        assert_eq!(made.count(), calls, "{events:?}");
    }
}

#[test]
fn broken_frame_says_why() {
    let text = "<tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>";
    let events = read(&tools(), [text]);
    let [Event::Broken(broken)] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(broken.text, text);
    assert_eq!(broken.name.as_deref(), Some("nope"));
    assert_eq!(broken.reason, "no tool is called \"nope\"");
}

#[test]
fn markerless_call_is_marked_as_such() {
    let text = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"A\"}}";
    let events = read(&tools(), [text]);
    assert!(matches!(events.as_slice(), [Event::Call(call)] if !call.explicit));
    let events = read(&tools(), [CALL]);
    assert!(matches!(events.as_slice(), [Event::Call(call)] if call.explicit));
}

#[test]
fn reasoning_may_be_open_from_the_prompt() {
    let options = Options {
        reasoning_open: true,
        ..Options::default()
    };
    let mut reader = Reader::new(tools(), Dialect::Auto, options);
    let mut events = Vec::new();
    reader.push(&format!("Maybe {CALL}?\n</think>\nNo."), &mut events);
    reader.finish(false, &mut events);
    let thought = format!("Maybe {CALL}?");
    let expected = [Event::Reasoning(thought), Event::Text("No.".to_owned())];
    assert_eq!(super::joined(events), expected);
}

#[test]
fn last_draft_counts_only_if_wanted() {
    let text = format!("<think>so {CALL}</think>\n");
    for wanted in [true, false] {
        let options = Options {
            last_draft_counts: wanted,
            ..Options::default()
        };
        let mut reader = Reader::new(tools(), Dialect::Auto, options);
        let mut events = Vec::new();
        reader.push(&text, &mut events);
        reader.finish(false, &mut events);
        let called = events.iter().any(|it| matches!(it, Event::Call(_)));
        assert_eq!(called, wanted);
    }
}

#[test]
fn fixed_dialect_reads_no_other() {
    for (name, calls) in [("hermes", 1), ("kimi_k2", 0), ("glm", 1), ("auto", 1)] {
        let dialect = Dialect::from_str(name).unwrap();
        let mut reader = Reader::new(tools(), dialect, Options::default());
        let mut events = Vec::new();
        reader.push(CALL, &mut events);
        reader.finish(false, &mut events);
        let made = events.iter().filter(|it| matches!(it, Event::Call(_)));
        assert_eq!(made.count(), calls, "{name}");
    }
    let error = Dialect::from_str("klingon").unwrap_err().to_string();
    assert!(KNOWN.iter().all(|name| error.contains(name)), "{error}");
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
        &[Repair::Number],
    );
}

#[test]
fn repairs_are_reported() {
    check("{\"a\": 1,}", "{\"a\":1}", &[Repair::Comma]);
    check(
        "{'a': True}",
        "{\"a\":true}",
        &[Repair::Quote, Repair::Literal],
    );
    check("{\"a\": \"\\d\"}", "{\"a\":\"\\\\d\"}", &[Repair::Escape]);
    check("```json\n{\"a\": 1}\n```", "{\"a\":1}", &[Repair::Around]);
    check("Here: {\"a\": 1}", "{\"a\":1}", &[Repair::Around]);
    check(
        "{\\\"a\\\": \\\"b\\\"}",
        "{\"a\":\"b\"}",
        &[Repair::Escaped],
    );
    assert_eq!(repair("{\"a\": \"b"), Err(Flaw::Cut));
    assert_eq!(repair("{\"a\": 1, \"b"), Err(Flaw::Cut));
    assert_eq!(repair(&"[".repeat(100_000)), Err(Flaw::Deep));
    assert_eq!(repair("hello"), Err(Flaw::Wrong));
}

#[test]
fn native_arguments_are_fitted_too() {
    let tools = tools();
    let read = arguments(&tools, "getWeather", "{'city': 5, \"days\": \"3\"}").unwrap();
    assert_eq!(read.name, "get_weather");
    assert_eq!(read.arguments, "{\"city\":\"5\",\"days\":3}");
    assert_eq!(read.repairs, [Repair::Quote]);
    let empty = arguments(&tools, "get_all_employees", "").unwrap();
    assert_eq!(empty.arguments, "{}");
    let unknown = arguments(&tools, "nope", "{}");
    assert_eq!(unknown, Err(Unusable::Unknown("nope".to_owned())));
    assert!(arguments(&tools, "get_weather", "{\"city\": \"A").is_err());
    assert!(arguments(&tools, "get_weather", "[1]").is_err());
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
    let tools = Tools::new([("f", &schema)]);
    let text = "{\"a\": \"1\", \"b\": \"None\", \"c\": [\"1.5\", 2], \"d\": \"x\"}";
    let read = arguments(&tools, "f", text).unwrap();
    assert_eq!(
        read.arguments,
        "{\"a\":1,\"b\":null,\"c\":[1.5,2],\"d\":\"x\"}"
    );
}

#[test]
fn name_that_two_tools_could_mean_means_none() {
    let none = json!({"type": "object"});
    let tools = Tools::new([("a__list", &none), ("b__list", &none), ("c__read", &none)]);
    assert!(arguments(&tools, "list", "").is_err());
    assert_eq!(arguments(&tools, "read", "").unwrap().name, "c__read");
    assert_eq!(arguments(&tools, "a.list", "").unwrap().name, "a__list");
    assert!(arguments(&tools, "d.list", "").is_err());
    assert!(arguments(&tools, "reads", "").is_err());
}

#[test]
fn result_of_a_tool_cannot_pose_as_a_call() {
    let harmless = neutralise(CALL);
    assert_ne!(harmless, CALL);
    assert_eq!(harmless.replace('\u{200b}', ""), CALL);
    let events = read(&tools(), [&*harmless]);
    assert!(!events.iter().any(|it| matches!(it, Event::Call(_))));
    let plain = "a < b, [1] and `code`";
    assert!(matches!(neutralise(plain), std::borrow::Cow::Borrowed(_)));
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
            let (json, repairs) = repair(&text).unwrap();
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
        let events = read(&tools(), [text.as_str()]);
        let [Event::Call(call)] = events.as_slice() else {
            return Err(TestCaseError::fail(format!("{events:?}")));
        };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        prop_assert_eq!(&arguments["content"], &Value::from(content));
    }
}

#[test]
fn one_set_of_tools_serves_many_readers() {
    let tools: Arc<Tools> = tools();
    assert!(!tools.is_empty());
    assert_eq!(read(&tools, [CALL]), read(&tools, [CALL]));
}
