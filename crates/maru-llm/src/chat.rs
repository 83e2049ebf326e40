//! Requests to a model and the pieces of its response.

use maru_dialect::JsonRepair;
use serde_json::{Map, Value, json};

use super::TokenUsage;

/// A conversation that a model is asked to continue.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The model, by the name that clients use.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// A text to continue as it stands, in place of a conversation.
    pub text_prompt: Option<TextPrompt>,
    /// The tools that the model may call.
    pub tools: Vec<ChatTool>,
    /// Tools that the text describes already: calls of them are recognised, but
    /// they are not offered again.
    pub described_tools: Vec<ChatTool>,
    /// Whether the model must call a tool.
    pub tool_choice: ToolChoice,
    /// All other members, forwarded unchanged.
    pub other: Map<String, Value>,
    /// Members that only Anthropic's API has, such as `thinking` and `output_config`. Other
    /// backends do not get them.
    pub anthropic_members: Map<String, Value>,
}

/// A text that a model continues without a chat template.
#[derive(Clone, Debug, PartialEq)]
pub struct TextPrompt {
    /// Text, or the numbers of its tokens.
    pub prompt: Value,
    /// What follows the text that the model writes, to complete code in the middle.
    pub suffix: Option<String>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatMessage {
    /// Who wrote it.
    pub role: ChatRole,
    /// Its other members, as OpenAI writes them. Those of [`REASONING_BLOCKS`] and
    /// [`IS_ERROR`] are known to few backends.
    pub extra_members: Map<String, Value>,
    /// What the model wrote, calls in its own syntax included. A model that reads its
    /// tools in the text sees it in place of the parsed calls.
    pub written: Option<String>,
}

/// The member of a model's message with the reasoning that the backend signed: `thinking`
/// and `redacted_thinking` blocks, as Anthropic writes them. `reasoning_content` has the same
/// reasoning as text.
pub const REASONING_BLOCKS: &str = "reasoning_blocks";
/// The member of a call's `extra_content` that is Anthropic's.
pub(super) const ANTHROPIC_CONTENT: &str = "anthropic";
/// The member of a result that says whether the tool failed.
pub const IS_ERROR: &str = "is_error";

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatRole {
    /// The application, under its newer name.
    Developer,
    /// The application.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatTool {
    /// The name that calls use.
    pub name: String,
    /// The name for models that read it in the text, where a name may be anything.
    pub prompt_name: Option<String>,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
    /// Other members of the function, such as `strict`.
    pub other: Map<String, Value>,
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must call some tool.
    Required,
    /// It must call this tool.
    Named(String),
}

/// A piece of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// Text for the user.
    Text(String),
    /// Reasoning of the model.
    Reasoning(String),
    /// The backend's signature of the reasoning since the last signature. The backend wants
    /// both back in the next request.
    ReasoningSignature(String),
    /// Reasoning that only the backend can read, and wants back.
    RedactedReasoning(String),
    /// All text so far was reasoning: its closing tag came without an opening one.
    TextWasReasoning,
    /// The model's refusal.
    Refusal(String),
    /// A call begins whose arguments follow in pieces, before the complete
    /// [`ChatEvent::ToolCall`] with the same id. If the response is cut off, the complete
    /// call does not follow.
    ToolCallStarted {
        /// The id of the call.
        id: String,
        /// The name of an offered tool.
        name: String,
        /// What the backend wants back with the call, see [`ChatToolCall::extra_content`].
        extra_content: Option<Value>,
    },
    /// The next piece of the arguments of the call that began last.
    ToolCallArguments(String),
    /// A complete call.
    ToolCall(ChatToolCall),
    /// Shaped like a call, but no call can be made of it.
    InvalidCall(InvalidToolCall),
    /// Token log probabilities, as the backend writes them.
    Logprobs(Map<String, Value>),
    /// The backend configuration that generated the response; comes before any text.
    SystemFingerprint(String),
    /// The stop sequence that ended the response, if the backend says which.
    StopSequence(String),
    /// Token counts; a backend may send them repeatedly, the last one counts.
    Usage(TokenUsage),
    /// Why the response ended; comes once, after everything but the usage.
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
    /// The syntax the model wrote it in; `native` if the backend parsed it.
    pub dialect: &'static str,
    /// What had to be repaired.
    pub repairs: Vec<JsonRepair>,
    /// What the model wrote.
    pub raw: String,
    /// Whether it stood in a frame that is meant for calls only.
    pub explicit: bool,
    /// What the backend wants back with the call, as `extra_content` of OpenAI's API:
    /// Gemini's thought signature, Anthropic's signed reasoning.
    pub extra_content: Option<Value>,
}

/// What looks like a call and cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidToolCall {
    /// What the model wrote.
    pub text: String,
    /// The tool, if one was named.
    pub name: Option<String>,
    /// What is wrong with it, for the model.
    pub reason: String,
    /// Id and arguments, if the backend handed it out apart from the text.
    pub native: Option<InvalidNativeCall>,
}

/// A call of the backend's own that cannot be made, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidNativeCall {
    /// An id for its result.
    pub id: String,
    /// What should have been JSON text of an object.
    pub arguments: String,
}

/// Why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// It was complete.
    Stop,
    /// It was cut off: it has as many tokens as it may.
    Length,
    /// It was cut off: the model reads no more tokens.
    ContextWindow,
    /// The backend wants to go on in the next request, with the response so far.
    Paused,
    /// It calls tools.
    ToolCalls,
    /// It was suppressed.
    ContentFilter,
}

/// A whole response.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatResponse {
    /// Text for the user; what looks like a call and cannot be made is part of it.
    pub text: String,
    /// Reasoning of the model.
    pub reasoning: String,
    /// The reasoning that the backend signed, as in [`REASONING_BLOCKS`].
    pub reasoning_blocks: Vec<Value>,
    /// Why the model declined.
    pub refusal: Option<String>,
    /// Calls, in their order.
    pub calls: Vec<ChatToolCall>,
    /// What looks like a call and cannot be made.
    pub invalid_calls: Vec<InvalidToolCall>,
    /// Token log probabilities, as the backend wrote them.
    pub logprobs: Option<Map<String, Value>>,
    /// The backend configuration that generated the response.
    pub system_fingerprint: Option<String>,
    /// Token counts, if the backend sent them.
    pub usage: Option<TokenUsage>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop sequence that ended it, if the backend says which.
    pub stop_sequence: Option<String>,
}

impl Default for ChatResponse {
    fn default() -> Self {
        Self {
            text: String::new(),
            reasoning: String::new(),
            reasoning_blocks: Vec::new(),
            refusal: None,
            calls: Vec::new(),
            invalid_calls: Vec::new(),
            logprobs: None,
            system_fingerprint: None,
            usage: None,
            finish_reason: FinishReason::Stop,
            stop_sequence: None,
        }
    }
}

impl ChatResponse {
    /// Adds the next piece.
    pub fn apply_event(&mut self, event: ChatEvent) {
        match event {
            ChatEvent::Text(text) => append(&mut self.text, text),
            ChatEvent::Reasoning(text) => append(&mut self.reasoning, text),
            ChatEvent::ReasoningSignature(signature) => self.sign_reasoning(&signature),
            ChatEvent::RedactedReasoning(data) => {
                let block = json!({"type": "redacted_thinking", "data": data});
                self.reasoning_blocks.push(block);
            }
            ChatEvent::TextWasReasoning => {
                let text = std::mem::take(&mut self.text);
                append(&mut self.reasoning, text);
            }
            ChatEvent::Refusal(text) => append(self.refusal.get_or_insert_default(), text),
            // The complete call holds them.
            ChatEvent::ToolCallStarted { .. } | ChatEvent::ToolCallArguments(_) => (),
            ChatEvent::ToolCall(call) => self.calls.push(call),
            ChatEvent::InvalidCall(invalid) => {
                let has_open_line = !self.text.is_empty() && !self.text.ends_with('\n');
                if invalid.native.is_some() && has_open_line {
                    self.text.push('\n');
                }
                append(&mut self.text, invalid.text.clone());
                self.invalid_calls.push(invalid);
            }
            ChatEvent::Logprobs(logprobs) => self.add_logprobs(logprobs),
            ChatEvent::SystemFingerprint(name) => self.system_fingerprint = Some(name),
            ChatEvent::StopSequence(text) => self.stop_sequence = Some(text),
            ChatEvent::Usage(usage) => self.usage = Some(usage),
            ChatEvent::Finish(finish) => self.finish_reason = finish,
        }
    }

    /// Keeps the reasoning since the last signature as a block.
    fn sign_reasoning(&mut self, signature: &str) {
        let thinking = |it: &Value| it["thinking"].as_str().map_or(0, str::len);
        let signed: usize = self.reasoning_blocks.iter().map(thinking).sum();
        let text = self.reasoning.get(signed..).unwrap_or_default();
        let block = json!({"type": "thinking", "thinking": text, "signature": signature});
        self.reasoning_blocks.push(block);
    }

    /// Lists of log probabilities grow; anything else is replaced.
    fn add_logprobs(&mut self, more: Map<String, Value>) {
        let all = self.logprobs.get_or_insert_default();
        for (name, value) in more {
            match (all.get_mut(&name), value) {
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                (_, value) => {
                    all.insert(name, value);
                }
            }
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

impl ChatEvent {
    /// Whether a client gets something of the model's answer by it, or learns that it ended.
    pub(super) fn is_output(&self) -> bool {
        !matches!(self, Self::Usage(_) | Self::SystemFingerprint(_))
    }
}

impl FinishReason {
    /// Whether the model had more to write.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Length | Self::ContextWindow)
    }

    /// As OpenAI names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop | Self::Paused => "stop",
            Self::Length | Self::ContextWindow => "length",
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
            written: None,
        }
    }

    /// A turn of the model: its text, its calls as OpenAI writes them, and what it wrote.
    pub fn assistant(text: &str, calls: Vec<Value>, written: Option<String>) -> Self {
        let mut message = Self::text(ChatRole::Assistant, text);
        if !calls.is_empty() {
            message
                .extra_members
                .insert("tool_calls".to_owned(), calls.into());
        }
        message.written = written;
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

    /// The text of a result, which says whether the tool failed.
    pub(super) fn result_text(&self) -> String {
        let text = match self.extra_members.get("content") {
            Some(Value::Null) | None => String::new(),
            Some(Value::String(_) | Value::Array(_)) => self.text_content(),
            Some(other) => other.to_string(),
        };
        if self.extra_members.get(IS_ERROR) == Some(&Value::Bool(true)) {
            return format!("Error: {text}");
        }
        text
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
        all.shift_remove(REASONING_BLOCKS);
        all.shift_remove(IS_ERROR);
        Value::Object(all)
    }
}

impl ChatToolCall {
    /// As OpenAI writes it in the history.
    pub fn to_openai_json(&self) -> Value {
        let function = json!({"name": self.name, "arguments": self.arguments});
        let mut call = json!({"id": self.id, "type": "function", "function": function});
        if let Some(extra) = &self.extra_content {
            call["extra_content"] = extra.clone();
        }
        call
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

/// `prefix` and 24 random letters and digits.
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
