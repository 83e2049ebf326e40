//! Extracts calls from a JSON value.

use super::{
    arguments::{as_object, coerce_arguments, looks_like_schema},
    json::{JsonObject, JsonValue, get_member},
    repair::JsonRepair,
    schema::JsonTypes,
    tool_set::{ToolSet, ToolSignature},
};

const NAME_KEYS: [&str; 6] = [
    "name",
    "tool",
    "tool_name",
    "function",
    "action",
    "recipient_name",
];
const ARGUMENT_KEYS: [&str; 8] = [
    "arguments",
    "parameters",
    "args",
    "input",
    "tool_input",
    "action_input",
    "params",
    "kwargs",
];
const WRAPPER_KEYS: [&str; 7] = [
    "tool_calls",
    "tool_call",
    "function_call",
    "functionCall",
    "tool_uses",
    "calls",
    "message",
];
/// Keys under which a model names the tool's server apart from the tool.
const SERVER_KEYS: [&str; 2] = ["server", "server_name"];
const ID_KEYS: [&str; 3] = ["id", "tool_call_id", "call_id"];
/// Members of a record of a call that was made.
const RESULT_KEYS: [&str; 4] = ["result", "output", "response", "observation"];
/// Members that say nothing about the call.
const IGNORED_KEYS: [&str; 7] = [
    "type", "role", "content", "index", "object", "thought", "thoughts",
];
/// How deep wrappers are opened.
const MAX_WRAPPER_DEPTH: usize = 6;

/// What one candidate turned out to be.
pub(super) enum CandidateOutcome {
    Call(MatchedCall),
    /// Shaped like a call, of a tool that is not offered.
    UnknownTool(String),
    /// The model answers in the form of a call.
    Answer(String),
    /// Meant as a call that cannot be made as it is written.
    Invalid {
        /// The offered tool it names, if it names one.
        name: Option<String>,
        /// What to write instead, for the model.
        reason: String,
    },
    /// Shaped like a call, which it is not for this reason.
    NotACall(&'static str),
}

/// A call of an offered tool.
pub(super) struct MatchedCall {
    pub(super) name: String,
    pub(super) arguments: JsonObject,
    pub(super) id: Option<String>,
    pub(super) repairs: Vec<JsonRepair>,
}

impl MatchedCall {
    pub(super) fn new(tool: &ToolSignature, arguments: JsonObject) -> Self {
        Self {
            name: tool.name.clone(),
            arguments: coerce_arguments(arguments, tool),
            id: None,
            repairs: Vec::new(),
        }
    }
}

impl CandidateOutcome {
    /// A call of `tool`, called `written` by the model, whose arguments are `value`.
    pub(super) fn wrong_arguments(tool: &ToolSignature, written: &str, value: &JsonValue) -> Self {
        let kind = match value {
            JsonValue::Null => "null",
            JsonValue::Bool(_) => "a boolean",
            JsonValue::Number(_) => "a number",
            JsonValue::String(_) => "a string",
            JsonValue::Array(_) => "a list",
            JsonValue::Object(_) => "this one",
        };
        let form = tool.schema.arguments_form();
        let reason =
            format!("the arguments of {written} must be an object such as {form}, not {kind}");
        Self::invalid_call_of(tool, reason)
    }

    /// A call of `tool` that cannot be made for this reason.
    pub(super) fn invalid_call_of(tool: &ToolSignature, reason: String) -> Self {
        Self::Invalid {
            name: Some(tool.name.clone()),
            reason,
        }
    }

    /// A call whose member `name_key` names no tool.
    fn unnamed_call(name_key: &str) -> Self {
        Self::Invalid {
            name: None,
            reason: format!("{name_key:?} must be the name of one tool, as a string"),
        }
    }
}

/// Whether `key` can open an object that is call-shaped.
pub(super) fn is_call_key(key: &str, tools: &ToolSet) -> bool {
    let known = [
        &NAME_KEYS[..],
        &ARGUMENT_KEYS,
        &WRAPPER_KEYS,
        &ID_KEYS,
        &IGNORED_KEYS,
        &["choices"],
    ];
    known.iter().any(|keys| keys.contains(&key)) || tools.find(key).is_some()
}

/// Whether `key` says which tool is called.
pub(super) fn is_name_key(key: &str) -> bool {
    NAME_KEYS.contains(&key)
}

/// Whether `key` holds the arguments of a call.
pub(super) fn is_arguments_key(key: &str) -> bool {
    ARGUMENT_KEYS.contains(&key)
}

/// Whether `key` stands beside the name of a call without changing it.
pub(super) fn is_side_key(key: &str) -> bool {
    ID_KEYS.contains(&key) || key == "type"
}

/// The names that stand for an answer rather than a tool.
pub(super) fn is_answer_name(name: &str) -> bool {
    let name = name.trim().to_ascii_lowercase().replace(['_', '-'], " ");
    name == "final answer" || name == "directly answer"
}

/// Every call in `value`; empty when it is not call-shaped at all.
///
/// `marked` says that a frame announced a call. Without one, arguments that
/// are left out make a call only of a tool that needs none.
pub(super) fn extract_calls(
    value: &JsonValue,
    tools: &ToolSet,
    marked: bool,
) -> Vec<CandidateOutcome> {
    let mut found = Vec::new();
    collect_calls(
        value,
        &CallExtraction {
            tools,
            in_frame: marked,
        },
        0,
        &mut found,
    );
    found
}

struct CallExtraction<'a> {
    tools: &'a ToolSet,
    in_frame: bool,
}

fn collect_calls(
    value: &JsonValue,
    reading: &CallExtraction<'_>,
    depth: usize,
    found: &mut Vec<CandidateOutcome>,
) {
    if depth > MAX_WRAPPER_DEPTH {
        return;
    }
    match value {
        JsonValue::Array(items) => {
            for item in items {
                collect_calls(item, reading, depth + 1, found);
            }
        }
        JsonValue::Object(members) => collect_from_object(members, reading, depth, found),
        JsonValue::String(text) if text.trim_start().starts_with(['{', '[']) => {
            if let Ok((inner, _)) = super::repair::parse_lenient(text) {
                collect_calls(&inner, reading, depth + 1, found);
            }
        }
        _ => (),
    }
}

fn collect_from_object(
    members: &JsonObject,
    reading: &CallExtraction<'_>,
    depth: usize,
    found: &mut Vec<CandidateOutcome>,
) {
    let inner = WRAPPER_KEYS.iter().find_map(|key| {
        let inner = get_member(members, key)?;
        matches!(inner, JsonValue::Array(_) | JsonValue::Object(_)).then_some(inner)
    });
    let choice = get_member(members, "choices").and_then(|it| match it {
        JsonValue::Array(items) => items.first(),
        _ => None,
    });
    if let Some(inner) = inner.or(choice) {
        return collect_calls(inner, reading, depth + 1, found);
    }
    for key in ["function", "tool"] {
        if let Some(inner @ JsonValue::Object(_)) = get_member(members, key) {
            let before = found.len();
            collect_calls(inner, reading, depth + 1, found);
            if let Some(CandidateOutcome::Call(call)) = found.get_mut(before) {
                call.id = call.id.take().or_else(|| id(members));
            }
            return;
        }
    }
    match NAME_KEYS
        .iter()
        .find_map(|key| Some((*key, get_member(members, key)?.as_str()?)))
    {
        Some((key, name)) => found.push(named_call(members, key, name, reading)),
        None => collect_keyed_calls(members, reading, found),
    }
}

/// `{"name": …, "arguments": …}` in all its spellings.
fn named_call(
    members: &JsonObject,
    name_key: &str,
    name: &str,
    reading: &CallExtraction<'_>,
) -> CandidateOutcome {
    let given = ARGUMENT_KEYS
        .iter()
        .find_map(|key| get_member(members, key));
    // Beside arguments that stand apart, the server cannot be one of them.
    let qualified = given.and_then(|_| qualified_name(members, name));
    let tool = match &qualified {
        Some(qualified) => reading
            .tools
            .find(qualified)
            .or_else(|| reading.tools.find_exact(name)),
        None => reading.tools.find(name),
    };
    let name = qualified.as_deref().unwrap_or(name);
    let Some(tool) = tool else {
        return if is_answer_name(name) {
            CandidateOutcome::Answer(answer(given))
        } else if name.trim().is_empty() && given.is_some() {
            CandidateOutcome::unnamed_call(name_key)
        } else if reading.in_frame || is_call_shaped(name_key, name, given) {
            CandidateOutcome::UnknownTool(name.to_owned())
        } else {
            CandidateOutcome::NotACall("it names no tool")
        };
    };
    if !reading.in_frame && given.is_some() && has_result(members) {
        let reason = format!("write the call of {name} without a result; that comes from the tool");
        return CandidateOutcome::invalid_call_of(tool, reason);
    }
    let mut repairs = Vec::new();
    let arguments = match given {
        Some(value) => match as_object(value, &mut repairs) {
            Some(arguments) if looks_like_schema(&arguments, tool) => {
                return CandidateOutcome::NotACall("it declares a tool");
            }
            Some(arguments) => arguments,
            // Only there, any value may stand for the one argument.
            None => match single_argument(value, tool)
                .filter(|_| get_member(members, "action_input").is_some())
            {
                Some(arguments) => arguments,
                None => return CandidateOutcome::wrong_arguments(tool, name, value),
            },
        },
        None => match flat(members, name_key, tool) {
            Some(arguments) => arguments,
            // Tools are also listed so, each with its name.
            None if name_key == "name" => {
                return CandidateOutcome::NotACall("it has members that are no arguments");
            }
            None => {
                let form = tool.schema.arguments_form();
                let reason = format!(
                    "the arguments of {name} must stand in one object: \"arguments\": {form}"
                );
                return CandidateOutcome::invalid_call_of(tool, reason);
            }
        },
    };
    let absent = !matches!(given, Some(JsonValue::Object(_)));
    if !reading.in_frame && absent && arguments.is_empty() && !tool.schema.required.is_empty() {
        let form = tool.schema.arguments_form();
        let reason = format!("{name} needs the arguments {form}");
        return CandidateOutcome::invalid_call_of(tool, reason);
    }
    let mut call = MatchedCall::new(tool, arguments);
    call.id = id(members);
    call.repairs = repairs;
    CandidateOutcome::Call(call)
}

/// Whether JSON tells of a call and what it returned.
fn has_result(members: &JsonObject) -> bool {
    let result = RESULT_KEYS.iter().find_map(|key| get_member(members, key));
    result.is_some_and(|it| !matches!(it, JsonValue::Null))
}

/// Whether JSON outside a frame can be a call of a tool that is not offered, rather
/// than an answer that happens to have such members.
fn is_call_shaped(name_key: &str, name: &str, given: Option<&JsonValue>) -> bool {
    let identifier = |c: char| c.is_alphanumeric() || "_-./:".contains(c);
    let object = given.and_then(|value| match value {
        JsonValue::Object(_) | JsonValue::String(_) => as_object(value, &mut Vec::new()),
        _ => None,
    });
    let has_arguments = match name_key {
        "tool" | "tool_name" => given.is_some(),
        _ => object.is_some(),
    };
    !name.is_empty() && name.chars().all(identifier) && has_arguments
}

/// The name of the tool with that of its server before it, if the call names one.
fn qualified_name(members: &JsonObject, name: &str) -> Option<String> {
    let server = SERVER_KEYS
        .iter()
        .find_map(|key| get_member(members, key)?.as_str())?;
    (!server.trim().is_empty() && !name.trim().is_empty()).then(|| format!("{server}.{name}"))
}

/// `{"⟨tool⟩": {…}}`.
fn collect_keyed_calls(
    members: &JsonObject,
    reading: &CallExtraction<'_>,
    found: &mut Vec<CandidateOutcome>,
) {
    let read = |(key, value): &(String, JsonValue)| {
        let tool = reading.tools.find(key)?;
        let arguments = as_object(value, &mut Vec::new())?;
        (!looks_like_schema(&arguments, tool)).then(|| MatchedCall::new(tool, arguments))
    };
    let calls: Option<Vec<MatchedCall>> = members.iter().map(read).collect();
    match (calls, members.as_slice()) {
        (Some(calls), _) => found.extend(calls.into_iter().map(CandidateOutcome::Call)),
        (None, [(name, JsonValue::Object(_))]) if reading.in_frame => {
            found.push(CandidateOutcome::UnknownTool(name.clone()));
        }
        (None, _) => {
            let holds = |key: &&&str| get_member(members, key).is_some();
            let name_key = NAME_KEYS.iter().find(holds);
            let name_key = name_key.filter(|_| ARGUMENT_KEYS.iter().any(|key| holds(&key)));
            found.push(match name_key {
                Some(name_key) => CandidateOutcome::unnamed_call(name_key),
                None => CandidateOutcome::NotACall("it names no tool"),
            });
        }
    }
}

/// Arguments that stand beside the name.
fn flat(members: &JsonObject, name_key: &str, tool: &ToolSignature) -> Option<JsonObject> {
    let mut arguments = JsonObject::new();
    for (key, value) in members {
        if tool.schema.property(key).is_some() && key != name_key {
            arguments.push((key.clone(), value.clone()));
        } else if key != name_key
            && !ID_KEYS.contains(&key.as_str())
            && !IGNORED_KEYS.contains(&key.as_str())
        {
            return None;
        }
    }
    Some(arguments)
}

/// A plain value for a tool that takes one.
pub(super) fn single_argument(value: &JsonValue, tool: &ToolSignature) -> Option<JsonObject> {
    let key = match (
        tool.schema.required.as_slice(),
        tool.schema.properties.as_slice(),
    ) {
        ([key], _) => key,
        ([], [(key, _)]) => key,
        _ => return None,
    };
    let kinds = tool.schema.property(key)?.types;
    let fits = match value {
        JsonValue::Array(_) => kinds.has(JsonTypes::ARRAY),
        JsonValue::Object(_) => kinds.has(JsonTypes::OBJECT),
        _ => true,
    };
    fits.then(|| vec![(key.clone(), value.clone())])
}

fn answer(given: Option<&JsonValue>) -> String {
    match given {
        Some(JsonValue::String(text)) => text.clone(),
        Some(JsonValue::Object(members)) => match members.as_slice() {
            [] => String::new(),
            [(_, JsonValue::String(text))] => text.clone(),
            _ => JsonValue::Object(members.clone()).to_strict_json(),
        },
        Some(value) => value.to_strict_json(),
        None => String::new(),
    }
}

fn id(members: &JsonObject) -> Option<String> {
    let id = ID_KEYS
        .iter()
        .find_map(|key| get_member(members, key)?.as_str())?;
    (!id.trim().is_empty()).then(|| id.to_owned())
}
