//! What is asked of a model, and what comes back.

use maru_dialect::JsonRepair;
use serde_json::{Map, Value, json};

/// A conversation to go on with.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The name that the client asks for.
    pub model: String,
    /// What was said so far.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Vec<ChatTool>,
    /// Tools that the text describes already: calls of them are recognised, but
    /// they are not offered again.
    pub described_tools: Vec<ChatTool>,
    /// Whether it must call.
    pub tool_choice: ToolChoice,
    /// Everything else, passed on as it is.
    pub other: Map<String, Value>,
}

/// One thing that was said.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage {
    /// By whom.
    pub role: ChatRole,
    /// Its other members, as OpenAI writes them.
    pub extra_members: Map<String, Value>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatRole {
    /// Whoever runs the conversation, under its newer name.
    Developer,
    /// Whoever runs the conversation.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

/// Something that can be called.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatTool {
    /// What calls name.
    pub name: String,
    /// The same for models that read it in the text, where a name may be anything.
    pub prompt_name: Option<String>,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Other members of the function, such as `strict`.
    pub other: Map<String, Value>,
}

/// Whether the model must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// Something.
    Required,
    /// This tool.
    Named(String),
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// Said to the reader.
    Text(String),
    /// Thought before.
    Reasoning(String),
    /// All text so far was thought: its end came without a beginning.
    TextWasReasoning,
    /// The model declines, in words of its own.
    Refusal(String),
    /// A call, complete.
    ToolCall(ChatToolCall),
    /// Looked like a call and is none; `text` is what the model wrote.
    InvalidCall {
        /// What the model wrote.
        text: String,
        /// The tool, if it was named.
        name: Option<String>,
        /// What is wrong with it.
        reason: String,
    },
    /// What it took.
    Usage(TokenUsage),
    /// Why it ended; comes once, after everything but the usage.
    Finish(FinishReason),
}

/// A call of a tool, with arguments that are one JSON object.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatToolCall {
    /// `call_` and 24 letters or digits.
    pub id: String,
    /// The name of an offered tool.
    pub name: String,
    /// JSON text of an object.
    pub arguments: String,
    /// How the model wrote it; `native` if the backend read it.
    pub dialect: &'static str,
    /// What had to be repaired.
    pub repairs: Vec<JsonRepair>,
    /// What the model wrote.
    pub raw: String,
    /// Whether it stood in a frame that is meant for calls only.
    pub explicit: bool,
}

/// Tokens, as the backend counts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenUsage(pub Map<String, Value>);

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// It was complete.
    Stop,
    /// It was cut off.
    Length,
    /// It calls tools.
    ToolCalls,
    /// It was suppressed.
    ContentFilter,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatResponse {
    /// Said to the reader, broken calls included.
    pub text: String,
    /// Thought before.
    pub reasoning: String,
    /// Why the model declined.
    pub refusal: Option<String>,
    /// Calls, in their order.
    pub calls: Vec<ChatToolCall>,
    /// What looked like a call and is none, with the reason.
    pub invalid_calls: Vec<(Option<String>, String)>,
    /// What it took.
    pub usage: Option<TokenUsage>,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

impl Default for ChatResponse {
    fn default() -> Self {
        Self {
            text: String::new(),
            reasoning: String::new(),
            refusal: None,
            calls: Vec::new(),
            invalid_calls: Vec::new(),
            usage: None,
            finish_reason: FinishReason::Stop,
        }
    }
}

impl ChatResponse {
    /// Adds what comes next.
    pub fn apply_event(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Text(text) => append(&mut self.text, text),
            ChatEvent::Reasoning(text) => append(&mut self.reasoning, text),
            ChatEvent::TextWasReasoning => {
                let text = std::mem::take(&mut self.text);
                append(&mut self.reasoning, text);
            }
            ChatEvent::Refusal(text) => append(self.refusal.get_or_insert_default(), text),
            ChatEvent::ToolCall(call) => self.calls.push(call),
            ChatEvent::InvalidCall { text, name, reason } => {
                append(&mut self.text, text);
                self.invalid_calls.push((name, reason));
            }
            ChatEvent::Usage(usage) => self.usage = Some(usage),
            ChatEvent::Finish(finish) => self.finish_reason = finish,
        }
    }
}

/// Most texts come in one piece, which needs no copy.
fn append(all: &mut String, piece: String) {
    if all.is_empty() {
        *all = piece;
    } else {
        all.push_str(&piece);
    }
}

impl FinishReason {
    /// As OpenAI names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

impl ChatRole {
    /// As OpenAI names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Developer => "developer",
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl ChatMessage {
    /// A message that is nothing but text.
    pub fn text(role: ChatRole, text: impl Into<String>) -> Self {
        let mut extra_members = Map::new();
        extra_members.insert("content".to_owned(), Value::from(text.into()));
        Self {
            role,
            extra_members,
        }
    }

    /// What the model said and called, to be sent back to it.
    pub fn assistant(text: &str, calls: &[ChatToolCall]) -> Self {
        let mut message = Self::text(ChatRole::Assistant, text);
        let calls: Vec<Value> = calls
            .iter()
            .map(|it| {
                let function = json!({"name": it.name, "arguments": it.arguments});
                json!({"id": it.id, "type": "function", "function": function})
            })
            .collect();
        if !calls.is_empty() {
            message
                .extra_members
                .insert("tool_calls".to_owned(), calls.into());
        }
        message
    }

    /// The result of a call.
    pub fn tool_result(id: &str, text: impl Into<String>) -> Self {
        let mut message = Self::text(ChatRole::Tool, text);
        message
            .extra_members
            .insert("tool_call_id".to_owned(), id.into());
        message
    }

    /// Its text, parts joined; images and the like are left out.
    pub fn text_content(&self) -> String {
        match self.extra_members.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|it| it["text"].as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        }
    }

    /// The calls it carries.
    pub(super) fn tool_calls(&self) -> &[Value] {
        let calls = self
            .extra_members
            .get("tool_calls")
            .and_then(Value::as_array);
        calls.map_or(&[], Vec::as_slice)
    }

    /// As OpenAI writes it.
    pub(super) fn into_openai_json(self) -> Value {
        let mut all = Map::with_capacity(self.extra_members.len() + 1);
        all.insert("role".to_owned(), self.role.as_str().into());
        all.extend(self.extra_members);
        Value::Object(all)
    }
}

impl ChatTool {
    /// As OpenAI writes it.
    pub(super) fn into_openai_json(self) -> Value {
        let mut function = Map::new();
        function.insert("name".to_owned(), self.name.into());
        if !self.description.is_empty() {
            function.insert("description".to_owned(), self.description.into());
        }
        function.insert("parameters".to_owned(), self.parameters);
        function.extend(self.other);
        json!({"type": "function", "function": function})
    }
}

/// `prefix` and 24 letters and digits that nobody guesses.
pub fn random_id(prefix: &str) -> String {
    const ID_ALPHABET: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ab";
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    let letters = bytes
        .iter()
        .map(|it| char::from(ID_ALPHABET[usize::from(it % 64)]));
    prefix.chars().chain(letters).collect()
}
