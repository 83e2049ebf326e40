//! What was said before, in a form that no backend refuses.

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{ChatRequest, Message, Role};
use crate::dialect::{self, Tools};

/// What a backend is particular about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taste {
    /// Knows the role `developer`.
    pub(super) developer: bool,
    /// Takes only ids of nine letters or digits.
    pub(super) short_ids: bool,
}

impl Taste {
    /// What the backend at `base_url` likes for `model`.
    pub(super) fn of(base_url: &str, model: &str) -> Self {
        const MISTRAL: [&str; 8] = [
            "mistral",
            "mixtral",
            "ministral",
            "devstral",
            "magistral",
            "codestral",
            "pixtral",
            "voxtral",
        ];
        let model = model.to_ascii_lowercase();
        Self {
            developer: base_url.contains("://api.openai.com"),
            short_ids: MISTRAL.iter().any(|it| model.contains(it)),
        }
    }
}

/// Cleans every message of `request`.
pub(super) fn clean(request: &mut ChatRequest, tools: &Tools, taste: Taste) {
    for (at, message) in request.messages.iter_mut().enumerate() {
        match message.role {
            Role::Developer if !taste.developer => message.role = Role::System,
            Role::Assistant => clean_assistant(message, at, tools, taste),
            Role::Tool => clean_result(message, taste),
            Role::Developer | Role::System | Role::User => (),
        }
    }
}

fn clean_assistant(message: &mut Message, at: usize, tools: &Tools, taste: Taste) {
    let calls = message.members.remove("tool_calls");
    let calls: Vec<Value> = match calls {
        Some(Value::Array(calls)) => calls
            .into_iter()
            .enumerate()
            .filter_map(|(nth, call)| clean_call(call, (at, nth), tools, taste))
            .collect(),
        _ => Vec::new(),
    };
    let silent = message.members.get("content").is_none_or(Value::is_null);
    // Some refuse `null` beside no call, some an empty list of calls.
    if silent && calls.is_empty() {
        message.members.insert("content".to_owned(), "".into());
    }
    if !calls.is_empty() {
        message
            .members
            .insert("tool_calls".to_owned(), calls.into());
    }
}

fn clean_call(call: Value, at: (usize, usize), tools: &Tools, taste: Taste) -> Option<Value> {
    let Value::Object(mut call) = call else {
        return None;
    };
    let Some(Value::Object(mut function)) = call.remove("function") else {
        return None;
    };
    let name = function.get("name")?.as_str()?.to_owned();
    let arguments = clean_arguments(tools, &name, function.get("arguments"));
    function.insert("arguments".to_owned(), arguments.into());
    let given = call.remove("id");
    let given = given.as_ref().and_then(Value::as_str).unwrap_or_default();
    let id = match given {
        "" => format!("call_{}_{}", at.0, at.1),
        given => given.to_owned(),
    };
    let mut clean = Map::new();
    clean.insert("id".to_owned(), taste.id(id).into());
    clean.insert("type".to_owned(), "function".into());
    clean.insert("function".to_owned(), function.into());
    call.remove("type");
    call.remove("index");
    clean.extend(call);
    Some(clean.into())
}

/// JSON text of an object, whatever was kept.
pub(super) fn clean_arguments(tools: &Tools, name: &str, given: Option<&Value>) -> String {
    let text = match given {
        Some(Value::String(text)) => text.as_str(),
        Some(object @ Value::Object(_)) => return object.to_string(),
        _ => return "{}".to_owned(),
    };
    if is_object(text) {
        return text.to_owned();
    }
    match dialect::arguments(tools, name, text) {
        Ok(call) => call.arguments,
        // Lost for the backend anyway; the model may still see what it wrote.
        Err(_) if text.trim().is_empty() => "{}".to_owned(),
        Err(_) => json!({"malformed": text}).to_string(),
    }
}

fn is_object(text: &str) -> bool {
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

fn clean_result(message: &mut Message, taste: Taste) {
    let id = message.members.get("tool_call_id").and_then(Value::as_str);
    let id = taste.id(id.unwrap_or_default().to_owned());
    message.members.insert("tool_call_id".to_owned(), id.into());
    // Few backends take parts or other JSON as a result.
    let text = match message.members.get("content") {
        Some(Value::String(_)) => return,
        Some(Value::Array(_)) => message.content(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    message.members.insert("content".to_owned(), text.into());
}

impl Taste {
    /// The same id for the call and its result.
    fn id(self, id: String) -> String {
        let short = id.len() == 9 && id.bytes().all(|it| it.is_ascii_alphanumeric());
        if !self.short_ids || short {
            return id;
        }
        let digest = Sha256::digest(id.as_bytes());
        digest
            .iter()
            .take(9)
            .map(|it| char::from(b'a' + it % 26))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(value: Value) -> Message {
        let Value::Object(mut members) = value else {
            panic!("not an object")
        };
        let role = match members.remove("role").unwrap().as_str().unwrap() {
            "developer" => Role::Developer,
            "assistant" => Role::Assistant,
            "tool" => Role::Tool,
            _ => Role::User,
        };
        Message { role, members }
    }

    fn check(taste: Taste, given: Value, expected: impl Into<Value>) {
        let expected: Value = expected.into();
        let mut request = ChatRequest {
            messages: vec![message(given)],
            ..ChatRequest::default()
        };
        clean(&mut request, &Tools::new([]), taste);
        assert_eq!(request.messages.remove(0).into_value(), expected);
    }

    #[test]
    fn roles_and_empty_messages_are_made_acceptable() {
        let plain = Taste::default();
        check(
            plain,
            json!({"role": "developer", "content": "a"}),
            json!({"role": "system", "content": "a"}),
        );
        check(
            plain,
            json!({"role": "assistant", "content": null, "tool_calls": []}),
            json!({"role": "assistant", "content": ""}),
        );
        check(
            plain,
            json!({"role": "tool", "tool_call_id": "x", "content": [{"type": "text", "text": "a"}]}),
            json!({"role": "tool", "tool_call_id": "x", "content": "a"}),
        );
    }

    #[test]
    fn old_calls_become_well_formed() {
        let call = |arguments: Value| json!({"role": "assistant", "content": "t", "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": arguments}}]});
        let clean = |arguments: &str| {
            json!({"role": "assistant", "content": "t", "tool_calls": [
                {"id": "call_0_0", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
        };
        let plain = Taste::default();
        check(plain, call(json!(r#"{"a": 1}"#)), clean(r#"{"a": 1}"#));
        check(plain, call(json!({"a": 1})), clean(r#"{"a":1}"#));
        check(plain, call(json!("")), clean("{}"));
        check(plain, call(Value::Null), clean("{}"));
    }

    #[test]
    fn mistral_gets_ids_of_nine_letters_that_still_match() {
        let taste = Taste::of("http://x/v1", "mistral-small");
        let id = taste.id("call_abcdefghijklmnop".to_owned());
        assert_eq!(id.len(), 9);
        assert_eq!(id, taste.id("call_abcdefghijklmnop".to_owned()));
        assert_eq!(taste.id("a1B2c3D4e".to_owned()), "a1B2c3D4e");
        assert!(Taste::of("https://api.openai.com/v1", "gpt").developer);
    }
}
