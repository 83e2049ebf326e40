//! JSON-RPC messages: reading the envelope, writing answers.

use std::borrow::Cow;

use serde::Serialize;

use super::{
    Id, Meta, RpcError, code,
    json::{BadJson, read_utf8, walk},
    members::{Raw, members, read_text},
    one_line,
    plain::is_plain_object,
};

/// One message, borrowing from the text it was read from.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request(Request<'a>),
    /// Wants none.
    Notification {
        /// What happened.
        method: Cow<'a, str>,
        /// Details, an object.
        params: Option<Raw<'a>>,
    },
    /// Answers a request of ours.
    Response(Response<'a>),
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// Names the request in its answer.
    pub id: Id,
    /// What is asked for.
    pub method: Cow<'a, str>,
    /// Details, an object.
    pub params: Option<Raw<'a>>,
}

/// An answer.
#[derive(Debug)]
pub struct Response<'a> {
    /// The request it answers.
    pub id: Id,
    /// The result, or the error as it was sent.
    pub outcome: Result<Raw<'a>, Raw<'a>>,
}

/// Valid JSON that is no message.
#[derive(Debug)]
pub struct Invalid {
    /// The id, if that much could be read.
    pub id: Option<Id>,
    /// What is wrong.
    pub error: RpcError,
}

#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<Raw<'a>>,
    id: Option<Raw<'a>>,
    method: Option<Raw<'a>>,
    params: Option<Raw<'a>>,
    result: Option<Raw<'a>>,
    error: Option<Raw<'a>>,
}

impl<'a> Message<'a> {
    /// Checks `bytes` as [`check`](super::check) does and reads them as one message, in
    /// one go if they are plain.
    pub fn take(bytes: &'a [u8]) -> Result<(&'a str, Result<Self, Invalid>), BadJson> {
        let text = read_utf8(bytes)?;
        let mut envelope = Envelope::default();
        let message = match is_plain_object(text, |name, raw| envelope.put(name, raw)) {
            true => envelope.open(),
            false => Self::read(walk(text)?),
        };
        Ok((text, message))
    }

    /// Reads checked JSON as one message.
    pub fn read(text: &'a str) -> Result<Self, Invalid> {
        let members =
            members(text).ok_or_else(|| Invalid::new(None, "a message must be a JSON object"))?;
        let mut envelope = Envelope::default();
        for (name, raw) in members {
            envelope.put(&name, raw);
        }
        envelope.open()
    }
}

impl Response<'_> {
    /// The outcome with its own copy of the text.
    pub fn owned_outcome(&self) -> Result<String, String> {
        self.outcome.map(str::to_owned).map_err(str::to_owned)
    }
}

impl<'a> Envelope<'a> {
    fn open(self) -> Result<Message<'a>, Invalid> {
        let id = self.id.map(Id::read);
        // An error under the id of a broken answer would look like an answer to
        // the client's own request of that id.
        let known = self.method.and(id.clone().flatten());
        self.sort(id).map_err(|why| Invalid::new(known, why))
    }
}

impl Message<'_> {
    /// The id that an answer would carry.
    pub fn id(&self) -> Option<&Id> {
        match self {
            Self::Request(request) => Some(&request.id),
            Self::Notification { .. } | Self::Response(_) => None,
        }
    }
}

impl<'a> Envelope<'a> {
    fn put(&mut self, name: &str, raw: Raw<'a>) {
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

    /// `id` is absent, unreadable or read.
    #[expect(clippy::option_option, reason = "absent and unreadable differ")]
    fn sort(self, id: Option<Option<Id>>) -> Result<Message<'a>, &'static str> {
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
        let answered = self.result.is_some() || self.error.is_some();
        match (self.method, id) {
            (Some(_), _) if answered => Err("a message is a request or an answer, not both"),
            (Some(method), id) => {
                let method = read_text(method).ok_or("method must be a string")?;
                let params = self.params;
                Ok(match id {
                    Some(id) => Message::Request(Request { id, method, params }),
                    None => Message::Notification { method, params },
                })
            }
            (None, Some(id)) => match (self.result, self.error) {
                (Some(result), None) => Ok(Message::Response(Response {
                    id,
                    outcome: Ok(result),
                })),
                (None, Some(error)) => Ok(Message::Response(Response {
                    id,
                    outcome: Err(error),
                })),
                _ => Err("a message needs a method, or either a result or an error"),
            },
            (None, None) => Err("a message needs a method or an id"),
        }
    }
}

impl Invalid {
    fn new(id: Option<Id>, why: &'static str) -> Self {
        Self {
            id,
            error: RpcError::new(code::INVALID_REQUEST, why),
        }
    }
}

/// The parameters that maru reads of any request, each still raw.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the names are the protocol's")]
pub struct Params<'a> {
    pub name: Option<Raw<'a>>,
    pub arguments: Option<Raw<'a>>,
    pub uri: Option<Raw<'a>>,
    pub cursor: Option<Raw<'a>>,
    pub reference: Option<Raw<'a>>,
    pub argument: Option<Raw<'a>>,
    pub level: Option<Raw<'a>>,
    pub request_id: Option<Raw<'a>>,
    pub notifications: Option<Raw<'a>>,
    pub input_responses: Option<Raw<'a>>,
    pub request_state: Option<Raw<'a>>,
    pub protocol_version: Option<Raw<'a>>,
    pub capabilities: Option<Raw<'a>>,
    pub client_info: Option<Raw<'a>>,
    pub context: Option<Raw<'a>>,
    pub progress_token: Option<Raw<'a>>,
    meta: Option<Raw<'a>>,
}

impl<'a> Params<'a> {
    /// Reads the parameters of a message that [`Message::read`] accepted.
    pub fn read(raw: Option<Raw<'a>>) -> Result<Self, RpcError> {
        let mut params = Self::default();
        let Some(raw) = raw else {
            return Ok(params);
        };
        let wrong = || RpcError::params("params must be an object");
        for (name, raw) in members(raw).ok_or_else(wrong)? {
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

    /// What the request says about itself; empty if it says nothing.
    pub fn meta(&self) -> Result<Meta<'a>, RpcError> {
        let Some(raw) = self.meta else {
            return Ok(Meta::default());
        };
        Meta::read(raw).ok_or_else(|| RpcError::params("_meta must be an object"))
    }

    /// The same as it was written.
    pub fn raw_meta(&self) -> Option<Raw<'a>> {
        self.meta
    }

    /// A parameter that must be there and be a string.
    pub fn text(raw: Option<Raw<'a>>, name: &str) -> Result<Cow<'a, str>, RpcError> {
        raw.and_then(read_text)
            .ok_or_else(|| RpcError::params(format!("params.{name} must be a string")))
    }

    /// A parameter that must be an object if it is there.
    pub fn object(
        raw: Option<Raw<'a>>,
        name: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, RpcError> {
        let Some(raw) = raw else {
            return Ok(serde_json::Map::new());
        };
        serde_json::from_str(raw)
            .map_err(|_| RpcError::params(format!("params.{name} must be an object")))
    }
}

/// The answer to `id` with a result that is JSON already.
pub fn result(id: &Id, raw: &str) -> String {
    let mut text = String::with_capacity(raw.len() + 64);
    text.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    push_id(&mut text, id);
    text.push_str(",\"result\":");
    text.push_str(raw);
    text.push('}');
    one_line(text)
}

/// The answer to `id`, or to a message without one, with an error.
pub fn error(id: Option<&Id>, error: &RpcError) -> String {
    let mut text = "{\"jsonrpc\":\"2.0\",\"id\":".to_owned();
    push_json(&mut text, &id);
    text.push_str(",\"error\":");
    push_json(&mut text, error);
    text.push('}');
    text
}

/// A notification.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    let mut text = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":");
    push_json(&mut text, params);
    text.push('}');
    one_line(text)
}

/// A request of ours.
pub fn request(id: &Id, method: &str, params: &impl Serialize) -> String {
    let params = serde_json::to_string(params).expect("our own values are JSON");
    raw_request(id, method, &params)
}

/// A request of ours with parameters that are JSON already.
pub fn raw_request(id: &Id, method: &str, params: &str) -> String {
    let mut text = String::with_capacity(params.len() + 96);
    text.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    push_id(&mut text, id);
    text.push_str(",\"method\":\"");
    text.push_str(method);
    text.push_str("\",\"params\":");
    text.push_str(params);
    text.push('}');
    one_line(text)
}

fn push_id(text: &mut String, id: &Id) {
    match id {
        Id::Number(number) => text.push_str(itoa::Buffer::new().format(*number)),
        Id::Text(id) => push_text(text, id),
    }
}

/// Adds `value` to `text` as JSON.
pub fn push_text(text: &mut String, value: &str) {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"_-./:".contains(&it);
    match value.bytes().all(is_plain) {
        true => {
            text.push('"');
            text.push_str(value);
            text.push('"');
        }
        false => push_json(text, &value),
    }
}

fn push_json(text: &mut String, value: &impl Serialize) {
    text.push_str(&serde_json::to_string(value).expect("our own values are JSON"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match Message::read(text) {
            Ok(Message::Request(_)) => "request",
            Ok(Message::Notification { .. }) => "notification",
            Ok(Message::Response(_)) => "response",
            Err(Invalid { id: Some(_), .. }) => "invalid with id",
            Err(_) => "invalid",
        }
    }

    #[test]
    fn messages_are_told_apart() {
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
    fn answers_are_one_line() {
        let id = Id::from("a\"b");
        assert_eq!(
            result(&id, "{\n \"x\": \"1\\n\"}"),
            r#"{"jsonrpc":"2.0","id":"a\"b","result":{  "x": "1\n"}}"#
        );
    }
}
