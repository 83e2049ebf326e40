//! Parses the text of a language model into prose, reasoning and tool calls,
//! incrementally and without I/O.
//!
//! Models write tool calls in some fifty syntaxes. All are data over a few shapes
//! (`grammar`), recognised by one state machine (`parser`) that lets ordinary text
//! through at once and holds back only what may still become a call. The events do
//! not depend on how the text was split into chunks; what is no call comes out as
//! text, byte for byte.

#![forbid(unsafe_code)]

mod argument_stream;
mod arguments;
mod cursor;
mod escape;
mod event_buffer;
mod frame;
mod frame_context;
mod gemma_calls;
mod grammar;
mod header;
mod json;
mod json_calls;
mod line_calls;
mod marker;
mod marker_index;
mod markerless_calls;
mod markerless_json;
mod parser;
mod python_calls;
mod repair;
mod schema;
mod selection;
mod strict_scanner;
mod stripped_harmony;
mod surrounding_text;
mod tag;
mod tag_calls;
mod template_tokens;
mod tool_set;

pub use arguments::{NormalizeError, NormalizedArguments, normalize_arguments};
pub use escape::escape_markers;
pub use parser::{DialectOptions, DialectParser};
pub use repair::{JsonRepair, PayloadError, repair_json};
pub use selection::{DIALECT_NAMES, DialectSelection, UnknownDialect};
pub use tool_set::ToolSet;

/// One piece of what a model wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DialectEvent {
    /// Prose for the user.
    Text(String),
    /// Reasoning, without the tags around it.
    Reasoning(String),
    /// All [`DialectEvent::Text`] so far was reasoning: its closing tag came
    /// without an opening one, which was part of the prompt.
    TextWasReasoning,
    /// A complete call of an offered tool.
    Call(ParsedCall),
    /// The beginning of a call whose arguments follow in pieces; only with
    /// [`DialectOptions::stream_arguments`]. It ends with
    /// [`DialectEvent::CallFinished`] or, if it turns out to be no call, with
    /// [`DialectEvent::InvalidCall`]; no other event comes in between.
    CallStarted(CallStart),
    /// The next piece of the started call's arguments. All pieces joined are the
    /// arguments of the finished call.
    CallArguments(String),
    /// The started call is complete; holds what [`DialectEvent::Call`] would.
    CallFinished(ParsedCall),
    /// Text that is shaped like a call but cannot be made.
    InvalidCall(InvalidCall),
    /// What a model made up after its call, such as the call's result. It is
    /// neither answer nor reasoning; a proxy leaves it out.
    Hallucination(String),
}

/// The first thing known about a call that is streamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStart {
    /// The name under which the tool was offered.
    pub name: String,
    /// The id the model gave before the arguments, if any.
    pub id: Option<String>,
}

/// A call of an offered tool, its arguments fitted to the tool's schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedCall {
    /// The name under which the tool was offered.
    pub name: String,
    /// Strict JSON text of an object.
    pub arguments: String,
    /// The id the model gave, if any.
    pub id: Option<String>,
    /// The dialect it was written in.
    pub dialect: &'static str,
    /// What had to be repaired in its JSON.
    pub repairs: Vec<JsonRepair>,
    /// What the model wrote: the whole frame for the first call of a frame,
    /// the part that is the call for every further one.
    pub raw: String,
    /// Framed by markers of a dialect. Without them (bare JSON, bare python, a
    /// tag per tool) it may be quoted text.
    pub explicit: bool,
}

/// Text shaped like a call that cannot be made: the tool is unknown or ambiguous,
/// or the arguments cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCall {
    /// What the model wrote. A proxy shows it as text.
    pub text: String,
    /// The dialect it was written in.
    pub dialect: &'static str,
    /// The tool it names, if it names one.
    pub name: Option<String>,
    /// Why it cannot be made, for the model.
    pub reason: String,
}

#[cfg(test)]
mod tests;
