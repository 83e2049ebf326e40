//! The words of `/chat/completions`: what is sent, and what is read back with
//! as few copies as can be.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    ChatRequest, Choice, Event, Finish, Message, Tool, Usage,
    reading::{Fragment, Reading},
};

/// What is wrong with an answer.
pub(super) type Wrong = &'static str;

pub(super) const TOO_MUCH: Wrong = "more than one answer may hold";

/// The body of a request for `model`; `form` is what the output is held to.
pub(super) fn body(
    request: ChatRequest,
    model: &str,
    form: Option<Value>,
    stream: bool,
) -> Vec<u8> {
    let mut all = Map::new();
    all.insert("model".to_owned(), model.into());
    let messages = request.messages.into_iter().map(Message::into_value);
    all.insert("messages".to_owned(), messages.collect());
    all.extend(request.other);
    if request.tools.is_empty() {
        all.remove("parallel_tool_calls");
    } else {
        let tools = request.tools.into_iter().map(Tool::into_value);
        all.insert("tools".to_owned(), tools.collect());
        if let Some(choice) = choice(&request.choice) {
            all.insert("tool_choice".to_owned(), choice);
        }
    }
    if let Some(schema) = form {
        let form = json!({"name": "reply", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": form});
        all.insert("response_format".to_owned(), format);
    }
    if stream {
        all.insert("stream".to_owned(), true.into());
    } else {
        all.remove("stream_options");
    }
    serde_json::to_vec(&all).expect("values are JSON")
}

fn choice(choice: &Choice) -> Option<Value> {
    match choice {
        Choice::Auto => None,
        Choice::None => Some("none".into()),
        Choice::Required => Some("required".into()),
        Choice::Named(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

/// Reads a whole answer, or one event of a streamed one; whether it had a choice.
pub(super) fn read(
    data: &[u8],
    reading: &mut Reading,
    out: &mut Vec<Event>,
) -> Result<bool, Wrong> {
    let mut chosen = false;
    let chunk: Chunk<'_> = serde_json::from_slice(data)
        .map_err(|_| "an answer in another form than the protocol's")?;
    if chunk.error.is_some() {
        return Err("an error instead of an answer");
    }
    for choice in chunk.choices.unwrap_or_default() {
        // We ask for one.
        if choice.index.unwrap_or(0) != 0 {
            continue;
        }
        chosen = true;
        if let Some(piece) = choice.delta.or(choice.message) {
            read_piece(&piece, reading, out)?;
        }
        if let Some(reason) = choice.finish_reason {
            reading.finish(finish(&reason.0));
        }
    }
    if let Some(usage) = chunk.usage {
        out.push(Event::Usage(Usage(usage)));
    }
    Ok(chosen)
}

fn read_piece(piece: &Piece<'_>, reading: &mut Reading, out: &mut Vec<Event>) -> Result<(), Wrong> {
    if let Some(text) = piece
        .reasoning_content
        .as_ref()
        .or(piece.reasoning.as_ref())
    {
        reading.reasoning(&text.0, out).map_err(|_| TOO_MUCH)?;
    }
    if let Some(text) = piece.content.as_ref().filter(|it| !it.0.is_empty()) {
        reading.text(&text.0, out).map_err(|_| TOO_MUCH)?;
    }
    if let Some(text) = &piece.refusal {
        reading.refusal(&text.0, out).map_err(|_| TOO_MUCH)?;
    }
    for call in piece.tool_calls.iter().flatten() {
        let function = call.function.as_ref();
        let arguments = function.and_then(|it| it.arguments).map(unquoted);
        let fragment = Fragment {
            index: call.index,
            id: call.id.as_ref().map_or("", |it| &it.0),
            name: function
                .and_then(|it| it.name.as_ref())
                .map_or("", |it| &it.0),
            arguments: arguments.as_deref().unwrap_or_default(),
        };
        reading.fragment(&fragment).map_err(|_| TOO_MUCH)?;
    }
    Ok(())
}

/// Text in a string, or the value itself: some write an object.
fn unquoted(raw: &RawValue) -> Cow<'_, str> {
    let raw = raw.get();
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str::<Text<'_>>(raw).map_or(Cow::Borrowed(""), |it| it.0),
        Some(b'n') => Cow::Borrowed(""),
        _ => Cow::Borrowed(raw),
    }
}

fn finish(reason: &str) -> Finish {
    match reason {
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        "tool_calls" | "function_call" => Finish::ToolCalls,
        _ => Finish::Stop,
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Part<'a>>>,
    usage: Option<Map<String, Value>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Piece<'a>>,
    #[serde(borrow)]
    message: Option<Piece<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<ToolCall<'a>>>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Text that is borrowed where nothing in it is escaped. Some write it in parts.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Text<'de>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut parts: A) -> Result<Text<'de>, A::Error> {
                let mut all = String::new();
                while let Some(part) = parts.next_element::<Value>()? {
                    all.push_str(part["text"].as_str().unwrap_or_default());
                }
                Ok(Text(Cow::Owned(all)))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
