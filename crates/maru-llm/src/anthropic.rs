//! Requests and responses of Anthropic's Messages API.

mod request;
mod response;

pub(super) use request::{API_VERSION, REQUEST_PATH, encode_request};
pub(super) use response::{MessageProgress, decode_response};
