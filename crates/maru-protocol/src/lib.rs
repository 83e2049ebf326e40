//! The words of the protocol. Pure: no clock, no I/O, no async.
//!
//! Messages are taken apart only as far as needed: an envelope and a shallow
//! view of its parameters borrow from the text they came in, and what is only
//! forwarded is never rebuilt.

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
pub use json::{InvalidJson, MAX_JSON_DEPTH, validate_json};
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
    EventTooLarge, IgnoredLines, SseEvent, SseEventRef, SseReader, to_single_line, write_event,
};
pub use version::ProtocolVersion;
