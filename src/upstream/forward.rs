//! Passing a question on to a server, and everything back, between any two
//! versions.

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
use crate::{
    observability::telemetry::{OutgoingTrace, TRACEPARENT, TRACESTATE},
    tools::{
        EntryResponse, EntryResult, InputRequired, RequestContext, ResultStatus, StructuredContent,
    },
};

/// A question to be passed on.
pub(super) struct ForwardedRequest<'a> {
    pub(super) method: &'static str,
    /// Name or address, on the server itself.
    pub(super) key: &'a str,
    /// Members of the parameters, as JSON.
    pub(super) params: String,
    /// Parameters that are mirrored in headers.
    pub(super) mirrors: Vec<(String, String)>,
}

/// What of a call's messages the client wants.
#[derive(Clone, Debug)]
pub(super) struct CallRelay {
    method: &'static str,
    progress_token: Option<RpcId>,
    log_level: Option<LoggingLevel>,
}

/// What only concerns one hop.
const HOP_META_KEYS: [&str; 6] = [
    key::PROTOCOL_VERSION,
    key::CLIENT_CAPABILITIES,
    key::CLIENT_INFO,
    key::LOG_LEVEL,
    key::SUBSCRIPTION_ID,
    "progressToken",
];

/// Asks; the outer error says that the server could not be asked.
pub(super) async fn forward_request(
    live: &Arc<ActiveConnection>,
    question: &ForwardedRequest<'_>,
    peer: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let is_modern = live.session.version.is_modern();
    if let (false, Some(name)) = (is_modern, &peer.inputs.state) {
        // On its own, as all that is rare: it would make the future of every call larger.
        return Box::pin(resume_with_input(live, name, peer)).await;
    }
    if let Some(why) = &peer.inputs.failure {
        return Ok(Err(RpcError::new(code::INTERNAL_ERROR, why.clone())));
    }
    if let Some(level) = peer.log_level {
        Box::pin(live.ensure_log_level(level)).await?;
    }
    let turn = CallRelay {
        method: question.method,
        progress_token: peer.progress_token.clone(),
        log_level: peer.log_level,
    };
    let params = |id: i64| {
        if is_modern {
            modern_params(question, peer, id)
        } else {
            legacy_params(question, peer, id)
        }
    };
    let call = live
        .link
        .start_call(&OutgoingRequest {
            method: question.method,
            target_name: Some(question.key),
            mirrored_params: &question.mirrors,
            params: &params,
            client: Some(peer.connection),
        })
        .await?;
    relay_until_answer(live, call, turn, peer).await
}

/// Brings the client's answer to the server, and waits on.
async fn resume_with_input(
    live: &Arc<ActiveConnection>,
    name: &str,
    peer: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let Some(waiting) = live.pending_input.take(name) else {
        let why = "the server no longer waits for this answer; start again";
        return Ok(Err(RpcError::invalid_params(why)));
    };
    let answer = match (
        &peer.inputs.failure,
        peer.inputs.responses.get(INPUT_REQUEST_KEY),
    ) {
        (None, Some(answer)) => write_result(&waiting.request_id, &answer.to_string()),
        (why, _) => {
            let why = why.as_deref().unwrap_or("the client did not answer");
            let why = RpcError::new(code::INTERNAL_ERROR, why.to_owned());
            write_error(Some(&waiting.request_id), &why)
        }
    };
    waiting.call.respond(answer).await?;
    let PendingInputCall {
        call, relay: turn, ..
    } = waiting;
    relay_until_answer(live, call, turn, peer).await
}

/// The key of the one question that is asked at a time.
const INPUT_REQUEST_KEY: &str = "question";

/// Passes messages on until the answer, or a question, comes.
async fn relay_until_answer(
    live: &Arc<ActiveConnection>,
    mut call: UpstreamCall,
    turn: CallRelay,
    peer: &RequestContext,
) -> Result<Result<EntryResponse, RpcError>, Error> {
    let mut missing_capability = None;
    loop {
        let text = match call.next_event().await? {
            CallEvent::Message(text) => text,
            CallEvent::Answer(answer) => {
                let answer = match answer {
                    Ok(raw) => parse_result(live.session.version, turn.method, raw),
                    Err(raw) => map_rpc_error(&turn, parse_rpc_error(&raw), peer),
                };
                return Ok(report_missing_capability(answer, missing_capability, peer));
            }
        };
        match RpcMessage::parse(&text)
            .map_err(|_| Error::InvalidMessage(UNREADABLE_RESPONSE.to_owned()))?
        {
            // Its answer does not come in this way.
            RpcMessage::Response(_) => (),
            RpcMessage::Notification { method, params } => {
                Box::pin(turn.relay_notification(&method, params, &text, peer)).await;
            }
            RpcMessage::Request(request) => {
                let needed = match input_requests(&request, peer) {
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
                    relay: turn,
                };
                let busy = || Error::Busy("too many calls wait for answers of clients".to_owned());
                let state = PendingInput::insert(live, waiting).ok_or_else(busy)?;
                return Ok(Ok(EntryResponse::InputRequired(InputRequired {
                    requests: needed,
                    state: Some(state),
                })));
            }
        }
    }
}

/// What the server is told instead of the client's answer.
struct InputRefusal {
    reply: String,
    /// What the client would have to declare.
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

/// What to ask the client; or what to tell the server when it cannot be asked.
fn input_requests(
    request: &RpcRequest<'_>,
    peer: &RequestContext,
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
    if peer.capabilities.get(needs).is_none() {
        // The hub says that it has roots, whoever is behind it: servers ask for them
        // when they are connected, and a client without folders must not pay for that.
        if needs == "roots" {
            return Err(write_result(&request.id, EMPTY_ROOTS_RESULT).into());
        }
        let why = format!("the client that made this request cannot do {needs}");
        let why = RpcError::new(code::METHOD_NOT_FOUND, why);
        return Err(InputRefusal {
            reply: write_error(Some(&request.id), &why),
            missing_capability: Some(needs),
        });
    }
    let params: Value = request
        .params
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_else(|| json!({}));
    let asked = json!({"method": &*request.method, "params": params});
    Ok(BTreeMap::from([(INPUT_REQUEST_KEY.to_owned(), asked)]))
}

/// A client of 2026-07-28 is told which capability it lacks, where the server could
/// not do without.
fn report_missing_capability(
    answer: Result<EntryResponse, RpcError>,
    missing: Option<&'static str>,
    peer: &RequestContext,
) -> Result<EntryResponse, RpcError> {
    let Some(missing) = missing.filter(|_| peer.version.is_modern()) else {
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
    let garbage = |why: &'static str| Err(RpcError::new(code::INTERNAL_ERROR, why));
    let Some(all) = collect_members(&raw) else {
        return garbage("the server's result is not an object");
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
            let asked: Value = serde_json::from_str(&raw).unwrap_or_default();
            let requests = asked["inputRequests"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            Ok(EntryResponse::InputRequired(InputRequired {
                requests: requests.into_iter().collect(),
                state: asked["requestState"].as_str().map(str::to_owned),
            }))
        }
        Some(_) => garbage("the server answered with a kind of result that maru does not know"),
    }
}

/// Clients refuse a result of a tool without content.
fn ensure_content(result: &str) -> String {
    let rest = remove_members(result, &["content"]);
    match rest.trim_start().strip_prefix('{').map(str::trim_start) {
        Some(inner) if !inner.starts_with('}') => format!("{{\"content\":[],{inner}"),
        _ => "{\"content\":[]}".to_owned(),
    }
}

/// Errors mean the same in every version, but are not always called the same.
fn map_rpc_error(
    turn: &CallRelay,
    mut why: RpcError,
    peer: &RequestContext,
) -> Result<EntryResponse, RpcError> {
    const URL_ELICITATION_REQUIRED: i64 = -32042;
    let data = why.data.as_ref();
    let missing = turn.method == "resources/read" && data.is_some_and(|it| it["uri"].is_string());
    if missing && why.code == code::INVALID_PARAMS {
        why.code = code::RESOURCE_NOT_FOUND;
    }
    let pages = data.and_then(|it| it["elicitations"].as_array());
    let can_open = !peer.capabilities["elicitation"]["url"].is_null();
    match (why.code, pages) {
        (URL_ELICITATION_REQUIRED, Some(pages)) if can_open => {
            let asked = pages.iter().enumerate().map(|(at, page)| {
                (
                    format!("{INPUT_REQUEST_KEY}{at}"),
                    json!({"method": "elicitation/create", "params": page}),
                )
            });
            Ok(EntryResponse::InputRequired(InputRequired {
                requests: asked.collect(),
                state: None,
            }))
        }
        _ => Err(why),
    }
}

impl CallRelay {
    /// Passes a notification on, if the client wants it.
    async fn relay_notification(
        &self,
        method: &str,
        params: Option<RawJson<'_>>,
        text: &str,
        peer: &RequestContext,
    ) {
        match method {
            "notifications/progress" => {
                if let (Some(token), Some(params)) = (&self.progress_token, params) {
                    peer.send(rewrite_progress_token(token, params)).await;
                }
            }
            "notifications/message" => {
                let level = RequestParams::parse(params)
                    .ok()
                    .and_then(|it| it.level)
                    .and_then(|raw| LoggingLevel::parse(raw).ok());
                if level.is_some_and(|level| self.log_level.is_some_and(|least| level >= least)) {
                    peer.send(text.to_owned()).await;
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

fn legacy_params(question: &ForwardedRequest<'_>, peer: &RequestContext, id: i64) -> String {
    let mut meta = forwarded_meta(peer);
    if peer.progress_token.is_some() {
        meta.push(format!("\"progressToken\":{id}"));
    }
    if meta.is_empty() {
        format!("{{{}}}", question.params)
    } else {
        format!("{{{},\"_meta\":{{{}}}}}", question.params, meta.join(","))
    }
}

fn modern_params(question: &ForwardedRequest<'_>, peer: &RequestContext, id: i64) -> String {
    let mut text = String::with_capacity(question.params.len() + 512);
    for part in ["{", &question.params, ",\"_meta\":{", own_meta_prefix()] {
        text.push_str(part);
    }
    text.push_str(&forwarded_capabilities(&peer.capabilities));
    for passed in forwarded_meta(peer) {
        text.push(',');
        text.push_str(&passed);
    }
    if let Some(level) = peer.log_level {
        text.push_str(&format!(",\"{}\":{}", key::LOG_LEVEL, json!(level)));
    }
    if peer.progress_token.is_some() {
        text.push_str(&format!(",\"progressToken\":{id}"));
    }
    text.push('}');
    if !peer.inputs.responses.is_empty() {
        let responses = Value::Object(peer.inputs.responses.clone());
        text.push_str(&format!(",\"inputResponses\":{responses}"));
    }
    if let Some(state) = &peer.inputs.state {
        text.push_str(&format!(
            ",\"requestState\":{}",
            Value::from(state.as_str())
        ));
    }
    text.push('}');
    text
}

/// What every request of 2026-07-28 says, up to the capabilities.
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

/// What the client says about its request and does not concern this hop only. Where spans
/// are exported, the span of this hop takes the place of the client's.
fn forwarded_meta(peer: &RequestContext) -> Vec<String> {
    let trace = OutgoingTrace::current();
    let is_replaced = |name: &str| trace.is_some() && [TRACEPARENT, TRACESTATE].contains(&name);
    let all = peer.meta.as_deref().and_then(object_members);
    let passed = all
        .into_iter()
        .flatten()
        .filter(|(name, _)| !HOP_META_KEYS.contains(&&**name) && !is_replaced(name))
        .map(|(name, raw)| format!("{}:{raw}", Value::from(&*name)));
    let own = trace.iter().flat_map(OutgoingTrace::members);
    passed
        .chain(own.map(|(name, value)| format!("\"{name}\":{}", Value::from(value))))
        .collect()
}

/// What the client can be asked for; results that come later it cannot take.
fn forwarded_capabilities(declared: &Value) -> Cow<'static, str> {
    if declared.as_object().is_none_or(Map::is_empty) {
        return Cow::Borrowed("{}");
    }
    let mut passed = Map::new();
    for name in ["elicitation", "sampling", "roots", "extensions"] {
        if let Some(value) = declared.get(name) {
            passed.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(extensions) = passed.get_mut("extensions").and_then(Value::as_object_mut) {
        extensions.shift_remove("io.modelcontextprotocol/tasks");
    }
    Cow::Owned(Value::Object(passed).to_string())
}
