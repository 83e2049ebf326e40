//! Which calls a JSON value stands for.

use super::{
    arguments::{as_object, fitted, is_schema},
    json::{Json, Object, get},
    repair::Repair,
    schema::Kinds,
    tools::{Tool, Tools},
};

const NAMES: [&str; 6] = [
    "name",
    "tool",
    "tool_name",
    "function",
    "action",
    "recipient_name",
];
const ARGUMENTS: [&str; 8] = [
    "arguments",
    "parameters",
    "args",
    "input",
    "tool_input",
    "action_input",
    "params",
    "kwargs",
];
const WRAPPERS: [&str; 7] = [
    "tool_calls",
    "tool_call",
    "function_call",
    "functionCall",
    "tool_uses",
    "calls",
    "message",
];
const IDS: [&str; 3] = ["id", "tool_call_id", "call_id"];
/// Members that say nothing about the call.
const NOISE: [&str; 7] = [
    "type", "role", "content", "index", "object", "thought", "thoughts",
];
/// How deep wrappers are opened.
const MAX_DEPTH: usize = 6;

/// What one candidate turned out to be.
pub(super) enum Outcome {
    Call(Found),
    /// Shaped like a call, of a tool that is not offered.
    Unknown(String),
    /// The model answers in the form of a call.
    Answer(String),
    /// Shaped like a call, which it is not for this reason.
    Not(&'static str),
}

/// A call of an offered tool.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) arguments: Object,
    pub(super) id: Option<String>,
    pub(super) repairs: Vec<Repair>,
}

impl Found {
    pub(super) fn new(tool: &Tool, arguments: Object) -> Self {
        Self {
            name: tool.name.clone(),
            arguments: fitted(arguments, tool),
            id: None,
            repairs: Vec::new(),
        }
    }
}

/// Whether `key` can open an object that is call-shaped.
pub(super) fn is_call_key(key: &str, tools: &Tools) -> bool {
    let known = [
        &NAMES[..],
        &ARGUMENTS,
        &WRAPPERS,
        &IDS,
        &NOISE,
        &["choices"],
    ];
    known.iter().any(|keys| keys.contains(&key)) || tools.find(key).is_some()
}

/// Whether `key` says which tool is called.
pub(super) fn is_name_key(key: &str) -> bool {
    NAMES.contains(&key)
}

/// The names that stand for an answer rather than a tool.
pub(super) fn is_answer(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace(['_', '-'], " ");
    name == "final answer" || name == "directly answer"
}

/// Every call in `value`; empty when it is not call-shaped at all.
///
/// `marked` says that a frame announced a call. Without one, arguments that
/// are left out make a call only of a tool that needs none.
pub(super) fn outcomes(value: &Json, tools: &Tools, marked: bool) -> Vec<Outcome> {
    let mut found = Vec::new();
    collect(value, &Reading { tools, marked }, 0, &mut found);
    found
}

struct Reading<'a> {
    tools: &'a Tools,
    marked: bool,
}

fn collect(value: &Json, reading: &Reading<'_>, depth: usize, found: &mut Vec<Outcome>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Json::Array(items) => {
            for item in items {
                collect(item, reading, depth + 1, found);
            }
        }
        Json::Object(members) => object(members, reading, depth, found),
        Json::String(text) if text.trim_start().starts_with(['{', '[']) => {
            if let Ok((inner, _)) = super::repair::parse(text) {
                collect(&inner, reading, depth + 1, found);
            }
        }
        _ => (),
    }
}

fn object(members: &Object, reading: &Reading<'_>, depth: usize, found: &mut Vec<Outcome>) {
    let inner = WRAPPERS.iter().find_map(|key| {
        let inner = get(members, key)?;
        matches!(inner, Json::Array(_) | Json::Object(_)).then_some(inner)
    });
    let choice = get(members, "choices").and_then(|it| match it {
        Json::Array(items) => items.first(),
        _ => None,
    });
    if let Some(inner) = inner.or(choice) {
        return collect(inner, reading, depth + 1, found);
    }
    for key in ["function", "tool"] {
        if let Some(inner @ Json::Object(_)) = get(members, key) {
            let before = found.len();
            collect(inner, reading, depth + 1, found);
            if let Some(Outcome::Call(call)) = found.get_mut(before) {
                call.id = call.id.take().or_else(|| id(members));
            }
            return;
        }
    }
    match NAMES
        .iter()
        .find_map(|key| Some((*key, get(members, key)?.as_str()?)))
    {
        Some((key, name)) => found.push(named(members, key, name, reading)),
        None => keyed(members, reading, found),
    }
}

/// `{"name": …, "arguments": …}` in all its spellings.
fn named(members: &Object, name_key: &str, name: &str, reading: &Reading<'_>) -> Outcome {
    let given = ARGUMENTS.iter().find_map(|key| get(members, key));
    let Some(tool) = reading.tools.find(name) else {
        return match is_answer(name) {
            true => Outcome::Answer(answer(given)),
            false => Outcome::Unknown(name.to_owned()),
        };
    };
    let mut repairs = Vec::new();
    let arguments = match given {
        Some(value) => match as_object(value, &mut repairs) {
            Some(arguments) if is_schema(&arguments, tool) => {
                return Outcome::Not("it declares a tool");
            }
            Some(arguments) => arguments,
            // Only there, any value may stand for the one argument.
            None => match single(value, tool).filter(|_| get(members, "action_input").is_some()) {
                Some(arguments) => arguments,
                None => return Outcome::Not("its arguments are no object"),
            },
        },
        None => match flat(members, name_key, tool) {
            Some(arguments) => arguments,
            None => return Outcome::Not("it has members that are no arguments"),
        },
    };
    let absent = !matches!(given, Some(Json::Object(_)));
    if !reading.marked && absent && arguments.is_empty() && !tool.schema.required.is_empty() {
        return Outcome::Not("it has no arguments");
    }
    let mut call = Found::new(tool, arguments);
    call.id = id(members);
    call.repairs = repairs;
    Outcome::Call(call)
}

/// `{"⟨tool⟩": {…}}`.
fn keyed(members: &Object, reading: &Reading<'_>, found: &mut Vec<Outcome>) {
    let read = |(key, value): &(String, Json)| {
        let tool = reading.tools.find(key)?;
        let arguments = as_object(value, &mut Vec::new())?;
        (!is_schema(&arguments, tool)).then(|| Found::new(tool, arguments))
    };
    let calls: Option<Vec<Found>> = members.iter().map(read).collect();
    match (calls, members.as_slice()) {
        (Some(calls), _) => found.extend(calls.into_iter().map(Outcome::Call)),
        (None, [(name, Json::Object(_))]) => found.push(Outcome::Unknown(name.clone())),
        (None, _) => found.push(Outcome::Not("it names no tool")),
    }
}

/// Arguments that stand beside the name.
fn flat(members: &Object, name_key: &str, tool: &Tool) -> Option<Object> {
    let mut arguments = Object::new();
    for (key, value) in members {
        if tool.schema.property(key).is_some() && key != name_key {
            arguments.push((key.clone(), value.clone()));
        } else if key != name_key && !IDS.contains(&key.as_str()) && !NOISE.contains(&key.as_str())
        {
            return None;
        }
    }
    Some(arguments)
}

/// A plain value for a tool that takes one.
pub(super) fn single(value: &Json, tool: &Tool) -> Option<Object> {
    let key = match (
        tool.schema.required.as_slice(),
        tool.schema.properties.as_slice(),
    ) {
        ([key], _) => key,
        ([], [(key, _)]) => key,
        _ => return None,
    };
    let kinds = tool.schema.property(key)?.kinds;
    let fits = match value {
        Json::Array(_) => kinds.has(Kinds::ARRAY),
        Json::Object(_) => kinds.has(Kinds::OBJECT),
        _ => true,
    };
    fits.then(|| vec![(key.clone(), value.clone())])
}

fn answer(given: Option<&Json>) -> String {
    match given {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Object(members)) => match members.as_slice() {
            [] => String::new(),
            [(_, Json::String(text))] => text.clone(),
            _ => Json::Object(members.clone()).write(),
        },
        Some(value) => value.write(),
        None => String::new(),
    }
}

fn id(members: &Object) -> Option<String> {
    let id = IDS.iter().find_map(|key| get(members, key)?.as_str())?;
    (!id.trim().is_empty()).then(|| id.to_owned())
}
