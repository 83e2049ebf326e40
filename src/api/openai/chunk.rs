//! Events as OpenAI's clients want them. Several clients concatenate ids and
//! names, ignore calls that come twice, or fail on text after a call; so texts
//! come first, then each call in two pieces, then one reason, then the usage.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::mode;
use crate::{
    config::ClientMode,
    llm::{Answer, Call, Event, Finish, Usage, random},
};

/// Writes a stream.
#[derive(Debug)]
pub(super) struct Writer {
    /// `{"id":…,"model":…,"choices":` of every chunk.
    head: String,
    mode: ClientMode,
    /// Whether the usage is wanted.
    wants_usage: bool,
    begun: bool,
    /// The end of the text so far, to which a call in the text is added.
    open_line: bool,
    calls: Vec<Call>,
    usage: Option<Usage>,
    finish: Option<Finish>,
}

impl Writer {
    pub(super) fn new(model: &str, mode: ClientMode, wants_usage: bool) -> Self {
        let id = random("chatcmpl-");
        let (created, model) = (now(), Value::from(model));
        let usage = if wants_usage { "\"usage\":null," } else { "" };
        Self {
            head: format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},{usage}\"choices\":"
            ),
            mode,
            wants_usage,
            begun: false,
            open_line: false,
            calls: Vec::new(),
            usage: None,
            finish: None,
        }
    }

    /// Writes what can be written; calls wait for the end of the text.
    pub(super) fn write(&mut self, events: &mut Vec<Event>, out: &mut String) {
        let mut events = events.drain(..).peekable();
        while let Some(event) = events.next() {
            match event {
                Event::Text(mut text) | Event::Broken { mut text, .. } => {
                    // What came together goes out together.
                    while let Some(Event::Text(more)) =
                        events.next_if(|it| matches!(it, Event::Text(_)))
                    {
                        text.push_str(&more);
                    }
                    self.text("content", &text, out);
                }
                Event::Reasoning(mut text) => {
                    while let Some(Event::Reasoning(more)) =
                        events.next_if(|it| matches!(it, Event::Reasoning(_)))
                    {
                        text.push_str(&more);
                    }
                    self.text("reasoning_content", &text, out);
                }
                // It is out already.
                Event::TextWasReasoning => (),
                Event::Refusal(text) => self.text("refusal", &text, out),
                Event::Call(call) => self.calls.push(call),
                Event::Usage(usage) => self.usage = Some(usage),
                Event::Finish(finish) => self.finish = Some(finish),
            }
        }
    }

    /// Whether the backend has said why it ended.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The backend has ended: calls, the reason, the usage, and the end.
    pub(super) fn end(&mut self, out: &mut String) {
        let calls = std::mem::take(&mut self.calls);
        for (index, call) in calls.iter().enumerate() {
            match self.mode {
                ClientMode::Openai => self.call(index, call, out),
                ClientMode::Xml => self.call_in_text(&mode::xml(call), out),
                ClientMode::Shell => self.call_in_text(&mode::shell(call), out),
            }
        }
        let finish = shown_finish(self.finish.unwrap_or(Finish::Stop), self.mode);
        self.delta(&json!({}), Some(finish), out);
        if let Some(usage) = self.usage.take().filter(|_| self.wants_usage) {
            let head = self.head.replacen("\"usage\":null,", "", 1);
            let usage = Value::Object(usage.0);
            out.push_str(&format!("{head}[],\"usage\":{usage}}}\n\n"));
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn text(&mut self, member: &str, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.begin(out);
        out.push_str(&self.head);
        out.push_str("[{\"index\":0,\"delta\":{\"");
        out.push_str(member);
        out.push_str("\":");
        push_json(text, out);
        out.push_str("},\"finish_reason\":null}]}\n\n");
        if member == "content" {
            self.open_line = !text.ends_with('\n');
        }
    }

    fn call_in_text(&mut self, text: &str, out: &mut String) {
        let gap = if self.open_line { "\n\n" } else { "" };
        self.text("content", &format!("{gap}{text}\n"), out);
    }

    fn call(&mut self, index: usize, call: &Call, out: &mut String) {
        let function = json!({"name": call.name, "arguments": ""});
        let first =
            json!({"index": index, "id": call.id, "type": "function", "function": function});
        self.delta(&json!({"tool_calls": [first]}), None, out);
        let next = json!({"index": index, "function": {"arguments": call.arguments}});
        self.delta(&json!({"tool_calls": [next]}), None, out);
    }

    fn delta(&mut self, delta: &Value, finish: Option<Finish>, out: &mut String) {
        self.begin(out);
        let finish = Value::from(finish.map(Finish::as_str));
        let head = &self.head;
        out.push_str(&format!(
            "{head}[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        ));
    }

    /// The first chunk names the role, whatever follows.
    pub(super) fn begin(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.begun, true) {
            out.push_str(&self.head);
            out.push_str("[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n");
        }
    }
}

/// A whole answer.
pub(super) fn whole(model: &str, mode: ClientMode, mut answer: Answer) -> String {
    let calls = std::mem::take(&mut answer.calls);
    let finish = shown_finish(answer.finish, mode);
    match mode {
        ClientMode::Openai => (),
        ClientMode::Xml => calls
            .iter()
            .for_each(|it| add_call(&mut answer.text, &mode::xml(it))),
        ClientMode::Shell => calls
            .iter()
            .for_each(|it| add_call(&mut answer.text, &mode::shell(it))),
    }
    let calls = match mode {
        ClientMode::Openai => calls,
        ClientMode::Xml | ClientMode::Shell => Vec::new(),
    };
    let silent = answer.text.is_empty() && (!calls.is_empty() || answer.refusal.is_some());
    let completion = Completion {
        id: random("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model,
        choices: [Choice {
            index: 0,
            message: Message {
                role: "assistant",
                content: (!silent).then_some(&answer.text),
                refusal: answer.refusal.as_deref(),
                reasoning_content: &answer.reasoning,
                tool_calls: calls.iter().map(ToolCall::from).collect(),
            },
            logprobs: None,
            finish_reason: finish.as_str(),
        }],
        usage: answer.usage.as_ref().map(|it| &it.0),
    };
    serde_json::to_string(&completion).expect("an answer is JSON")
}

fn add_call(text: &mut String, call: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n\n");
    }
    text.push_str(call);
    text.push('\n');
}

/// Calls in the text are text.
fn shown_finish(finish: Finish, mode: ClientMode) -> Finish {
    match (finish, mode) {
        (Finish::ToolCalls, ClientMode::Xml | ClientMode::Shell) => Finish::Stop,
        (finish, _) => finish,
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

/// Appends `text` as JSON.
fn push_json(text: &str, out: &mut String) {
    // Most texts have nothing to escape.
    let plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
    match text.bytes().all(plain) {
        true => {
            out.push('"');
            out.push_str(text);
            out.push('"');
        }
        false => out.push_str(&serde_json::to_string(text).expect("text is JSON")),
    }
}

#[derive(Serialize)]
struct Completion<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a String>,
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCall<'a>>,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> From<&'a Call> for ToolCall<'a> {
    fn from(call: &'a Call) -> Self {
        Self {
            id: &call.id,
            r#type: "function",
            function: Function {
                name: &call.name,
                arguments: &call.arguments,
            },
        }
    }
}
