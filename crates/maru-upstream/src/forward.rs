//! Forwards a client's request to a server and relays its messages back, translating
//! between protocol versions.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use maru_protocol::{
    LoggingLevel, ProtocolVersion, RawJson, RequestParams, RpcError, RpcId, RpcMessage, RpcRequest,
    code, collect_members, key, object_members, parse_json_string, remove_members, write_error,
    write_object_without, write_result,
};
use serde_json::{Map, Value, json};

use super::{
    Error,
    channel::UNREADABLE_RESPONSE,
    connect::ActiveConnection,
    handshake::{client_info, parse_rpc_error},
    link::{CallEvent, OutgoingRequest, UpstreamCall},
    notifications::EMPTY_ROOTS_RESULT,
    pending_input::{PendingInput, PendingInputCall},
};
use maru_observability::telemetry::{OutgoingTrace, TRACEPARENT, TRACESTATE};
use maru_tools::{
    EntryResponse, EntryResult, InputRequired, RequestContext, ResultStatus, StructuredContent,
    TASKS_EXTENSION,
};

/// A client's request to forward to a server.
pub(super) struct ForwardedRequest<'a> {
    pub(super) method: Cow<'static, str>,
    /// The tool or prompt name, or the resource URI, as the server knows it; empty if the
    /// request has none.
    pub(super) key: &'a str,
    /// The members of the parameters as JSON, without the enclosing braces.
    pub(super) params: String,
    /// Parameters that are repeated in HTTP headers.
    pub(super) mirrors: Vec<(String, String)>,
}

/// Which notifications of a call the client wants relayed.
#[derive(Clone, Debug)]
pub(super) struct CallRelay {
    method: Cow<'static, str>,
    progress_token: Option<RpcId>,
    log_level: Option<LoggingLevel>,
}

/// Members of `_meta` that concern a single hop and are not forwarded.
const HOP_META_KEYS: [&str; 6] = [
    key::PROTOCOL_VERSION,
    key::CLIENT_CAPABILITIES,
    key::CLIENT_INFO,
    key::LOG_LEVEL,
    key::SUBSCRIPTION_ID,
    "progressToken",
];

/// Forwards a request and relays messages until the response. The outer error means that
/// the server could not be reached.
pub(super) async fn forward_request(
    connection: &Arc<ActiveConnection>,
    request: &ForwardedRequest<'_>,
    context: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let is_modern = connection.session.version.is_modern();
    if let (false, Some(name)) = (is_modern, &context.inputs.state) {
        // Boxed, because this rare case would enlarge the future of every call.
        return Box::pin(resume_with_input(connection, name, context)).await;
    }
    if let Some(message) = &context.inputs.failure {
        return Ok(Err(RpcError::new(code::INTERNAL_ERROR, message.clone())));
    }
    if let Some(level) = context.log_level {
        Box::pin(connection.ensure_log_level(level)).await?;
    }
    let relay = CallRelay {
        method: request.method.clone(),
        progress_token: context.progress_token.clone(),
        log_level: context.log_level,
    };
    let params = |id: i64| {
        if is_modern {
            modern_params(request, context, id)
        } else {
            legacy_params(request, context, id)
        }
    };
    let call = connection
        .link
        .start_call(&OutgoingRequest {
            method: &request.method,
            target_name: Some(request.key).filter(|it| !it.is_empty()),
            mirrored_params: &request.mirrors,
            params: &params,
            client: Some(context.connection),
        })
        .await?;
    relay_until_answer(connection, call, relay, context).await
}

/// Sends the client's input to the server and continues to relay the call.
async fn resume_with_input(
    connection: &Arc<ActiveConnection>,
    name: &str,
    context: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let Some(waiting) = connection.pending_input.take(name) else {
        let timeout = connection.pending_input.timeout();
        let message = format!(
            "the server no longer waits for this answer (it must come once, within {timeout:?}: mcp.input-timeout-ms); call the tool again"
        );
        return Ok(Err(RpcError::invalid_params(message)));
    };
    let answer = match (
        &context.inputs.failure,
        context.inputs.responses.get(INPUT_REQUEST_KEY),
    ) {
        (None, Some(answer)) => write_result(&waiting.request_id, &answer.to_string()),
        (failure, _) => {
            let message = failure.as_deref().unwrap_or("the client did not answer");
            let error = RpcError::new(code::INTERNAL_ERROR, message.to_owned());
            write_error(Some(&waiting.request_id), &error)
        }
    };
    waiting.call.respond(answer).await?;
    let PendingInputCall { call, relay, .. } = waiting;
    relay_until_answer(connection, call, relay, context).await
}

/// The key of the single input request that is pending at a time.
const INPUT_REQUEST_KEY: &str = "question";

/// Relays messages until the server responds or requests input.
async fn relay_until_answer(
    connection: &Arc<ActiveConnection>,
    mut call: UpstreamCall,
    relay: CallRelay,
    context: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let mut missing_capability = None;
    loop {
        let text = match call.next_event().await? {
            CallEvent::Message(text) => text,
            CallEvent::Answer(answer) => {
                let answer = match answer {
                    Ok(raw) => parse_result(connection.session.version, &relay.method, raw),
                    Err(raw) => map_rpc_error(&relay, parse_rpc_error(&raw), context),
                };
                return Ok(report_missing_capability(
                    answer,
                    missing_capability,
                    context,
                ));
            }
        };
        match RpcMessage::parse(&text)
            .map_err(|_| Error::InvalidMessage(UNREADABLE_RESPONSE.to_owned()))?
        {
            // The call's own response arrives as `CallEvent::Answer`.
            RpcMessage::Response(_) => (),
            RpcMessage::Notification { method, params } => {
                Box::pin(relay.relay_notification(&method, params, &text, context)).await;
            }
            RpcMessage::Request(request) => {
                let needed = match input_requests(&request, context) {
                    Ok(needed) => needed,
                    Err(refusal) => {
                        missing_capability = missing_capability.or(refusal.missing_capability);
                        Box::pin(call.respond(refusal.reply)).await?;
                        continue;
                    }
                };
                let waiting = PendingInputCall {
                    call,
                    request_id: request.id,
                    relay,
                };
                let busy = || Error::Busy("too many calls wait for input of clients".to_owned());
                let state = PendingInput::insert(connection, waiting).ok_or_else(busy)?;
                return Ok(Ok(EntryResponse::InputRequired(InputRequired {
                    requests: needed,
                    state: Some(state),
                })));
            }
        }
    }
}

/// The reply to a server whose input request does not reach the client.
struct InputRefusal {
    reply: String,
    /// The capability that the client would have to declare.
    missing_capability: Option<&'static str>,
}

impl From<String> for InputRefusal {
    fn from(reply: String) -> Self {
        Self {
            reply,
            missing_capability: None,
        }
    }
}

/// Returns the input requests for the client, or the reply for the server if the client
/// lacks the capability.
fn input_requests(
    request: &RpcRequest<'_>,
    context: &RequestContext,
) -> Result<BTreeMap<String, Value>, InputRefusal> {
    let needs = match &*request.method {
        "ping" => return Err(write_result(&request.id, "{}").into()),
        "sampling/createMessage" => "sampling",
        "elicitation/create" => "elicitation",
        "roots/list" => "roots",
        method => {
            let unknown = RpcError::method_not_found(method);
            return Err(write_error(Some(&request.id), &unknown).into());
        }
    };
    if context.capabilities.get(needs).is_none() {
        // The hub declares `roots` for all its clients. Servers ask for roots on connect,
        // so a client without them answers with an empty list instead of an error.
        if needs == "roots" {
            return Err(write_result(&request.id, EMPTY_ROOTS_RESULT).into());
        }
        let message = format!("the client that made this request cannot do {needs}");
        let error = RpcError::new(code::METHOD_NOT_FOUND, message);
        return Err(InputRefusal {
            reply: write_error(Some(&request.id), &error),
            missing_capability: Some(needs),
        });
    }
    let params: Value = request
        .params
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_else(|| json!({}));
    let input_request = json!({"method": &*request.method, "params": params});
    Ok(BTreeMap::from([(
        INPUT_REQUEST_KEY.to_owned(),
        input_request,
    )]))
}

/// Replaces a failed response by the error that names the missing capability, for clients
/// of 2026-07-28.
fn report_missing_capability(
    answer: Result<EntryResponse, RpcError>,
    missing: Option<&'static str>,
    context: &RequestContext,
) -> Result<EntryResponse, RpcError> {
    let Some(missing) = missing.filter(|_| context.version.is_modern()) else {
        return answer;
    };
    match answer {
        Ok(EntryResponse::Complete(result)) if !result.is_error() => {
            Ok(EntryResponse::Complete(result))
        }
        Ok(EntryResponse::InputRequired(needed)) => Ok(EntryResponse::InputRequired(needed)),
        Ok(EntryResponse::Complete(_)) | Err(_) => Err(RpcError::missing_capabilities(&[missing])),
    }
}

fn parse_result(
    version: ProtocolVersion,
    method: &str,
    raw: String,
) -> Result<EntryResponse, RpcError> {
    let invalid = |message: &'static str| Err(RpcError::new(code::INTERNAL_ERROR, message));
    let Some(all) = collect_members(&raw) else {
        return invalid("the server's result is not an object");
    };
    let value = |name: &str| all.iter().find(|it| it.name == name).map(|it| it.value);
    let kind = value("resultType").and_then(parse_json_string);
    let has_content = value("content").is_some_and(|it| it.starts_with('['));
    match kind.as_deref().filter(|_| version.is_modern()) {
        None | Some("complete") => {
            let status = ResultStatus::from_member(value("isError"));
            let structure = StructuredContent::from_member(value("structuredContent"));
            let result = if kind.is_some() {
                write_object_without(all, &["resultType"])
            } else {
                raw
            };
            let result = if method == "tools/call" && !has_content {
                ensure_content(&result)
            } else {
                result
            };
            let result = EntryResult::from_parts(result, status, structure);
            Ok(EntryResponse::Complete(result))
        }
        Some("input_required") => {
            let body: Value = serde_json::from_str(&raw).unwrap_or_default();
            let requests = body["inputRequests"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            Ok(EntryResponse::InputRequired(InputRequired {
                requests: requests.into_iter().collect(),
                state: body["requestState"].as_str().map(str::to_owned),
            }))
        }
        Some(_) => invalid("the server answered with an unknown result type"),
    }
}

/// Adds an empty `content`, because clients reject a tool result without it.
fn ensure_content(result: &str) -> String {
    let rest = remove_members(result, &["content"]);
    match rest.trim_start().strip_prefix('{').map(str::trim_start) {
        Some(inner) if !inner.starts_with('}') => format!("{{\"content\":[],{inner}"),
        _ => "{\"content\":[]}".to_owned(),
    }
}

/// Maps error codes that differ between protocol versions.
fn map_rpc_error(
    relay: &CallRelay,
    mut error: RpcError,
    context: &RequestContext,
) -> Result<EntryResponse, RpcError> {
    const URL_ELICITATION_REQUIRED: i64 = -32042;
    let data = error.data.as_ref();
    let missing = relay.method == "resources/read" && data.is_some_and(|it| it["uri"].is_string());
    if missing && error.code == code::INVALID_PARAMS {
        error.code = code::RESOURCE_NOT_FOUND;
    }
    let pages = data.and_then(|it| it["elicitations"].as_array());
    let can_open = !context.capabilities["elicitation"]["url"].is_null();
    match (error.code, pages) {
        (URL_ELICITATION_REQUIRED, Some(pages)) if can_open => {
            let requests = pages.iter().enumerate().map(|(at, page)| {
                (
                    format!("{INPUT_REQUEST_KEY}{at}"),
                    json!({"method": "elicitation/create", "params": page}),
                )
            });
            Ok(EntryResponse::InputRequired(InputRequired {
                requests: requests.collect(),
                state: None,
            }))
        }
        _ => Err(error),
    }
}

impl CallRelay {
    /// Relays a notification if the client wants it.
    async fn relay_notification(
        &self,
        method: &str,
        params: Option<RawJson<'_>>,
        text: &str,
        context: &RequestContext,
    ) {
        match method {
            "notifications/progress" => {
                if let (Some(token), Some(params)) = (&self.progress_token, params) {
                    context.send(rewrite_progress_token(token, params)).await;
                }
            }
            "notifications/message" => {
                let level = RequestParams::parse(params)
                    .ok()
                    .and_then(|it| it.level)
                    .and_then(|raw| LoggingLevel::parse(raw).ok());
                if level.is_some_and(|level| self.log_level.is_some_and(|least| level >= least)) {
                    context.send(text.to_owned()).await;
                }
            }
            _ => (),
        }
    }
}

fn rewrite_progress_token(token: &RpcId, params: RawJson<'_>) -> String {
    let rest = remove_members(params, &["progressToken", "_meta"]);
    let token = json!(token);
    let inner = rest
        .trim_start()
        .strip_prefix('{')
        .unwrap_or("}")
        .trim_start();
    let comma = if inner.starts_with('}') { "" } else { "," };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{token}{comma}{inner}}}"
    )
}

fn legacy_params(request: &ForwardedRequest<'_>, context: &RequestContext, id: i64) -> String {
    let mut meta = forwarded_meta(context);
    if context.progress_token.is_some() {
        meta.push(format!("\"progressToken\":{id}"));
    }
    let meta = (!meta.is_empty()).then(|| format!("\"_meta\":{{{}}}", meta.join(",")));
    let params = (!request.params.is_empty()).then_some(&*request.params);
    let members: Vec<&str> = params.into_iter().chain(meta.as_deref()).collect();
    format!("{{{}}}", members.join(","))
}

fn modern_params(request: &ForwardedRequest<'_>, context: &RequestContext, id: i64) -> String {
    let mut text = String::with_capacity(request.params.len() + 512);
    let comma = if request.params.is_empty() { "" } else { "," };
    for part in [
        "{",
        &request.params,
        comma,
        "\"_meta\":{",
        own_meta_prefix(),
    ] {
        text.push_str(part);
    }
    text.push_str(&forwarded_capabilities(&context.capabilities));
    for forwarded in forwarded_meta(context) {
        text.push(',');
        text.push_str(&forwarded);
    }
    if let Some(level) = context.log_level {
        text.push_str(&format!(",\"{}\":{}", key::LOG_LEVEL, json!(level)));
    }
    if context.progress_token.is_some() {
        text.push_str(&format!(",\"progressToken\":{id}"));
    }
    text.push('}');
    if !context.inputs.responses.is_empty() {
        let responses = Value::Object(context.inputs.responses.clone());
        text.push_str(&format!(",\"inputResponses\":{responses}"));
    }
    if let Some(state) = &context.inputs.state {
        text.push_str(&format!(
            ",\"requestState\":{}",
            Value::from(state.as_str())
        ));
    }
    text.push('}');
    text
}

/// Returns the `_meta` members of every request of 2026-07-28, up to the capabilities.
fn own_meta_prefix() -> &'static str {
    static META_PREFIX: LazyLock<String> = LazyLock::new(|| {
        let (version, info) = (ProtocolVersion::V2026_07_28, client_info());
        format!(
            "\"{}\":\"{version}\",\"{}\":{info},\"{}\":",
            key::PROTOCOL_VERSION,
            key::CLIENT_INFO,
            key::CLIENT_CAPABILITIES
        )
    });
    &META_PREFIX
}

/// Returns the client's `_meta` members that are forwarded. If spans are exported, the
/// span of this hop replaces the client's trace context.
fn forwarded_meta(context: &RequestContext) -> Vec<String> {
    let trace = OutgoingTrace::current();
    let is_replaced = |name: &str| trace.is_some() && [TRACEPARENT, TRACESTATE].contains(&name);
    let all = context.meta.as_deref().and_then(object_members);
    let forwarded = all
        .into_iter()
        .flatten()
        .filter(|(name, _)| !HOP_META_KEYS.contains(&&**name) && !is_replaced(name))
        .map(|(name, raw)| format!("{}:{raw}", Value::from(&*name)));
    let own = trace.iter().flat_map(OutgoingTrace::members);
    forwarded
        .chain(own.map(|(name, value)| format!("\"{name}\":{}", Value::from(value))))
        .collect()
}

/// Returns the client's capabilities that are forwarded. Tasks are left out, because the
/// hub does not relay deferred results.
fn forwarded_capabilities(declared: &Value) -> Cow<'static, str> {
    if declared.as_object().is_none_or(Map::is_empty) {
        return Cow::Borrowed("{}");
    }
    let mut forwarded = Map::new();
    for name in ["elicitation", "sampling", "roots", "extensions"] {
        if let Some(value) = declared.get(name) {
            forwarded.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(extensions) = forwarded
        .get_mut("extensions")
        .and_then(Value::as_object_mut)
    {
        extensions.shift_remove(TASKS_EXTENSION);
    }
    Cow::Owned(Value::Object(forwarded).to_string())
}
