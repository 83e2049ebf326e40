//! JSON-RPC 2.0 and the Model Context Protocol as pure functions on text: no clock, no
//! I/O, no async.
//!
//! - [`validate_json`] accepts only JSON that every parser reads alike.
//! - [`RpcMessage`] parses a message without copying it: parameters and results stay
//!   [`RawJson`] slices of the input, and what is only forwarded is never rebuilt.
//!   [`RequestParams`] and [`RequestMeta`] read the members that maru understands.
//! - [`write_request`], [`write_result`] and their siblings write messages on one line.
//! - [`ProtocolVersion`] lists the MCP versions and negotiates one.
//! - [`LineDecoder`] and [`SseReader`] split a byte stream into lines and server-sent
//!   events, however it is cut into chunks, within bounds.
//!
//! ```ignore
//! let (text, message) = RpcMessage::parse_bytes(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)?;
//! if let Ok(RpcMessage::Request(request)) = message {
//!     assert_eq!(write_result(&request.id, "{}"), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
//! }
//! ```
//!
//! Test with `cargo nextest run -p maru-protocol`.

#![forbid(unsafe_code)]

mod error;
mod id;
mod json;
mod json_string;
mod line_decoder;
mod members;
mod message;
mod meta;
mod sse;
mod version;

pub use error::{RpcError, code};
pub use id::RpcId;
pub use json::{CheckedJson, InvalidJson, MAX_JSON_DEPTH, measure_json, validate_json};
pub use json_string::{push_json_string, push_json_string_bytes, to_json_string};
pub use line_decoder::{DecodedLine, LineDecoder};
pub use members::{
    ObjectMember, RawJson, collect_members, object_members, parse_json_string, remove_members,
    write_object_without,
};
pub use message::{
    InvalidMessage, RequestParams, RpcMessage, RpcRequest, RpcResponse, write_error,
    write_notification, write_raw_request, write_request, write_result,
};
pub use meta::{LoggingLevel, RequestMeta, declares_version, encode_header_value, key};
pub use sse::{
    EventTooLarge, IgnoredLines, SseEvent, SseEventRef, SseReader, begin_event, end_event,
    to_single_line, write_comment, write_event,
};
pub use version::ProtocolVersion;
