//! Negotiates the protocol version and capabilities with a server.

use std::time::Duration;

use maru_protocol::{LoggingLevel, ProtocolVersion, RpcError, code, key, write_notification};
use serde_json::{Value, json};
use tokio::time;

use super::{
    Error,
    channel::UNREADABLE_RESPONSE,
    link::{CallEvent, OutgoingRequest, UpstreamCall, UpstreamLink},
};
use maru_config::mask_secrets;
use maru_tools::{SKILLS_EXTENSION, UI_EXTENSION, ui_settings};

/// How long to wait for the response to `server/discover`, which older servers do not
/// know.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of a server's error message is quoted.
const MAX_QUOTED_CHARS: usize = 300;

/// The result of the handshake.
#[derive(Clone, Debug)]
pub(super) struct NegotiatedSession {
    pub(super) version: ProtocolVersion,
    /// The capabilities that the server declared.
    pub(super) capabilities: Value,
    /// The `serverInfo` that it reported.
    pub(super) info: Value,
}

/// A JSON-RPC result, or the error that the server sent.
pub(super) type RpcResult = Result<Value, RpcError>;

/// Returns a session if the server supports 2026-07-28. Older servers answer
/// `server/discover` with an error or not at all; one that requires an older version is
/// not probed.
pub(super) async fn probe(
    link: &UpstreamLink,
    required: Option<ProtocolVersion>,
) -> Result<Option<NegotiatedSession>, Error> {
    if required.is_some_and(|it| !it.is_modern()) {
        return Ok(None);
    }
    let params = json!({"_meta": own_request_meta()});
    let outcome = time::timeout(PROBE_TIMEOUT, discover(link, &params)).await;
    let answer = match outcome {
        Err(_) | Ok(Err(Error::HttpStatus(_) | Error::InvalidMessage(_)) | Ok(Err(_))) => {
            return Ok(None);
        }
        Ok(Err(error)) => return Err(error),
        Ok(Ok(Ok(answer))) => answer,
    };
    let modern = ProtocolVersion::V2026_07_28;
    if !includes_modern_version(&answer["supportedVersions"]) {
        return Ok(None);
    }
    if let UpstreamLink::Http(link) = link {
        link.set_negotiated(modern, None);
    }
    Ok(Some(NegotiatedSession {
        version: modern,
        capabilities: answer["capabilities"].clone(),
        info: answer["_meta"][key::SERVER_INFO].clone(),
    }))
}

/// Sends `server/discover`, and repeats it once if the server refuses the version and yet
/// lists it as supported.
async fn discover(link: &UpstreamLink, params: &Value) -> Result<RpcResult, Error> {
    match call_method(link, "server/discover", params).await? {
        Err(error) if is_contradictory_refusal(&error) => {
            call_method(link, "server/discover", params).await
        }
        result => Ok(result),
    }
}

fn is_contradictory_refusal(error: &RpcError) -> bool {
    let supported = error.data.as_ref().map(|it| &it["supported"]);
    error.code == code::UNSUPPORTED_VERSION && supported.is_some_and(includes_modern_version)
}

fn includes_modern_version(versions: &Value) -> bool {
    let mut all = versions.as_array().into_iter().flatten();
    all.any(|it| it == ProtocolVersion::V2026_07_28.as_str())
}

/// Performs the `initialize` handshake of the versions up to 2025-11-25. A required
/// version must be the one that the server agrees on.
pub(super) async fn initialize(
    link: &UpstreamLink,
    required: Option<ProtocolVersion>,
) -> Result<NegotiatedSession, Error> {
    let requested = required.unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE);
    if requested.is_modern() {
        return Err(version_mismatch(requested, "it does not speak it"));
    }
    let params = json!({
        "protocolVersion": requested.as_str(),
        "capabilities": {
            "roots": {},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "extensions": relayed_extensions(),
        },
        "clientInfo": client_info(),
    });
    let mut call = start_call(link, "initialize", &params).await?;
    let answer = await_result(&mut call)
        .await?
        .map_err(|error| Error::HandshakeRefused {
            version: requested,
            code: error.code,
            message: quote_message(&error.message),
        })?;
    let named = answer["protocolVersion"].as_str().unwrap_or_default();
    let shown: String = named.chars().filter(|c| !c.is_control()).take(20).collect();
    if required.is_some_and(|it| it.as_str() != named) {
        return Err(version_mismatch(
            requested,
            &format!("it answered with {shown:?}"),
        ));
    }
    let version = ProtocolVersion::parse(named).filter(|it| !it.is_modern());
    let version = version.ok_or_else(|| {
        Error::Refused(format!(
            "the server speaks protocol version {shown:?}, which maru does not"
        ))
    })?;
    if let UpstreamCall::Http(call) = &call {
        call.link()
            .set_negotiated(version, call.session_id().as_ref());
    }
    link.send(write_notification("notifications/initialized", &json!({})))
        .await?;
    Ok(NegotiatedSession {
        version,
        capabilities: answer["capabilities"].clone(),
        info: answer["serverInfo"].clone(),
    })
}

/// Quotes a server's message on one line, without secrets.
fn quote_message(message: &str) -> String {
    let masked = mask_secrets(message);
    let mut quoted = String::new();
    for c in masked.chars().take(MAX_QUOTED_CHARS) {
        if c.is_control() {
            quoted.extend(c.escape_default());
        } else {
            quoted.push(c);
        }
    }
    if masked.chars().nth(MAX_QUOTED_CHARS).is_some() {
        quoted.push('…');
    }
    quoted
}

/// The error for a server that does not support its required version.
fn version_mismatch(required: ProtocolVersion, reason: &str) -> Error {
    Error::Refused(format!(
        "the server is held to protocol version {required}, but {reason}; change or remove its protocol-version"
    ))
}

/// Sends `logging/setLevel`, which servers of older versions need once per session.
pub(super) async fn set_log_level(link: &UpstreamLink, level: LoggingLevel) -> Result<(), Error> {
    // A refusal is ignored: the server then keeps its own level.
    call_method(link, "logging/setLevel", &json!({"level": level}))
        .await
        .map(drop)
}

/// Sends a request of the hub itself and waits for the result.
pub(super) async fn call_method(
    link: &UpstreamLink,
    method: &'static str,
    params: &Value,
) -> Result<RpcResult, Error> {
    await_result(&mut start_call(link, method, params).await?).await
}

async fn start_call(
    link: &UpstreamLink,
    method: &'static str,
    params: &Value,
) -> Result<UpstreamCall, Error> {
    let text = params.to_string();
    link.start_call(&OutgoingRequest {
        method,
        target_name: None,
        mirrored_params: &[],
        params: &|_| text.clone(),
        client: None,
    })
    .await
}

async fn await_result(call: &mut UpstreamCall) -> Result<RpcResult, Error> {
    let unreadable = || Error::InvalidMessage(UNREADABLE_RESPONSE.to_owned());
    loop {
        if let CallEvent::Answer(outcome) = call.next_event().await? {
            return Ok(match outcome {
                Ok(raw) => Ok(serde_json::from_str(&raw).map_err(|_| unreadable())?),
                Err(raw) => Err(parse_rpc_error(&raw)),
            });
        }
    }
}

/// Parses a JSON-RPC error object.
pub(super) fn parse_rpc_error(raw: &str) -> RpcError {
    let mut error: Value = serde_json::from_str(raw).unwrap_or_default();
    let message = error["message"]
        .as_str()
        .unwrap_or("no reason given")
        .to_owned();
    let code = error["code"].as_i64().unwrap_or(code::INTERNAL_ERROR);
    let parsed = RpcError::new(code, message);
    match error.get_mut("data").map(Value::take) {
        None | Some(Value::Null) => parsed,
        Some(data) => parsed.with_data(data),
    }
}

/// The `clientInfo` of maru.
pub(super) fn client_info() -> Value {
    json!({"name": "maru", "title": "maru 마루", "version": env!("CARGO_PKG_VERSION")})
}

/// The `_meta` of the hub's own requests since 2026-07-28.
pub(super) fn own_request_meta() -> Value {
    json!({
        key::PROTOCOL_VERSION: ProtocolVersion::V2026_07_28.as_str(),
        key::CLIENT_INFO: client_info(),
        key::CLIENT_CAPABILITIES: {"extensions": relayed_extensions()},
    })
}

/// The extensions that maru relays for its clients. A server of an older version learns of
/// them once, in the handshake, before it knows any client.
fn relayed_extensions() -> Value {
    json!({UI_EXTENSION: ui_settings(), SKILLS_EXTENSION: {}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_server_are_short_and_on_one_line_and_hold_no_secret() {
        let quoted = quote_message("no\n\u{1b}[2Jtoken=abc");
        assert_eq!(quoted, r"no\n\u{1b}[2Jtoken=***");
        assert_eq!(quote_message(&"가".repeat(5000)).chars().count(), 301);
    }

    #[test]
    fn refused_version_is_asked_for_again_only_where_it_is_spoken() {
        let refused = |code, supported: &[&str]| {
            let error = RpcError::new(code, "no").with_data(json!({"supported": supported}));
            is_contradictory_refusal(&error)
        };
        let both = ["2025-11-25", "2026-07-28"];
        assert!(refused(code::UNSUPPORTED_VERSION, &both));
        assert!(!refused(code::UNSUPPORTED_VERSION, &["2025-11-25"]));
        assert!(!refused(code::INVALID_PARAMS, &both));
        assert!(!is_contradictory_refusal(&RpcError::new(
            code::UNSUPPORTED_VERSION,
            "no"
        )));
    }
}
