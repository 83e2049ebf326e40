//! Hostile text: no panic, no lost text, no more than linear cost.

use proptest::prelude::*;

use super::{
    Arc, DialectEvent, DialectOptions, PROMPTED, ToolSet, characters, parse_pieces, parse_with,
    random_cuts, tools,
};
use crate::{escape_markers, repair_json};

/// Pieces that markers, values and prose are made of.
const TEXT_FRAGMENTS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "<function=get_weather>",
    "<function=",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "<parameter name=\"city\">",
    "<invoke name=\"get_weather\">",
    "</invoke>",
    "<function_calls>",
    "</function_calls>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "get_weather",
    "city",
    "Seoul",
    "{\"name\": \"get_weather\", \"arguments\": ",
    "{\"city\": \"A\"}",
    "{\"city\": \"A",
    "}",
    "}}",
    "]",
    "[",
    "{",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    "=",
    "(",
    ")",
    "\n",
    " ",
    "```",
    "```json\n",
    "```tool_code\n",
    "\n```",
    "`",
    "<think>",
    "</think>",
    "<|channel|>",
    "analysis",
    "commentary to=functions.get_weather",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|start|>assistant",
    "<|im_end|>",
    "<|tool_call>call:get_weather{city:<|\"|>",
    "<|\"|>}<tool_call|>",
    "<|\"|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<get_weather>",
    "</get_weather>",
    "<city>",
    "</city>",
    "Action: get_weather\n",
    "Action Input: ",
    "Thought: ",
    "Final Answer: ",
    "Observation: ",
    "✿FUNCTION✿: ",
    "✿ARGS✿: ",
    ">>>",
    "all\n",
    "<|tool_call_begin|>",
    "<|tool_sep|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜invoke name=\"get_weather\">",
    "]<]minimax[>[",
    "<|open|>tools<|sep|>",
    "<|open|>call tool=\"get_weather\"<|sep|>",
    "<|close|>",
    "call<|sep|>",
    "functools[",
    "<",
    ">",
    "|",
    "｜",
    "한글",
    "a",
    "1",
    "0",
    "-",
    ".",
    "true",
    "None",
    "/*",
    "*/",
    "//",
    "#",
    "print(",
    "get_weather(city=\"A\")",
    "...",
    "é",
    "\u{200b}",
    "<![CDATA[",
    "]]>",
    "\"\"\"",
    "\\u12",
    "&quot;",
    "tool",
    "<tool",
    "<|",
    "~~~",
    "\n\n    ",
    "\n    ",
    "\n> ",
    "\t",
    "analysis",
    "assistantcommentary to=functions.get_weather json",
    "assistantfinal",
    "print(default_api.",
    "default_api.get_weather(city=\"A\")",
    "tool_code\n",
    "<code>",
    "</code>",
    "<tool_call name=\"get_weather\">",
    "<name>",
    "</name>",
    "<arguments>",
    "<|recipient|>",
    "<|content|>",
    "-> tool/function_call",
    "/think\n",
    "I will call it.",
    "For example:",
    "The API:",
    "\"{\\\"",
    "\u{feff}",
    "{\"tool\": \"nosuch\", \"arguments\": {}}",
    "x = ",
    "{\"step\": 1, ",
    "\"tool\": ",
    "\"get_weather\", ",
    "\"arguments\": [1]}",
    "{\"server\": \"s\", \"tool\": \"get_weather\", \"arguments\": ",
    "get_weather(city=",
    "for i in x: ",
    "\n1. ",
    "INFO: ",
    "</tool_call> ",
    " </think> ",
];

fn text() -> impl Strategy<Value = String> {
    let pieces = prop::collection::vec(prop::sample::select(TEXT_FRAGMENTS), 0..24);
    pieces.prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(text in text(), seed: u64) {
        let tools = tools();
        for prompted in [false, true] {
            let options = DialectOptions { prompted, ..DialectOptions::default() };
            let whole = parse_with(&tools, options, [text.as_str()]);
            prop_assert_eq!(&parse_with(&tools, options, characters(&text)), &whole);
            prop_assert_eq!(&parse_with(&tools, options, random_cuts(&text, seed)), &whole);
        }
    }

    #[test]
    fn nothing_the_model_wrote_is_lost(text in text()) {
        prop_assert_eq!(missing(&tools(), &text), None);
    }

    #[test]
    fn what_is_called_has_strict_arguments(text in text()) {
        for event in parse_pieces(&tools(), [text.as_str()]) {
            if let DialectEvent::Call(call) = event {
                let value: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
                prop_assert!(value.is_object());
            }
        }
    }

    #[test]
    fn neutral_text_calls_and_thinks_nothing(text in text()) {
        let text = escape_markers(&text).into_owned();
        let quoted = format!("Result: {text}");
        for event in parse_pieces(&tools(), [quoted.as_str()]) {
            let explicit = matches!(&event, DialectEvent::Call(call) if call.explicit && call.dialect != "tool_code");
            let thought = matches!(event, DialectEvent::Reasoning(_) | DialectEvent::TextWasReasoning);
            prop_assert!(!explicit && !thought, "{event:?}");
        }
    }

    #[test]
    fn repair_never_panics_and_gives_strict_json(text in text()) {
        if let Ok((json, _)) = repair_json(&text) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
        }
    }
}

/// A word of the text that came out nowhere, markers and tokens aside.
fn missing(tools: &Arc<ToolSet>, text: &str) -> Option<String> {
    let mut out = String::new();
    for event in parse_pieces(tools, [text]) {
        match event {
            DialectEvent::Text(text)
            | DialectEvent::Reasoning(text)
            | DialectEvent::Hallucination(text) => out.push_str(&text),
            DialectEvent::Call(call) | DialectEvent::CallFinished(call) => out.push_str(&call.raw),
            DialectEvent::InvalidCall(broken) => out.push_str(&broken.text),
            DialectEvent::TextWasReasoning
            | DialectEvent::CallStarted(_)
            | DialectEvent::CallArguments(_) => (),
        }
    }
    ["Seoul", "한글", "é", "&quot;"]
        .into_iter()
        .find_map(|word| {
            let kept = out.matches(word).count() >= text.matches(word).count();
            (!kept).then(|| format!("{word} of {text:?} is not in {out:?}"))
        })
}

/// Hostile texts of about `length` bytes.
fn hostile(length: usize) -> Vec<String> {
    let repeated = [
        "<",
        "{",
        "[",
        "`",
        "```",
        "\n```",
        "<tool_call>",
        "<tool_call>{",
        "<tool_call>{\"a\":\"x</tool_call>",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"",
        "{\"name\":\"get_weather\",/*\n",
        "<think>",
        "</think>",
        "<function=get_weather><parameter=city>",
        "<function=get_weather><parameter=city></function>",
        "<get_weather><city>",
        "\n<get_weather><city></get_weather>",
        "<invoke name=\"",
        "<arg_key>",
        "```json\n{\"name\":\"get_weather\",\"a\":\"\n```\n",
        "\n{\"name\": \"get_weather\",",
        "Action: get_weather[",
        "\nAction: get_weather[\"x",
        "\nThought: a",
        "<|channel|>",
        "<|start|>assistant to=",
        "[TOOL_CALLS]get_weather{\"a\":\"",
        "call:get_weather{city:\"",
        "\ncall:get_weather{city:<",
        "<|tool_call>call:get_weather{a:[",
        "✿FUNCTION✿:",
        "]<]minimax[>[<a>",
        "<tool_call>get_weather<arg_key>a</arg_key><arg_value></tool_call>",
        " ",
        "\n",
        "\\",
        "\"",
        "(",
        "\n[get_weather(",
        "\n```tool_code\nprint(print(",
        "<think>a<tool_call>{\"name\":\"get_all_employees\"}</tool_call>",
        "<|im_end|>",
        "\n{\"name\":\"get_weather\",\"a\":\"\"\"",
        "\n{\"name\":\"get_weather\",\"a\":\"b\" ",
        "<tool_call>{\"name\": \"",
        "</parameter>",
        "<![CDATA[",
        "a: \"b\" , ",
        "{\"a\":",
        "{\"a\":1,",
        "{\"a\":\"{\\\"",
        "{\"a\":[{\"b\":1}],",
        "x {\"a\": 1} ",
        "{\"a\": 1, \"tool\": ",
        "{\"tool\": 5, \"arguments\": ",
        "x {\"tool\": \"nosuch\"} ",
        "\n```tool_code\nfor get_weather(\n```\n",
        "\n```tool_code\nx(\n",
    ];
    let mut texts: Vec<String> = repeated
        .iter()
        .map(|it| it.repeat(length / it.len()))
        .collect();
    let opener = "<tool_call>{\"name\": \"get_weather\", \"arguments\": ";
    texts.push(format!("{opener}{}", "[".repeat(length)));
    texts.push(format!("{opener}{{\"city\": \"{}", "x".repeat(length)));
    texts.push(format!(
        "<tool_call><function=get_weather><parameter=city>{}",
        "<x ".repeat(length / 3)
    ));
    texts.push(format!(
        "<tool_call><function=write_file><parameter=content>{}",
        "</tool_call>".repeat(length / 12)
    ));
    texts.push(format!(
        "{{\"name\": \"get_weather\", \"arguments\": {{{}",
        "\"a\":1,".repeat(length / 6)
    ));
    texts
}

#[test]
fn hostile_text_costs_no_more_than_its_length() {
    for text in hostile(5_000) {
        let start: String = text.chars().take(40).collect();
        for options in [DialectOptions::default(), PROMPTED] {
            let whole = cost(&text, |text| parse_with(&tools(), options, [text]));
            let single = cost(&text, |text| {
                parse_with(&tools(), options, characters(text))
            });
            // Unoptimised and on a busy machine.
            assert!(whole < 5.0, "{start}: {whole} s");
            assert!(single < 10.0, "{start}: {single} s by characters");
        }
    }
}

#[test]
fn hostile_text_is_read_alike_in_every_chunking() {
    for text in hostile(3_000) {
        for options in [DialectOptions::default(), PROMPTED] {
            let parse = |pieces: Vec<&str>| parse_with(&tools(), options, pieces);
            let whole = parse(vec![&text]);
            assert_eq!(parse(characters(&text).collect()), whole);
            assert_eq!(parse(random_cuts(&text, 7)), whole);
        }
    }
}

fn cost(text: &str, read: impl Fn(&str) -> Vec<DialectEvent>) -> f64 {
    let start = std::time::SystemTime::now();
    std::hint::black_box(read(text));
    start.elapsed().unwrap().as_secs_f64()
}
