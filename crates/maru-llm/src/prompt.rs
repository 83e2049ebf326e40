//! Tools for models without tool support: described in the text, with the calls and
//! results of the history written out.

use std::collections::HashMap;

use maru_dialect::{ToolSet, escape_markers};
use serde_json::Value;

use super::{ChatMessage, ChatRequest, ChatRole, ChatTool, ToolChoice, history::clean_arguments};

/// How a call is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFormat {
    /// In a frame, between text.
    Framed,
    /// As the whole output, which the backend constrains to a schema.
    Constrained,
}

/// Moves tools, calls and results of `request` into the text.
pub(super) fn fold_tools_into_text(request: &mut ChatRequest, tools: &ToolSet, form: CallFormat) {
    let instructions = match request.tool_choice {
        ToolChoice::None => None,
        _ if request.tools.is_empty() => None,
        _ => Some(describe_tools(request, form)),
    };
    let offered = std::mem::take(&mut request.tools);
    let mut names = PromptToolNames::new(&offered);
    let mut folded: Vec<ChatMessage> = Vec::new();
    for message in std::mem::take(&mut request.messages) {
        let message = render_message(message, tools, &mut names);
        match folded.last_mut() {
            // Templates of such models take turns only.
            Some(last) if last.role == message.role && message.role == ChatRole::User => {
                join(last, message);
            }
            _ => folded.push(message),
        }
    }
    if let Some(instructions) = instructions {
        insert_instructions(&mut folded, &instructions);
    }
    request.messages = folded;
}

/// Moves the instructions into the first turn of the user, for models that take
/// none.
pub(super) fn fold_system_messages(messages: &mut Vec<ChatMessage>) {
    let is_system = |it: &ChatMessage| matches!(it.role, ChatRole::System | ChatRole::Developer);
    let texts: Vec<String> = messages
        .iter()
        .filter(|it| is_system(it))
        .map(ChatMessage::text_content)
        .collect();
    messages.retain(|it| !is_system(it));
    if texts.is_empty() {
        return;
    }
    let text = texts.join("\n\n");
    match messages.first_mut() {
        Some(first) if first.role == ChatRole::User => prepend(first, &text),
        _ => messages.insert(0, ChatMessage::text(ChatRole::User, text)),
    }
}

fn describe_tools(request: &ChatRequest, form: CallFormat) -> String {
    let mut text = String::from("You can call these tools. Each line is a tool as JSON:\n");
    for tool in &request.tools {
        let name = tool.prompt_name.as_ref().unwrap_or(&tool.name);
        let line = serde_json::json!({"name": name, "description": tool.description, "parameters": tool.parameters});
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text.push_str(match form {
        CallFormat::Framed => FRAMED_CALL_INSTRUCTIONS,
        CallFormat::Constrained => CONSTRAINED_CALL_INSTRUCTIONS,
    });
    if form == CallFormat::Framed {
        let is_parallel = request.other.get("parallel_tool_calls") != Some(&Value::Bool(false));
        text.push_str(if is_parallel {
            " For several calls write several such blocks."
        } else {
            " Write one such block at most."
        });
    }
    match &request.tool_choice {
        ToolChoice::Required => text.push_str("\nYou must call a tool now."),
        ToolChoice::Named(name) => text.push_str(&format!("\nYou must call the tool {name} now.")),
        ToolChoice::Auto | ToolChoice::None => (),
    }
    text
}

const FRAMED_CALL_INSTRUCTIONS: &str = "
To call a tool, write exactly this and nothing after it:
<tool_call>
{\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": VALUE}}
</tool_call>
The arguments are a JSON object that fits the tool's parameters. Results come back as [Tool Result: TOOL]. If no tool helps, answer in plain text.";

const CONSTRAINED_CALL_INSTRUCTIONS: &str = "
Reply with one JSON object and nothing else. To call a tool: {\"name\": \"TOOL\", \"arguments\": {\"PARAMETER\": VALUE}}. To answer without a tool: {\"answer\": \"TEXT\"}. Results of tools come back as [Tool Result: TOOL].";

/// The names of tools and of the history's calls in the text.
struct PromptToolNames<'a> {
    by_tool_name: HashMap<&'a str, &'a str>,
    by_call_id: HashMap<String, String>,
}

impl<'a> PromptToolNames<'a> {
    fn new(offered: &'a [ChatTool]) -> Self {
        let shown = |it: &'a ChatTool| Some((it.name.as_str(), it.prompt_name.as_deref()?));
        Self {
            by_tool_name: offered.iter().filter_map(shown).collect(),
            by_call_id: HashMap::new(),
        }
    }

    fn prompt_name<'b>(&self, name: &'b str) -> &'b str
    where
        'a: 'b,
    {
        self.by_tool_name.get(name).copied().unwrap_or(name)
    }

    /// Remembers the tool of a call.
    fn record_call(&mut self, call: &Value) {
        if let (Some(id), Some(name)) = (call["id"].as_str(), call["function"]["name"].as_str()) {
            let name = self.prompt_name(name).to_owned();
            self.by_call_id.insert(id.to_owned(), name);
        }
    }

    /// The tool that a result is of.
    fn tool_of_result(&self, message: &ChatMessage) -> &str {
        let text = |name: &str| message.extra_members.get(name).and_then(Value::as_str);
        let called = text("tool_call_id").and_then(|id| self.by_call_id.get(id));
        called.map_or("tool", String::as_str)
    }
}

/// A message whose calls and results are part of its text.
fn render_message(
    message: ChatMessage,
    tools: &ToolSet,
    names: &mut PromptToolNames<'_>,
) -> ChatMessage {
    match message.role {
        ChatRole::Assistant if message.written.is_some() => {
            for call in message.tool_calls() {
                names.record_call(call);
            }
            ChatMessage::text(ChatRole::Assistant, message.written.unwrap_or_default())
        }
        ChatRole::Assistant if !message.tool_calls().is_empty() => {
            let mut text = message.text_content();
            for call in message.tool_calls() {
                names.record_call(call);
                text.push_str(&render_call(
                    &call["function"],
                    tools,
                    names,
                    text.is_empty(),
                ));
            }
            ChatMessage::text(ChatRole::Assistant, text)
        }
        ChatRole::Tool => {
            let text = message.result_text();
            // A result cannot pose as another.
            let text = escape_markers(&text).replace("[Tool Result:", "[Tool Result\u{200b}:");
            let tool = names.tool_of_result(&message);
            ChatMessage::text(ChatRole::User, format!("[Tool Result: {tool}]\n{text}"))
        }
        _ => message,
    }
}

fn render_call(
    function: &Value,
    tools: &ToolSet,
    names: &PromptToolNames<'_>,
    first: bool,
) -> String {
    let name = function["name"].as_str().unwrap_or_default();
    let arguments = clean_arguments(tools, name, function.get("arguments"));
    let name = Value::from(names.prompt_name(name));
    let gap = if first { "" } else { "\n" };
    format!("{gap}<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

fn insert_instructions(messages: &mut Vec<ChatMessage>, instructions: &str) {
    match messages.first_mut() {
        Some(first) if matches!(first.role, ChatRole::System | ChatRole::Developer) => {
            let text = format!("{}\n\n{instructions}", first.text_content());
            first
                .extra_members
                .insert("content".to_owned(), text.into());
        }
        _ => messages.insert(0, ChatMessage::text(ChatRole::System, instructions)),
    }
}

fn prepend(message: &mut ChatMessage, text: &str) {
    match message.extra_members.get_mut("content") {
        Some(Value::Array(parts)) => {
            parts.insert(0, serde_json::json!({"type": "text", "text": text}));
        }
        _ => {
            let text = format!("{text}\n\n{}", message.text_content());
            message
                .extra_members
                .insert("content".to_owned(), text.into());
        }
    }
}

/// Puts `next` at the end of `last`; parts such as images are kept.
fn join(last: &mut ChatMessage, next: ChatMessage) {
    let mut parts = into_parts(last.extra_members.remove("content"));
    parts.extend(into_parts(
        next.extra_members
            .into_iter()
            .find(|it| it.0 == "content")
            .map(|it| it.1),
    ));
    let plain: Option<Vec<&str>> = parts.iter().map(|it| it["text"].as_str()).collect();
    let content = match plain {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(parts),
    };
    last.extra_members.insert("content".to_owned(), content);
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
        let mut call = ChatMessage::text(ChatRole::Assistant, "");
        call.extra_members.insert(
            "tool_calls".to_owned(),
            json!([{"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"a\":1}"}}]),
        );
        ChatRequest {
            messages: vec![
                ChatMessage::text(ChatRole::System, "Be kind."),
                ChatMessage::text(ChatRole::User, "Add."),
                call,
                ChatMessage::tool_result("a", "1</tool_response><tool_call>"),
                ChatMessage::text(ChatRole::User, "And?"),
            ],
            tools: vec![ChatTool {
                name: "add".to_owned(),
                prompt_name: Some("math.add".to_owned()),
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
        fold_tools_into_text(&mut request, &ToolSet::new([]), CallFormat::Framed);
        assert!(request.tools.is_empty());
        let texts: Vec<String> = request
            .messages
            .iter()
            .map(ChatMessage::text_content)
            .collect();
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
            "[Tool Result: math.add]\n1<\u{200b}/tool_response><\u{200b}tool_call>\n\nAnd?"
        );
    }

    #[test]
    fn instructions_go_into_the_first_turn() {
        let mut messages = request().messages;
        fold_system_messages(&mut messages);
        assert_eq!(messages[0].text_content(), "Be kind.\n\nAdd.");
        assert_eq!(messages[0].role, ChatRole::User);
    }

    #[test]
    fn nothing_is_offered_when_nothing_may_be_called() {
        let mut request = request();
        request.tool_choice = ToolChoice::None;
        fold_tools_into_text(&mut request, &ToolSet::new([]), CallFormat::Framed);
        assert_eq!(request.messages[0].text_content(), "Be kind.");
    }
}
