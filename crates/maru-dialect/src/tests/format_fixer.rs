//! Corrupted calls of a prompted model: nearly all are recovered, none into another
//! call.

use super::{Arc, DialectOptions, ToolSet, Value, collect_output, json, parse_with};

/// How many corrupted calls the generators make, at least.
const MIN_CORRUPTIONS: usize = 300;

/// One way in which models break the format they were given.
type Corruption = (&'static str, fn(&str) -> String);

/// What breaks the JSON itself.
const JSON_CORRUPTIONS: &[Corruption] = &[
    ("as told", str::to_owned),
    ("single quotes", |json| json.replace('"', "'")),
    ("smart quotes", |json| paired_quotes(json, '“', '”')),
    ("backticks for quotes", |json| json.replace('"', "`")),
    ("bare keys", |json| {
        json.replace("\"tool\":", "tool:")
            .replace("\"arguments\":", "arguments:")
    }),
    ("bare name", |json| {
        json.replacen("\"calendar.add\"", "calendar.add", 1)
    }),
    ("trailing commas", |json| json.replace('}', ",}")),
    ("doubled comma", |json| json.replacen(", ", ",, ", 1)),
    ("missing comma", |json| {
        json.replacen(", \"arguments\"", " \"arguments\"", 1)
    }),
    ("missing comma on lines", |json| {
        json.replacen(", \"arguments\"", "\n\"arguments\"", 1)
    }),
    ("missing last brace", |json| {
        json[..json.len() - 1].to_owned()
    }),
    ("missing both braces", |json| {
        json[..json.len() - 2].to_owned()
    }),
    ("extra brace", |json| format!("{json}}}")),
    ("doubled braces", |json| {
        json.replace('{', "{{").replace('}', "}}")
    }),
    ("bracket for brace", |json| {
        format!("{}]", &json[..json.len() - 1])
    }),
    ("as a string", |json| serde_json::to_string(json).unwrap()),
    ("arguments as a string", |json| {
        let Some(at) = json.find("{\"title\"") else {
            return json.to_owned();
        };
        let arguments = serde_json::to_string(&json[at..json.len() - 1]).unwrap();
        format!("{}{arguments}}}", &json[..at])
    }),
    ("escaped", |json| json.replace('"', "\\\"")),
    ("entities", |json| json.replace('"', "&quot;")),
    ("byte order mark", |json| format!("\u{feff}{json}")),
    ("comment on a line", |json| {
        json.replacen('{', "{ // the call\n", 1)
    }),
    ("comment of C", |json| {
        json.replacen(", ", ", /* then */ ", 1)
    }),
    ("comment of Python", |json| {
        json.replacen('{', "{ # the call\n", 1)
    }),
    ("python literals", |json| {
        json.replace("true", "True").replace("null", "None")
    }),
    ("python dict", |json| {
        json.replace('"', "'")
            .replace("true", "True")
            .replace("null", "None")
    }),
    ("equals for colon", |json| json.replace("\": ", "\" = ")),
    ("arrow for colon", |json| json.replace("\": ", "\" => ")),
    ("full-width punctuation", |json| {
        json.replace("\": ", "\"：").replace(", ", "，")
    }),
    ("odd spaces", |json| {
        json.replace(": ", ":\u{a0}").replace(", ", ",\u{3000}")
    }),
    ("on many lines", |json| {
        json.replace('{', "{\n\t")
            .replace(", ", ",\n\t")
            .replace('}', "\n}")
    }),
    ("without spaces", |json| {
        json.replace(": ", ":").replace(", ", ",")
    }),
    ("in an array", |json| format!("[{json}]")),
    ("in a wrapper", |json| {
        format!("{{\"tool_calls\": [{json}]}}")
    }),
    ("semicolon", |json| format!("{json};")),
    ("dots", |json| json.replacen("}}", ", ...}}", 1)),
    ("forgotten closing quote", |json| {
        json.replacen("회의\"", "회의", 1)
    }),
    ("forgotten quote of a key", |json| {
        json.replacen("\"title\":", "\"title:", 1)
    }),
    ("plus before a number", |json| json.replace("30", "+30")),
    ("number as text", |json| json.replace("30", "\"30\"")),
    ("other keys", |json| {
        json.replace("\"tool\"", "\"name\"")
            .replace("\"arguments\"", "\"parameters\"")
    }),
    ("input keys", |json| {
        json.replace("\"tool\"", "\"action\"")
            .replace("\"arguments\"", "\"action_input\"")
    }),
    ("name of the server with slash", |json| {
        json.replace("calendar.add", "calendar/add")
    }),
    ("camel case", |json| {
        json.replace("calendar.add", "Calendar.Add")
    }),
    ("prefix of functions", |json| {
        json.replace("calendar.add", "functions.calendar.add")
    }),
];

/// What stands around the JSON.
const SURROUNDINGS: &[Corruption] = &[
    ("alone", str::to_owned),
    ("in a fence", |call| format!("```json\n{call}\n```")),
    ("in a fence without a language", |call| {
        format!("```\n{call}\n```")
    }),
    ("in an open fence", |call| format!("```json\n{call}")),
    ("after words", |call| {
        format!("네, 일정을 추가하겠습니다.\n{call}")
    }),
    ("before words", |call| {
        format!("{call}\n결과를 기다려 주세요.")
    }),
    ("in a fence among words", |call| {
        format!("네, 일정을 추가하겠습니다.\n\n```json\n{call}\n```\n\n결과를 기다려 주세요.")
    }),
    ("in a fence on one line", |call| {
        format!("Sure. ```json {call}``` One moment.")
    }),
    ("after a colon", |call| format!("Calling the tool: {call}")),
    ("in a frame", |call| {
        format!("<tool_call>\n{call}\n</tool_call>")
    }),
    ("in an open frame", |call| format!("<tool_call>\n{call}")),
    ("after reasoning", |call| {
        format!("<think>\n일정을 넣자.\n</think>\n\n{call}")
    }),
    ("before a result", |call| {
        format!("{call}\n\n[Tool Result: calendar.add]\nok")
    }),
    ("before the end of the turn", |call| {
        format!("{call}<end_of_turn>")
    }),
    ("in a frame among words", |call| {
        format!("I will add it.\n<tool_call>{call}</tool_call>\nPlease wait.")
    }),
];

fn paired_quotes(json: &str, open: char, close: char) -> String {
    let mut opens = false;
    let quote = |c| match c {
        '"' => {
            opens = !opens;
            if opens { open } else { close }
        }
        c => c,
    };
    json.chars().map(quote).collect()
}

fn tools() -> Arc<ToolSet> {
    let add = json!({"type": "object", "properties": {
        "title": {"type": "string"}, "minutes": {"type": "integer"},
        "remind": {"type": "boolean"}, "place": {"type": ["string", "null"]}},
        "required": ["title"]});
    let other = json!({"type": "object", "properties": {"query": {"type": "string"}}});
    Arc::new(ToolSet::new([
        ("calendar.add", &add),
        ("mail.search", &other),
    ]))
}

const CALL: &str = r#"{"tool": "calendar.add", "arguments": {"title": "주간 회의", "minutes": 30, "remind": true, "place": null}}"#;

/// The corrupted calls that are not recovered as `CALL`, and how many there were.
fn unrecovered(texts: impl Iterator<Item = (String, String)>) -> (Vec<String>, usize) {
    let expected = json!({"title": "주간 회의", "minutes": 30, "remind": true, "place": null});
    let options = DialectOptions {
        prompted: true,
        ..DialectOptions::default()
    };
    let tools = tools();
    let mut missed = Vec::new();
    let mut count = 0;
    for (kind, text) in texts {
        count += 1;
        let output = collect_output(&parse_with(&tools, options, [text.as_str()]));
        match output.calls.as_slice() {
            [(name, arguments)] if name == "calendar.add" && *arguments == expected => (),
            calls => {
                let other = |(name, _): &(String, Value)| name != "calendar.add";
                assert!(!calls.iter().any(other), "{kind}: {calls:?}");
                missed.push(format!("{kind}: {text}\n  {calls:?}"));
            }
        }
    }
    (missed, count)
}

fn assert_recovered(texts: impl Iterator<Item = (String, String)>, min_percent: usize) {
    let (missed, count) = unrecovered(texts);
    assert!(count >= MIN_CORRUPTIONS);
    assert!(
        (count - missed.len()) * 100 >= min_percent * count,
        "{} of {count} recovered; not:\n{}",
        count - missed.len(),
        missed.join("\n")
    );
}

/// Every corruption of the JSON in every surrounding.
#[test]
fn nearly_every_corrupted_call_is_recovered() {
    let texts = JSON_CORRUPTIONS.iter().flat_map(|(kind, corrupt)| {
        SURROUNDINGS
            .iter()
            .map(move |(place, surround)| (format!("{kind}, {place}"), surround(&corrupt(CALL))))
    });
    assert_recovered(texts, 99);
}

/// Every two corruptions of the JSON, in one surrounding after the other.
#[test]
fn most_calls_with_two_defects_are_recovered() {
    let pairs = JSON_CORRUPTIONS
        .iter()
        .flat_map(|first| JSON_CORRUPTIONS.iter().map(move |second| (first, second)));
    let surroundings = SURROUNDINGS.iter().cycle();
    let texts =
        pairs
            .zip(surroundings)
            .map(|(((one, first), (two, second)), (place, surround))| {
                let text = surround(&second(&first(CALL)));
                (format!("{one}, {two}, {place}"), text)
            });
    assert_recovered(texts, 96);
}
