//! Arguments of a call that was found already, streamed as they arrive.

use std::sync::Arc;

use maru_dialect::{DialectEvent, DialectOptions, DialectParser, DialectSelection, ToolSet};
use serde_json::Value;

/// The frame whose parser also decides which arguments cannot change any more.
const FRAME_DIALECT: DialectSelection = DialectSelection::Only("hermes");

/// Hands out the arguments of one call as soon as nothing that follows can change them.
#[derive(Debug)]
pub(super) struct CallStream {
    parser: DialectParser,
    events: Vec<DialectEvent>,
}

/// What is known of the call so far.
#[derive(Debug, Default)]
pub(super) struct CallProgress {
    /// The name of the offered tool, when the call begins.
    pub(super) started: Option<String>,
    /// The next piece of its arguments.
    pub(super) arguments: String,
}

impl CallStream {
    /// For a call that is JSON with a name and arguments.
    pub(super) fn for_json(tools: &Arc<ToolSet>) -> Self {
        let options = DialectOptions {
            stream_arguments: true,
            ..DialectOptions::default()
        };
        let mut stream = Self {
            parser: DialectParser::new(Arc::clone(tools), FRAME_DIALECT, options),
            events: Vec::new(),
        };
        stream.parser.push("<tool_call>\n", &mut stream.events);
        stream
    }

    /// For the arguments alone, whose tool is known.
    pub(super) fn for_arguments(tools: &Arc<ToolSet>, name: &str) -> Self {
        let mut stream = Self::for_json(tools);
        let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(name));
        stream.parser.push(&head, &mut stream.events);
        stream
    }

    /// Adds the next piece of the model's text.
    pub(super) fn push(&mut self, text: &str) -> CallProgress {
        self.parser.push(text, &mut self.events);
        let mut progress = CallProgress::default();
        for event in self.events.drain(..) {
            match event {
                DialectEvent::CallStarted(start) => progress.started = Some(start.name),
                DialectEvent::CallArguments(piece) => progress.arguments.push_str(&piece),
                _ => (),
            }
        }
        progress
    }
}
