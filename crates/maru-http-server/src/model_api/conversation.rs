//! Builds a conversation out of the items of an API, in the form that every chat template
//! takes: the instructions first, then turns that alternate.

use serde_json::{Map, Value, json};

use maru_llm::{ChatMessage, ChatRole, IS_ERROR, REASONING_BLOCKS};

/// A conversation so far.
#[derive(Debug, Default)]
pub(in super::super) struct ConversationBuilder {
    system: String,
    messages: Vec<ChatMessage>,
    /// The turn of the user that is not complete: joined once, however often it is added to.
    user_turn: Option<Vec<Value>>,
    /// Images of results, which only the user's turn can hold.
    result_images: Vec<Value>,
}

/// What the model adds to its turn.
#[derive(Debug, Default)]
pub(in super::super) struct AssistantItems {
    pub(in super::super) text: String,
    pub(in super::super) reasoning: String,
    /// Reasoning with the backend's signature, as Anthropic writes it.
    pub(in super::super) reasoning_blocks: Vec<Value>,
    /// Calls, as OpenAI writes them.
    pub(in super::super) calls: Vec<Value>,
}

impl ConversationBuilder {
    /// Adds instructions. Behind the first turn they are a reminder in the user's turn:
    /// few templates take instructions there.
    pub(in super::super) fn push_system(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if self.messages.is_empty() && self.user_turn.is_none() {
            let gap = if self.system.is_empty() { "" } else { "\n\n" };
            self.system.push_str(gap);
            self.system.push_str(text);
        } else {
            let reminder = format!("<system-reminder>\n{text}\n</system-reminder>");
            self.push_user(vec![text_part(reminder)]);
        }
    }

    /// Adds to the turn of the user.
    pub(in super::super) fn push_user(&mut self, parts: Vec<Value>) {
        let turn = self.user_turn.get_or_insert_default();
        turn.append(&mut self.result_images);
        turn.extend(parts);
    }

    /// Adds to the turn of the model.
    pub(in super::super) fn push_assistant(&mut self, items: AssistantItems) {
        self.end_user_turn();
        let continues = matches!(self.messages.last(), Some(it) if it.role == ChatRole::Assistant);
        if !continues {
            let empty = ChatMessage::text(ChatRole::Assistant, "");
            self.messages.push(empty);
        }
        if let Some(turn) = self.messages.last_mut() {
            let members = &mut turn.extra_members;
            append_text(members, "content", items.text);
            append_text(members, "reasoning_content", items.reasoning);
            append_list(members, REASONING_BLOCKS, items.reasoning_blocks);
            append_list(members, "tool_calls", items.calls);
        }
    }

    /// Adds the result of a call. Models read text; images follow in the user's turn.
    pub(in super::super) fn push_result(&mut self, id: &str, content: ResultContent) {
        self.push_user_turn();
        let mut message = ChatMessage::tool_result(id, content.text);
        if content.is_error {
            message
                .extra_members
                .insert(IS_ERROR.to_owned(), true.into());
        }
        self.messages.push(message);
        self.result_images.extend(content.images);
    }

    /// All messages.
    pub(in super::super) fn finish(mut self) -> Vec<ChatMessage> {
        self.end_user_turn();
        if !self.system.is_empty() {
            let system = ChatMessage::text(ChatRole::System, self.system);
            self.messages.insert(0, system);
        }
        self.messages
    }

    /// Ends the turn of the user, which images of results may begin.
    fn end_user_turn(&mut self) {
        if !self.result_images.is_empty() {
            self.push_user(Vec::new());
        }
        self.push_user_turn();
    }

    fn push_user_turn(&mut self) {
        if let Some(parts) = self.user_turn.take() {
            let mut message = ChatMessage::text(ChatRole::User, "");
            let content = user_content(parts);
            message.extra_members.insert("content".to_owned(), content);
            self.messages.push(message);
        }
    }
}

/// What a call returned.
#[derive(Debug, Default)]
pub(in super::super) struct ResultContent {
    pub(in super::super) text: String,
    /// Images, as OpenAI writes them in a message.
    pub(in super::super) images: Vec<Value>,
    /// Whether the tool failed.
    pub(in super::super) is_error: bool,
}

impl ResultContent {
    /// Adds a paragraph.
    pub(in super::super) fn push_text(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }
}

/// A call, as OpenAI writes it in a message.
pub(in super::super) fn call_json(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

pub(in super::super) fn text_part(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

pub(in super::super) fn image_part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

/// Text where there is nothing else: not every template reads parts.
fn user_content(mut parts: Vec<Value>) -> Value {
    parts.retain(|it| it["text"] != "");
    let texts: Option<Vec<&str>> = parts.iter().map(|it| it["text"].as_str()).collect();
    match texts {
        Some(texts) => texts.join("\n\n").into(),
        None => Value::Array(parts),
    }
}

fn append_text(members: &mut Map<String, Value>, name: &str, text: String) {
    if text.is_empty() {
        return;
    }
    match members.get_mut(name) {
        Some(Value::String(all)) if !all.is_empty() => {
            all.push_str("\n\n");
            all.push_str(&text);
        }
        _ => {
            members.insert(name.to_owned(), text.into());
        }
    }
}

fn append_list(members: &mut Map<String, Value>, name: &str, mut more: Vec<Value>) {
    if more.is_empty() {
        return;
    }
    match members.get_mut(name) {
        Some(Value::Array(all)) => all.append(&mut more),
        _ => {
            members.insert(name.to_owned(), more.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_and_instructions_come_first() {
        let mut conversation = ConversationBuilder::default();
        conversation.push_system("a");
        conversation.push_system("b");
        conversation.push_user(vec![text_part("1")]);
        conversation.push_system("c");
        conversation.push_assistant(AssistantItems {
            text: "x".to_owned(),
            ..AssistantItems::default()
        });
        conversation.push_assistant(AssistantItems {
            calls: vec![call_json("i", "f", "{}")],
            ..AssistantItems::default()
        });
        conversation.push_result(
            "i",
            ResultContent {
                text: "r".to_owned(),
                images: vec![image_part("data:x")],
                is_error: true,
            },
        );
        let messages = conversation.finish();
        let roles: Vec<&str> = messages.iter().map(|it| it.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(messages[0].extra_members["content"], "a\n\nb");
        let reminder = "1\n\n<system-reminder>\nc\n</system-reminder>";
        assert_eq!(messages[1].extra_members["content"], reminder);
        assert_eq!(messages[2].extra_members["content"], "x");
        assert_eq!(messages[2].extra_members["tool_calls"][0]["id"], "i");
        assert_eq!(messages[3].extra_members["is_error"], true);
        assert_eq!(messages[4].extra_members["content"][0]["type"], "image_url");
    }
}
