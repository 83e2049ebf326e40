//! Passing a question on to a server, and everything back, between any two
//! versions.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

use super::{
    Error,
    channel::UNREADABLE,
    handshake::{client_info, read_error},
    link::{Ask, Call, Received},
    news::NO_ROOTS,
    open::Live,
    parked::{Parked, Waiting},
};
use crate::{
    mcp::{
        Id, LogLevel, Message, Params, Raw, Request, RpcError, Version, code, error, joined, key,
        members, parts, read_text, result, without,
    },
    tool::{Answer, InputRequired, Peer},
};

/// A question to be passed on.
pub(super) struct Question<'a> {
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
pub(super) struct Turn {
    method: &'static str,
    progress_token: Option<Id>,
    log_level: Option<LogLevel>,
}

/// What only concerns one hop.
const HOP: [&str; 6] = [
    key::VERSION,
    key::CAPABILITIES,
    key::CLIENT_INFO,
    key::LOG_LEVEL,
    key::SUBSCRIPTION,
    "progressToken",
];

/// Asks; the outer error says that the server could not be asked.
pub(super) async fn ask(
    live: &Arc<Live>,
    question: &Question<'_>,
    peer: &Peer,
) -> Result<Result<Answer, RpcError>, Error> {
    let is_modern = live.session.version.is_modern();
    if let (false, Some(name)) = (is_modern, &peer.inputs.state) {
        // On its own, as all that is rare: it would make the future of every call larger.
        return Box::pin(go_on(live, name, peer)).await;
    }
    if let Some(why) = &peer.inputs.failed {
        return Ok(Err(RpcError::new(code::INTERNAL, why.clone())));
    }
    if let Some(level) = peer.log_level {
        Box::pin(live.log_as_much_as(level)).await?;
    }
    let turn = Turn {
        method: question.method,
        progress_token: peer.progress_token.clone(),
        log_level: peer.log_level,
    };
    let params = |id: i64| match is_modern {
        true => modern_params(question, peer, id),
        false => legacy_params(question, peer, id),
    };
    let call = live
        .link
        .start(&Ask {
            method: question.method,
            name: Some(question.key),
            mirrors: &question.mirrors,
            params: &params,
            client: Some(peer.connection),
        })
        .await?;
    follow(live, call, turn, peer).await
}

/// Brings the client's answer to the server, and waits on.
async fn go_on(
    live: &Arc<Live>,
    name: &str,
    peer: &Peer,
) -> Result<Result<Answer, RpcError>, Error> {
    let Some(waiting) = live.parked.take(name) else {
        let why = "the server no longer waits for this answer; start again";
        return Ok(Err(RpcError::params(why)));
    };
    let answer = match (&peer.inputs.failed, peer.inputs.responses.get(ONLY)) {
        (None, Some(answer)) => result(&waiting.question, &answer.to_string()),
        (why, _) => {
            let why = why.as_deref().unwrap_or("the client did not answer");
            let why = RpcError::new(code::INTERNAL, why.to_owned());
            error(Some(&waiting.question), &why)
        }
    };
    waiting.call.answer(answer).await?;
    let Waiting { call, turn, .. } = waiting;
    follow(live, call, turn, peer).await
}

/// The key of the one question that is asked at a time.
const ONLY: &str = "question";

/// Passes messages on until the answer, or a question, comes.
async fn follow(
    live: &Arc<Live>,
    mut call: Call,
    turn: Turn,
    peer: &Peer,
) -> Result<Result<Answer, RpcError>, Error> {
    let mut missing_capability = None;
    loop {
        let text = match call.next().await? {
            Received::Message(text) => text,
            Received::Answer(answer) => {
                let answer = match answer {
                    Ok(raw) => answered(live.session.version, turn.method, raw),
                    Err(raw) => failed(&turn, read_error(&raw), peer),
                };
                return Ok(blame_missing_capability(answer, missing_capability, peer));
            }
        };
        match Message::read(&text).map_err(|_| Error::Garbage(UNREADABLE.to_owned()))? {
            // Its answer does not come in this way.
            Message::Response(_) => (),
            Message::Notification { method, params } => {
                Box::pin(turn.pass(&method, params, &text, peer)).await;
            }
            Message::Request(request) => {
                let needed = match question(&request, peer) {
                    Ok(needed) => needed,
                    Err(refusal) => {
                        missing_capability = missing_capability.or(refusal.missing_capability);
                        Box::pin(call.answer(refusal.reply)).await?;
                        continue;
                    }
                };
                let waiting = Waiting {
                    call,
                    question: request.id,
                    turn,
                };
                let busy = || Error::Busy("too many calls wait for answers of clients".to_owned());
                let state = Parked::keep(live, waiting).ok_or_else(busy)?;
                return Ok(Ok(Answer::InputRequired(InputRequired {
                    requests: needed,
                    state: Some(state),
                })));
            }
        }
    }
}

/// What the server is told instead of the client's answer.
struct Refusal {
    reply: String,
    /// What the client would have to declare.
    missing_capability: Option<&'static str>,
}

impl From<String> for Refusal {
    fn from(reply: String) -> Self {
        Self {
            reply,
            missing_capability: None,
        }
    }
}

/// What to ask the client; or what to tell the server when it cannot be asked.
fn question(request: &Request<'_>, peer: &Peer) -> Result<BTreeMap<String, Value>, Refusal> {
    let needs = match &*request.method {
        "ping" => return Err(result(&request.id, "{}").into()),
        "sampling/createMessage" => "sampling",
        "elicitation/create" => "elicitation",
        "roots/list" => "roots",
        method => {
            let unknown = RpcError::method_not_found(method);
            return Err(error(Some(&request.id), &unknown).into());
        }
    };
    if peer.capabilities.get(needs).is_none() {
        // The hub says that it has roots, whoever is behind it: servers ask for them
        // when they are connected, and a client without folders must not pay for that.
        if needs == "roots" {
            return Err(result(&request.id, NO_ROOTS).into());
        }
        let why = format!("the client that made this request cannot do {needs}");
        let why = RpcError::new(code::METHOD_NOT_FOUND, why);
        return Err(Refusal {
            reply: error(Some(&request.id), &why),
            missing_capability: Some(needs),
        });
    }
    let params: Value = request
        .params
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_else(|| json!({}));
    let asked = json!({"method": &*request.method, "params": params});
    Ok(BTreeMap::from([(ONLY.to_owned(), asked)]))
}

/// A client of 2026-07-28 is told which capability it lacks, where the server could
/// not do without.
fn blame_missing_capability(
    answer: Result<Answer, RpcError>,
    missing: Option<&'static str>,
    peer: &Peer,
) -> Result<Answer, RpcError> {
    let Some(missing) = missing.filter(|_| peer.version.is_modern()) else {
        return answer;
    };
    match answer {
        Ok(Answer::Complete(result)) if !is_tool_error(&result) => Ok(Answer::Complete(result)),
        Ok(Answer::InputRequired(needed)) => Ok(Answer::InputRequired(needed)),
        Ok(Answer::Complete(_)) | Err(_) => Err(RpcError::missing_capabilities(&[missing])),
    }
}

fn is_tool_error(result: &str) -> bool {
    parts(result).is_some_and(|all| {
        all.iter()
            .any(|it| it.name == "isError" && it.value == "true")
    })
}

fn answered(version: Version, method: &str, raw: String) -> Result<Answer, RpcError> {
    let garbage = |why: &'static str| Err(RpcError::new(code::INTERNAL, why));
    let Some(all) = parts(&raw) else {
        return garbage("the server's result is not an object");
    };
    let value = |name: &str| all.iter().find(|it| it.name == name).map(|it| it.value);
    let kind = value("resultType").and_then(read_text);
    let has_content = value("content").is_some_and(|it| it.starts_with('['));
    match kind.as_deref().filter(|_| version.is_modern()) {
        None | Some("complete") => {
            let result = match kind.is_some() {
                true => joined(all, &["resultType"]),
                false => raw,
            };
            Ok(Answer::Complete(
                match method == "tools/call" && !has_content {
                    true => with_content(&result),
                    false => result,
                },
            ))
        }
        Some("input_required") => {
            let asked: Value = serde_json::from_str(&raw).unwrap_or_default();
            let requests = asked["inputRequests"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            Ok(Answer::InputRequired(InputRequired {
                requests: requests.into_iter().collect(),
                state: asked["requestState"].as_str().map(str::to_owned),
            }))
        }
        Some(_) => garbage("the server answered with a kind of result that maru does not know"),
    }
}

/// Clients refuse a result of a tool without content.
fn with_content(result: &str) -> String {
    let rest = without(result, &["content"]);
    match rest.trim_start().strip_prefix('{').map(str::trim_start) {
        Some(inner) if !inner.starts_with('}') => format!("{{\"content\":[],{inner}"),
        _ => "{\"content\":[]}".to_owned(),
    }
}

/// Errors mean the same in every version, but are not always called the same.
fn failed(turn: &Turn, mut why: RpcError, peer: &Peer) -> Result<Answer, RpcError> {
    const URL_NEEDED: i64 = -32042;
    let data = why.data.as_ref();
    let missing = turn.method == "resources/read" && data.is_some_and(|it| it["uri"].is_string());
    if missing && why.code == code::INVALID_PARAMS {
        why.code = code::RESOURCE_NOT_FOUND;
    }
    let pages = data.and_then(|it| it["elicitations"].as_array());
    let can_open = !peer.capabilities["elicitation"]["url"].is_null();
    match (why.code, pages) {
        (URL_NEEDED, Some(pages)) if can_open => {
            let asked = pages.iter().enumerate().map(|(at, page)| {
                (
                    format!("{ONLY}{at}"),
                    json!({"method": "elicitation/create", "params": page}),
                )
            });
            Ok(Answer::InputRequired(InputRequired {
                requests: asked.collect(),
                state: None,
            }))
        }
        _ => Err(why),
    }
}

impl Turn {
    /// Passes a notification on, if the client wants it.
    async fn pass(&self, method: &str, params: Option<Raw<'_>>, text: &str, peer: &Peer) {
        match method {
            "notifications/progress" => {
                if let (Some(token), Some(params)) = (&self.progress_token, params) {
                    peer.send(renamed_progress(token, params)).await;
                }
            }
            "notifications/message" => {
                let level = Params::read(params)
                    .ok()
                    .and_then(|it| it.level)
                    .and_then(|raw| LogLevel::read(raw).ok());
                if level.is_some_and(|level| self.log_level.is_some_and(|least| level >= least)) {
                    peer.send(text.to_owned()).await;
                }
            }
            _ => (),
        }
    }
}

fn renamed_progress(token: &Id, params: Raw<'_>) -> String {
    let rest = without(params, &["progressToken", "_meta"]);
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

fn legacy_params(question: &Question<'_>, peer: &Peer, id: i64) -> String {
    let mut meta = passed_meta(peer);
    if peer.progress_token.is_some() {
        meta.push(format!("\"progressToken\":{id}"));
    }
    match meta.is_empty() {
        true => format!("{{{}}}", question.params),
        false => format!("{{{},\"_meta\":{{{}}}}}", question.params, meta.join(",")),
    }
}

fn modern_params(question: &Question<'_>, peer: &Peer, id: i64) -> String {
    let mut text = String::with_capacity(question.params.len() + 512);
    for part in ["{", &question.params, ",\"_meta\":{", hop_meta()] {
        text.push_str(part);
    }
    text.push_str(&capabilities(&peer.capabilities));
    for passed in passed_meta(peer) {
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
fn hop_meta() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let (version, info) = (Version::V2026_07_28, client_info());
        format!(
            "\"{}\":\"{version}\",\"{}\":{info},\"{}\":",
            key::VERSION,
            key::CLIENT_INFO,
            key::CAPABILITIES
        )
    });
    &TEXT
}

/// What the client says about its request and does not concern this hop only.
fn passed_meta(peer: &Peer) -> Vec<String> {
    let Some(meta) = &peer.meta else {
        return Vec::new();
    };
    let all = members(meta).into_iter().flatten();
    all.filter(|(name, _)| !HOP.contains(&&**name))
        .map(|(name, raw)| format!("{}:{raw}", Value::from(&*name)))
        .collect()
}

/// What the client can be asked for; results that come later it cannot take.
fn capabilities(declared: &Value) -> Cow<'static, str> {
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
