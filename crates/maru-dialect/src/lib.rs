//! Model text in, events out: prose, reasoning and tool calls. Pure and
//! incremental.
//!
//! Models write tool calls in some fifty ways. All are data over a few shapes
//! (`table`), recognised by one machine (`reader`) that lets ordinary text
//! through at once and holds back only what may still become a call. However
//! the text was cut on its way, the events are the same; what is no call comes
//! out as text.

#![forbid(unsafe_code)]

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
mod parser;
mod python_calls;
mod repair;
mod schema;
mod selection;
mod tag;
mod tag_calls;
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
    /// Thoughts, without the marks around them.
    Reasoning(String),
    /// All [`DialectEvent::Text`] so far was reasoning: its end came without a
    /// beginning, which stood in the prompt.
    TextWasReasoning,
    /// A complete call of an offered tool.
    Call(ParsedCall),
    /// A frame that is no call.
    InvalidCall(InvalidCall),
    /// What a model made up after its call, such as the call's result. It is
    /// neither answer nor thought; a proxy leaves it out.
    Hallucination(String),
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
    /// What had to be mended in its JSON.
    pub repairs: Vec<JsonRepair>,
    /// What the model wrote: the whole frame for the first call of a frame,
    /// the part that is the call for every further one.
    pub raw: String,
    /// Framed by markers of a dialect. Without them (bare JSON, bare python, a
    /// tag per tool) it may be an echo of text that someone else wrote.
    pub explicit: bool,
}

/// A frame that is no call: the tool is unknown, or it cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCall {
    /// What the model wrote. A proxy shows it as text.
    pub text: String,
    /// The dialect it was written in.
    pub dialect: &'static str,
    /// The tool it names, as far as that could be read.
    pub name: Option<String>,
    /// Why it is no call, in words for the model.
    pub reason: String,
}

#[cfg(test)]
mod tests;
