//! The parts that differ between client APIs.

use std::borrow::Cow;

use maru_protocol::write_comment;
use serde_json::{Map, Value};

use super::ApiError;
use maru_downstream::http::{EVENT_STREAM, KEEP_ALIVE_COMMENT};
use maru_llm::{ChatRequest, ChatResponse, FinishReason, TokenUsage};

/// A client API: parses requests, and writes the response to one request.
pub(in super::super) trait ClientApi: Send + Sized + 'static {
    /// The content type of a streamed response.
    const STREAM_TYPE: &'static str = EVENT_STREAM;

    /// Parses the body of a request.
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError>;

    /// The body of a response that is an error.
    fn error_body(error: &ApiError) -> Value;

    /// The body of a whole response. Its calls are those that the client gets as calls.
    fn response_body(self, response: ChatResponse) -> String;

    /// The response to a request that asks the model nothing; other requests have none.
    fn response_without_model(&self) -> Option<String> {
        None
    }

    /// Writes what stands at the beginning of a stream, unless that is written.
    fn write_start(&mut self, out: &mut String);

    /// Writes the next piece of a stream.
    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String);

    /// Writes the end of a stream that is complete.
    fn write_end(&mut self, end: ResponseEnd, out: &mut String);

    /// Writes the end of a stream that failed.
    fn write_error(&mut self, error: &ApiError, out: &mut String);

    /// Tells a client that waits which position in the queue it has. Clients skip a comment.
    fn write_queue_position(position: usize, out: &mut String) {
        out.push_str(&write_comment(&format!("place {position} in the queue")));
    }

    /// What a client skips, which is sent after each silence of a stream.
    fn keep_alive(&self) -> Cow<'static, str> {
        KEEP_ALIVE_COMMENT.into()
    }
}

/// A request of a client API, parsed.
#[derive(Debug)]
pub(in super::super) struct ParsedRequest<A> {
    pub(in super::super) request: ChatRequest,
    /// Whether the response is streamed.
    pub(in super::super) stream: bool,
    /// Writes the response.
    pub(in super::super) api: A,
}

/// A piece of a streamed response. Text and reasoning come first, then one call after the
/// other, with its arguments between its start and its end.
#[derive(Debug, PartialEq)]
pub(in super::super) enum ResponsePiece {
    /// Text for the user, never empty.
    Text(String),
    /// Reasoning of the model, never empty. What a model writes after a call is reasoning.
    Reasoning(String),
    /// The backend's signature of the reasoning since the last signature.
    ReasoningSignature(String),
    /// Reasoning that only the backend can read.
    RedactedReasoning(String),
    /// The model declines, in words of its own.
    Refusal(String),
    CallStart {
        id: String,
        name: String,
        /// What the backend wants back with the call.
        extra_content: Option<Value>,
    },
    /// The next piece of the arguments, which together are one JSON object.
    CallArguments(String),
    /// The arguments are complete. Missing if the response was cut off.
    CallEnd,
    /// Token log probabilities, as the backend writes them.
    Logprobs(Map<String, Value>),
    /// The backend configuration; comes before anything else.
    SystemFingerprint(String),
}

/// How a response ended.
#[derive(Debug)]
pub(in super::super) struct ResponseEnd {
    /// `ToolCalls` only if there was a call.
    pub(in super::super) finish: FinishReason,
    /// The stop sequence that ended it, if the backend says which.
    pub(in super::super) stop_sequence: Option<String>,
    pub(in super::super) usage: Option<TokenUsage>,
}
