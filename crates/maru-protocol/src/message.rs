//! JSON-RPC messages: parsing the envelope and writing requests, responses and
//! notifications.

use std::borrow::Cow;

use serde::Serialize;

use super::{
    RequestMeta, RpcError, RpcId, code,
    json::{InvalidJson, validate_json},
    json_string::push_json_string,
    members::{RawJson, object_members, parse_json_string},
    to_single_line,
};

/// A JSON-RPC message that borrows from the text it was parsed from.
#[derive(Debug)]
pub enum RpcMessage<'a> {
    /// A request, which needs a response.
    Request(RpcRequest<'a>),
    /// A notification, which gets no response.
    Notification {
        /// The name of the event.
        method: Cow<'a, str>,
        /// The parameters, an object.
        params: Option<RawJson<'a>>,
    },
    /// The response to a request that maru sent.
    Response(RpcResponse<'a>),
}

/// A JSON-RPC request.
#[derive(Debug)]
pub struct RpcRequest<'a> {
    /// Identifies the request in its response.
    pub id: RpcId,
    /// The name of the method.
    pub method: Cow<'a, str>,
    /// The parameters, an object.
    pub params: Option<RawJson<'a>>,
}

/// A JSON-RPC response.
#[derive(Debug)]
pub struct RpcResponse<'a> {
    /// The id of the request.
    pub id: RpcId,
    /// The raw `result`, or the raw `error`.
    pub outcome: Result<RawJson<'a>, RawJson<'a>>,
}

/// Valid JSON that is not a JSON-RPC message.
#[derive(Debug)]
pub struct InvalidMessage {
    /// The id to answer with, if it could be parsed.
    pub id: Option<RpcId>,
    /// The error to answer with.
    pub error: RpcError,
}

#[derive(Default)]
struct RpcEnvelope<'a> {
    jsonrpc: Option<RawJson<'a>>,
    id: Option<RawJson<'a>>,
    method: Option<RawJson<'a>>,
    params: Option<RawJson<'a>>,
    result: Option<RawJson<'a>>,
    error: Option<RawJson<'a>>,
}

impl<'a> RpcMessage<'a> {
    /// Validates `bytes` with [`validate_json`] and parses them as one message.
    pub fn parse_bytes(
        bytes: &'a [u8],
    ) -> Result<(&'a str, Result<Self, InvalidMessage>), InvalidJson> {
        let text = validate_json(bytes)?;
        Ok((text, Self::parse(text)))
    }

    /// Parses a message from JSON that [`validate_json`] accepted.
    pub fn parse(text: &'a str) -> Result<Self, InvalidMessage> {
        let members = object_members(text)
            .ok_or_else(|| InvalidMessage::new(None, "a message must be a JSON object"))?;
        let mut envelope = RpcEnvelope::default();
        for (name, raw) in members {
            envelope.set_member(&name, raw);
        }
        envelope.into_message()
    }
}

impl RpcResponse<'_> {
    /// Copies the outcome.
    pub fn owned_outcome(&self) -> Result<String, String> {
        self.outcome.map(str::to_owned).map_err(str::to_owned)
    }
}

impl RpcMessage<'_> {
    /// Returns the id that a response must carry.
    pub fn id(&self) -> Option<&RpcId> {
        match self {
            Self::Request(request) => Some(&request.id),
            Self::Notification { .. } | Self::Response(_) => None,
        }
    }
}

impl<'a> RpcEnvelope<'a> {
    fn set_member(&mut self, name: &str, raw: RawJson<'a>) {
        match name {
            "jsonrpc" => self.jsonrpc = Some(raw),
            "id" => self.id = Some(raw),
            "method" => self.method = Some(raw),
            "params" => self.params = Some(raw),
            "result" => self.result = Some(raw),
            "error" => self.error = Some(raw),
            _unknown => (),
        }
    }

    fn into_message(self) -> Result<RpcMessage<'a>, InvalidMessage> {
        let id = self.id.map(RpcId::parse);
        // Only requests are answered: an error under the id of a malformed response would
        // look like the response to the peer's own request of that id.
        let request_id = self.method.and(id.clone().flatten());
        self.classify(id)
            .map_err(|reason| InvalidMessage::new(request_id, reason))
    }

    /// Decides which kind of message this is. `id` is absent, invalid or parsed.
    #[expect(clippy::option_option, reason = "absent and invalid differ")]
    fn classify(self, id: Option<Option<RpcId>>) -> Result<RpcMessage<'a>, &'static str> {
        if self.jsonrpc.is_none_or(|raw| raw != "\"2.0\"") {
            return Err("jsonrpc must be \"2.0\"");
        }
        if self.params.is_some_and(|raw| !raw.starts_with('{')) {
            return Err("params must be an object");
        }
        let id = match id {
            Some(None) => return Err("id must be an integer or a string of at most 256 bytes"),
            Some(Some(id)) => Some(id),
            None => None,
        };
        let is_response = self.result.is_some() || self.error.is_some();
        match (self.method, id) {
            (Some(_), _) if is_response => Err("a message is a request or a response, not both"),
            (Some(method), id) => {
                let method = parse_json_string(method).ok_or("method must be a string")?;
                let params = self.params;
                Ok(match id {
                    Some(id) => RpcMessage::Request(RpcRequest { id, method, params }),
                    None => RpcMessage::Notification { method, params },
                })
            }
            (None, Some(id)) => match (self.result, self.error) {
                (Some(result), None) => Ok(RpcMessage::Response(RpcResponse {
                    id,
                    outcome: Ok(result),
                })),
                (None, Some(error)) => Ok(RpcMessage::Response(RpcResponse {
                    id,
                    outcome: Err(error),
                })),
                _ => Err("a message needs a method, or either a result or an error"),
            },
            (None, None) => Err("a message needs a method or an id"),
        }
    }
}

impl InvalidMessage {
    fn new(id: Option<RpcId>, reason: &'static str) -> Self {
        Self {
            id,
            error: RpcError::new(code::INVALID_REQUEST, reason),
        }
    }
}

/// The request parameters that maru reads, as raw JSON.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct RequestParams<'a> {
    pub name: Option<RawJson<'a>>,
    pub arguments: Option<RawJson<'a>>,
    pub uri: Option<RawJson<'a>>,
    pub cursor: Option<RawJson<'a>>,
    pub reference: Option<RawJson<'a>>,
    pub argument: Option<RawJson<'a>>,
    pub level: Option<RawJson<'a>>,
    pub request_id: Option<RawJson<'a>>,
    pub notifications: Option<RawJson<'a>>,
    pub input_responses: Option<RawJson<'a>>,
    pub request_state: Option<RawJson<'a>>,
    pub protocol_version: Option<RawJson<'a>>,
    pub capabilities: Option<RawJson<'a>>,
    pub client_info: Option<RawJson<'a>>,
    pub context: Option<RawJson<'a>>,
    pub progress_token: Option<RawJson<'a>>,
    raw: Option<RawJson<'a>>,
    meta: Option<RawJson<'a>>,
}

impl<'a> RequestParams<'a> {
    /// Parses the parameters of a message that [`RpcMessage::parse`] accepted.
    pub fn parse(raw: Option<RawJson<'a>>) -> Result<Self, RpcError> {
        let mut params = Self {
            raw,
            ..Self::default()
        };
        let Some(raw) = raw else {
            return Ok(params);
        };
        let not_an_object = || RpcError::invalid_params("params must be an object");
        for (name, raw) in object_members(raw).ok_or_else(not_an_object)? {
            match &*name {
                "name" => params.name = Some(raw),
                "arguments" => params.arguments = Some(raw),
                "uri" => params.uri = Some(raw),
                "cursor" => params.cursor = Some(raw),
                "ref" => params.reference = Some(raw),
                "argument" => params.argument = Some(raw),
                "level" => params.level = Some(raw),
                "requestId" => params.request_id = Some(raw),
                "notifications" => params.notifications = Some(raw),
                "inputResponses" => params.input_responses = Some(raw),
                "requestState" => params.request_state = Some(raw),
                "protocolVersion" => params.protocol_version = Some(raw),
                "capabilities" => params.capabilities = Some(raw),
                "clientInfo" => params.client_info = Some(raw),
                "context" => params.context = Some(raw),
                "progressToken" => params.progress_token = Some(raw),
                "_meta" => params.meta = Some(raw),
                _unknown => (),
            }
        }
        Ok(params)
    }

    /// Returns all parameters as raw JSON.
    pub fn raw(&self) -> Option<RawJson<'a>> {
        self.raw
    }

    /// Parses `_meta`; empty if the request has none.
    pub fn meta(&self) -> Result<RequestMeta<'a>, RpcError> {
        let Some(raw) = self.meta else {
            return Ok(RequestMeta::default());
        };
        RequestMeta::parse(raw).ok_or_else(|| RpcError::invalid_params("_meta must be an object"))
    }

    /// Returns `_meta` as raw JSON.
    pub fn raw_meta(&self) -> Option<RawJson<'a>> {
        self.meta
    }

    /// Parses a required string parameter.
    pub fn require_string(raw: Option<RawJson<'a>>, name: &str) -> Result<Cow<'a, str>, RpcError> {
        raw.and_then(parse_json_string)
            .ok_or_else(|| RpcError::invalid_params(format!("params.{name} must be a string")))
    }

    /// Parses an optional object parameter.
    pub fn object_or_empty(
        raw: Option<RawJson<'a>>,
        name: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, RpcError> {
        let Some(raw) = raw else {
            return Ok(serde_json::Map::new());
        };
        serde_json::from_str(raw)
            .map_err(|_| RpcError::invalid_params(format!("params.{name} must be an object")))
    }
}

/// Writes a response whose result is already JSON.
pub fn write_result(id: &RpcId, raw: &str) -> String {
    let mut text = String::with_capacity(raw.len() + 64);
    text.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    push_id(&mut text, id);
    text.push_str(",\"result\":");
    text.push_str(raw);
    text.push('}');
    to_single_line(text)
}

/// Writes an error response; its id is `null` if the request had none.
pub fn write_error(id: Option<&RpcId>, error: &RpcError) -> String {
    let mut text = "{\"jsonrpc\":\"2.0\",\"id\":".to_owned();
    push_json(&mut text, &id);
    text.push_str(",\"error\":");
    push_json(&mut text, error);
    text.push('}');
    text
}

/// Writes a notification.
pub fn write_notification(method: &str, params: &impl Serialize) -> String {
    let mut text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":");
    push_json(&mut text, params);
    text.push('}');
    to_single_line(text)
}

/// Writes a request.
pub fn write_request(id: &RpcId, method: &str, params: &impl Serialize) -> String {
    let params = serde_json::to_string(params).expect("our own values are JSON");
    write_raw_request(id, method, &params)
}

/// Writes a request whose parameters are already JSON.
pub fn write_raw_request(id: &RpcId, method: &str, params: &str) -> String {
    let mut text = String::with_capacity(params.len() + 96);
    text.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    push_id(&mut text, id);
    text.push_str(",\"method\":\"");
    text.push_str(method);
    text.push_str("\",\"params\":");
    text.push_str(params);
    text.push('}');
    to_single_line(text)
}

fn push_id(text: &mut String, id: &RpcId) {
    match id {
        RpcId::Number(number) => text.push_str(&number.to_string()),
        RpcId::Text(id) => push_json_string(text, id),
    }
}

fn push_json(text: &mut String, value: &impl Serialize) {
    text.push_str(&serde_json::to_string(value).expect("our own values are JSON"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match RpcMessage::parse(text) {
            Ok(RpcMessage::Request(_)) => "request",
            Ok(RpcMessage::Notification { .. }) => "notification",
            Ok(RpcMessage::Response(_)) => "response",
            Err(InvalidMessage { id: Some(_), .. }) => "invalid with id",
            Err(_) => "invalid",
        }
    }

    #[test]
    fn requests_notifications_and_responses_are_recognised() {
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "request"),
            (
                r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#,
                "request",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/x"}"#,
                "notification",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "response"),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}"#,
                "response",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
                "invalid with id",
            ),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, "invalid with id"),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#,
                "invalid with id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
                "invalid",
            ),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "invalid"),
            (r#"{"JSONRPC":"2.0","ID":1,"METHOD":"ping"}"#, "invalid"),
            (
                r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#,
                "invalid with id",
            ),
            ("[]", "invalid"),
            (r#"["2.0",1,"ping"]"#, "invalid"),
            ("true", "invalid"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn responses_are_written_on_one_line() {
        let id = RpcId::from("a\"b");
        assert_eq!(
            write_result(&id, "{\n \"x\": \"1\\n\"}"),
            r#"{"jsonrpc":"2.0","id":"a\"b","result":{  "x": "1\n"}}"#
        );
    }
}
