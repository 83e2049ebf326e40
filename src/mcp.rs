//! The words of the protocol. Pure: no clock, no I/O, no async.
//!
//! Messages are taken apart only as far as needed: an envelope and a shallow
//! view of its parameters borrow from the text they came in, and what is only
//! forwarded is never rebuilt.

mod error;
mod id;
mod json;
mod lines;
mod members;
mod message;
mod meta;
mod plain;
mod sse;
mod version;

pub use error::{RpcError, code};
pub use id::Id;
pub use json::{BadJson, MAX_DEPTH, check};
pub use lines::{Line, Lines};
pub use members::{Member, Raw, joined, members, parts, read_text, without};
pub use message::{
    Invalid, Message, Params, Request, Response, error, notification, push_text, raw_request,
    request, result,
};
pub use meta::{LogLevel, Meta, header_text, key, names_version};
pub use sse::{Event, EventTooLarge, IgnoredLines, Reader, event, one_line};
pub use version::Version;
