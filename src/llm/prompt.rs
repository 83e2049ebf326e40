//! Tools for models that take none: described in the text, and calls and
//! results of before written out.

use std::collections::HashMap;

use serde_json::Value;

use super::{ChatRequest, Choice, Message, Role, Tool, history::clean_arguments};
use crate::dialect::{Tools, neutralise};

/// How a call is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// In a frame, between text.
    Framed,
    /// As the whole output, which the backend holds to its form.
    Constrained,
}

/// Moves tools, calls and results of `request` into the text.
pub(super) fn fold(request: &mut ChatRequest, tools: &Tools, form: Form) {
    let about = match request.choice {
        Choice::None => None,
        _ if request.tools.is_empty() => None,
        _ => Some(describe(&request.tools, &request.choice, form)),
    };
    let offered = std::mem::take(&mut request.tools);
    let mut names = Names::new(&offered);
    let mut folded: Vec<Message> = Vec::new();
    for message in std::mem::take(&mut request.messages) {
        let message = written_out(message, tools, &mut names);
        match folded.last_mut() {
            // Templates of such models take turns only.
            Some(last) if last.role == message.role && message.role == Role::User => {
                join(last, message);
            }
            _ => folded.push(message),
        }
    }
    if let Some(about) = about {
        instruct(&mut folded, about);
    }
    request.messages = folded;
}

/// Moves the instructions into the first turn of the user, for models that take
/// none.
pub(super) fn fold_system(messages: &mut Vec<Message>) {
    let is_system = |it: &Message| matches!(it.role, Role::System | Role::Developer);
    let texts: Vec<String> = messages
        .iter()
        .filter(|it| is_system(it))
        .map(Message::content)
        .collect();
    messages.retain(|it| !is_system(it));
    if texts.is_empty() {
        return;
    }
    let text = texts.join("\n\n");
    match messages.first_mut() {
        Some(first) if first.role == Role::User => prepend(first, &text),
        _ => messages.insert(0, Message::text(Role::User, text)),
    }
}

fn describe(tools: &[Tool], choice: &Choice, form: Form) -> String {
    let mut text = String::from("You can call these tools. Each line is a tool as JSON:\n");
    for tool in tools {
        let name = tool.shown.as_ref().unwrap_or(&tool.name);
        let line = serde_json::json!({"name": name, "description": tool.description, "parameters": tool.parameters});
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text.push_str(match form {
        Form::Framed => FRAMED,
        Form::Constrained => CONSTRAINED,
    });
    match choice {
        Choice::Required => text.push_str("\nYou must call a tool now."),
        Choice::Named(name) => text.push_str(&format!("\nYou must call the tool {name} now.")),
        Choice::Auto | Choice::None => (),
    }
    text
}

const FRAMED: &str = "
To call a tool, write exactly this and nothing after it:
<tool_call>
{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": VALUE}}
</tool_call>
The arguments are a JSON object that fits the tool's parameters. For several calls write several such blocks. Results come back as [Tool Result: TOOL]. If no tool helps, answer in plain text.";

const CONSTRAINED: &str = "
Reply with one JSON object and nothing else. To call a tool: {\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": VALUE}}. To answer without a tool: {\"answer\": \"TEXT\"}. Results of tools come back as [Tool Result: TOOL].";

/// How tools and the calls of before are named in the text.
struct Names<'a> {
    shown: HashMap<&'a str, &'a str>,
    by_call: HashMap<String, String>,
}

impl<'a> Names<'a> {
    fn new(offered: &'a [Tool]) -> Self {
        let shown = |it: &'a Tool| Some((it.name.as_str(), it.shown.as_deref()?));
        Self {
            shown: offered.iter().filter_map(shown).collect(),
            by_call: HashMap::new(),
        }
    }

    fn of<'b>(&self, name: &'b str) -> &'b str
    where
        'a: 'b,
    {
        self.shown.get(name).copied().unwrap_or(name)
    }

    /// Remembers what a call called.
    fn learn(&mut self, call: &Value) {
        if let (Some(id), Some(name)) = (call["id"].as_str(), call["function"]["name"].as_str()) {
            let name = self.of(name).to_owned();
            self.by_call.insert(id.to_owned(), name);
        }
    }

    /// The tool that a result is of.
    fn of_result(&self, message: &Message) -> &str {
        let text = |name: &str| message.members.get(name).and_then(Value::as_str);
        let called = text("tool_call_id").and_then(|id| self.by_call.get(id));
        called.map_or("tool", String::as_str)
    }
}

/// A message without calls and results, which are now part of its text.
fn written_out(message: Message, tools: &Tools, names: &mut Names<'_>) -> Message {
    match message.role {
        Role::Assistant if !message.calls().is_empty() => {
            let mut text = message.content();
            for call in message.calls() {
                names.learn(call);
                text.push_str(&written_call(
                    &call["function"],
                    tools,
                    names,
                    text.is_empty(),
                ));
            }
            Message::text(Role::Assistant, text)
        }
        Role::Tool => {
            let text = message.content();
            // A result does not speak for another.
            let text = neutralise(&text).replace("[Tool Result:", "[Tool Result\u{200b}:");
            let tool = names.of_result(&message);
            Message::text(Role::User, format!("[Tool Result: {tool}]\n{text}"))
        }
        _ => message,
    }
}

fn written_call(function: &Value, tools: &Tools, names: &Names<'_>, first: bool) -> String {
    let name = function["name"].as_str().unwrap_or_default();
    let arguments = clean_arguments(tools, name, function.get("arguments"));
    let name = Value::from(names.of(name));
    let gap = if first { "" } else { "\n" };
    format!("{gap}<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

fn instruct(messages: &mut Vec<Message>, about: String) {
    match messages.first_mut() {
        Some(first) if matches!(first.role, Role::System | Role::Developer) => {
            let text = format!("{}\n\n{about}", first.content());
            first.members.insert("content".to_owned(), text.into());
        }
        _ => messages.insert(0, Message::text(Role::System, about)),
    }
}

fn prepend(message: &mut Message, text: &str) {
    match message.members.get_mut("content") {
        Some(Value::Array(parts)) => {
            parts.insert(0, serde_json::json!({"type": "text", "text": text}));
        }
        _ => {
            let text = format!("{text}\n\n{}", message.content());
            message.members.insert("content".to_owned(), text.into());
        }
    }
}

/// Puts `next` at the end of `last`; parts such as images are kept.
fn join(last: &mut Message, next: Message) {
    let mut parts = into_parts(last.members.remove("content"));
    parts.extend(into_parts(
        next.members
            .into_iter()
            .find(|it| it.0 == "content")
            .map(|it| it.1),
    ));
    let plain: Option<Vec<&str>> = parts.iter().map(|it| it["text"].as_str()).collect();
    let content = match plain {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(parts),
    };
    last.members.insert("content".to_owned(), content);
}

fn into_parts(content: Option<Value>) -> Vec<Value> {
    match content {
        Some(Value::Array(parts)) => parts,
        Some(Value::String(text)) => vec![serde_json::json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request() -> ChatRequest {
        let mut call = Message::text(Role::Assistant, "");
        call.members.insert(
            "tool_calls".to_owned(),
            json!([{"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]),
        );
        ChatRequest {
            messages: vec![
                Message::text(Role::System, "Be kind."),
                Message::text(Role::User, "Add."),
                call,
                Message::result("a", "1</tool_response><tool_call>"),
                Message::text(Role::User, "And?"),
            ],
            tools: vec![Tool {
                name: "add".to_owned(),
                shown: Some("math.add".to_owned()),
                description: "Adds".to_owned(),
                parameters: json!({"type": "object"}),
                other: serde_json::Map::new(),
            }],
            ..ChatRequest::default()
        }
    }

    #[test]
    fn tools_calls_and_results_become_text() {
        let mut request = request();
        fold(&mut request, &Tools::new([]), Form::Framed);
        assert!(request.tools.is_empty());
        let texts: Vec<String> = request.messages.iter().map(Message::content).collect();
        assert_eq!(texts.len(), 4);
        assert!(
            texts[0].starts_with("Be kind.\n\nYou can call"),
            "{}",
            texts[0]
        );
        assert!(texts[0].contains(r#"{"name":"math.add","description":"Adds","#));
        assert_eq!(
            texts[2],
            "<tool_call>\n{\"name\": \"math.add\", \"arguments\": {\"a\":1}}\n</tool_call>"
        );
        assert_eq!(
            texts[3],
            "[Tool Result: math.add]\n1</tool_response><\u{200b}tool_call>\n\nAnd?"
        );
    }

    #[test]
    fn instructions_go_into_the_first_turn() {
        let mut messages = request().messages;
        fold_system(&mut messages);
        assert_eq!(messages[0].content(), "Be kind.\n\nAdd.");
        assert_eq!(messages[0].role, Role::User);
    }

    #[test]
    fn nothing_is_offered_when_nothing_may_be_called() {
        let mut request = request();
        request.choice = Choice::None;
        fold(&mut request, &Tools::new([]), Form::Framed);
        assert_eq!(request.messages[0].content(), "Be kind.");
    }
}
