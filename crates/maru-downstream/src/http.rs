//! Streamable HTTP: sessions until 2025-11-25, stateless since 2026-07-28.

mod batch;
mod event_stream;
mod exchange;
mod headers;
mod modern;
pub mod reply;

use std::sync::Arc;

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, StatusCode},
    response::Response,
};
use maru_protocol::{
    CheckedJson, InvalidMessage, ProtocolVersion, RequestParams, RpcError, RpcMessage, RpcRequest,
    code, declares_version,
};
use maru_runtime::{message_queue, tasks::run_parser};
use tracing::warn;

use super::{
    McpEngine,
    feed::{EventId, STANDALONE_STREAM},
    owned_request::OwnedRequest,
    session::{McpSession, SESSION_BUSY, read_handshake},
    session_token::TokenClient,
    shared_sessions::SessionNote,
};
pub use event_stream::{EVENT_STREAM, KEEP_ALIVE_COMMENT, event_stream, stream_with_ping};
use exchange::HttpExchange;
pub(super) use exchange::{EventSource, FeedReader, stream_response};
use headers::{
    AcceptedTypes, LAST_EVENT_ID_HEADER, accepted_types, protocol_version, single_header,
};
pub use headers::{check_content_headers, require_json};
use maru_observability::journal::client_label;
use maru_tools::Caller;

/// Names the session on every request after the handshake.
pub static SESSION_ID_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// Methods that need the role agent.
const AGENT_METHODS: [&str; 5] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "resources/subscribe",
    "completion/complete",
];

/// One request to a Streamable HTTP endpoint.
#[derive(Debug)]
pub struct StreamableRequest {
    /// The engine that handles it.
    pub engine: Arc<McpEngine>,
    /// The caller and its part of the catalog.
    pub caller: Caller,
    /// Whether requests without a handshake are allowed, as for `POST /sse`.
    pub allows_no_session: bool,
    /// The request's headers.
    pub headers: HeaderMap,
}

/// `POST`: one message, or in 2025-03-26 a batch of them.
pub async fn post(http_request: StreamableRequest, body: Bytes) -> Response {
    let accepts = match require_json(&http_request.headers) {
        Ok(()) => accepted_types(&http_request.headers),
        Err(refusal) => return refusal,
    };
    let Some(accepts) = accepts else {
        return reply::reject(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow application/json or text/event-stream",
        );
    };
    let checked = run_parser(body.len(), move || CheckedJson::new(body)).await;
    let (text, message) = match checked.text() {
        Ok(text) => (text, RpcMessage::parse(text)),
        Err(bad) => return reply::rpc_error(StatusCode::BAD_REQUEST, None, &bad.into()),
    };
    let version = protocol_version(&http_request.headers);
    if text.trim_start().starts_with('[') {
        return match version {
            Ok(version) => Box::pin(batch::post(http_request, version, text)).await,
            Err(error) => reply::rpc_error(StatusCode::BAD_REQUEST, None, &error),
        };
    }
    let (message, version) = match (message, version) {
        (Ok(message), Ok(version)) => (message, version),
        (Err(InvalidMessage { id, error }), _) => {
            return reply::rpc_error(StatusCode::BAD_REQUEST, id.as_ref(), &error);
        }
        (Ok(message), Err(error)) => {
            return reply::rpc_error(StatusCode::BAD_REQUEST, message.id(), &error);
        }
    };
    match message {
        RpcMessage::Request(request) => on_request(http_request, version, accepts, request).await,
        RpcMessage::Notification { .. } if version.is_some_and(ProtocolVersion::is_modern) => {
            reply::accepted()
        }
        message => match http_request.session(version).await {
            Err(refusal) => refusal,
            Ok(session) => {
                let engine = &http_request.engine;
                if let Err(error) = engine.spend_one_way(&session, &message, text.len()).await {
                    return reply::rpc_error(StatusCode::TOO_MANY_REQUESTS, None, &error);
                }
                match engine.handle_one_way(&session, &message, text).await {
                    Ok(()) => reply::accepted(),
                    Err(_) => unknown_session(),
                }
            }
        },
    }
}

/// `GET`: the stream of messages that belong to no request, or a stream to resume.
pub async fn get(http_request: StreamableRequest) -> Response {
    if !accepted_types(&http_request.headers).is_some_and(|it| it.events) {
        return reply::reject(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow text/event-stream",
        );
    }
    if !http_request.headers.contains_key(&SESSION_ID_HEADER) {
        return reply::reject(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET needs a session: POST initialize first",
        );
    }
    let session = match protocol_version(&http_request.headers) {
        Err(error) => return reply::rpc_error(StatusCode::BAD_REQUEST, None, &error),
        Ok(version) => match http_request.session(version).await {
            Err(refusal) => return refusal,
            Ok(session) => session,
        },
    };
    let resumed =
        single_header(&http_request.headers, &LAST_EVENT_ID_HEADER).and_then(EventId::parse);
    let hub = session.hub().map(|it| &**it);
    let held_elsewhere = resumed.as_ref().filter(|it| it.hub.as_deref() != hub);
    if let Some(event) = held_elsewhere {
        return resume_from_hub(&http_request, &session, event).await;
    }
    let stream = resumed.as_ref().map_or(STANDALONE_STREAM, |it| it.stream);
    let Some(mut feed) = session.streams.claim(stream).await else {
        return reply::stream_gone();
    };
    if let Some(event) = resumed {
        feed.replay_after(event.number);
    }
    exchange::stream(feed, &http_request.engine, Some(&session))
}

/// Resumes a stream that began at another hub.
async fn resume_from_hub(
    http_request: &StreamableRequest,
    session: &Arc<McpSession>,
    event: &EventId,
) -> Response {
    let engine = &http_request.engine;
    let (Some(shared), Some(_)) = (&engine.shared, &event.hub) else {
        return reply::stream_gone();
    };
    if event.stream == STANDALONE_STREAM {
        // Every hub has this stream; only the changes since the last event are unknown.
        let Some(mut feed) = session.streams.claim(STANDALONE_STREAM).await else {
            return reply::stream_gone();
        };
        feed.push_list_changes();
        return exchange::stream(feed, engine, Some(session));
    }
    let resumed = shared.resume_from_hub(engine, session, event).await;
    resumed.unwrap_or_else(|_| unknown_session())
}

/// `DELETE`: ends the session.
pub async fn delete(http_request: &StreamableRequest) -> Response {
    if !http_request.headers.contains_key(&SESSION_ID_HEADER) {
        return reply::reject(StatusCode::METHOD_NOT_ALLOWED, "DELETE needs a session");
    }
    match http_request.session(None).await {
        Err(refusal) => refusal,
        Ok(session) => {
            // First the note, without which another hub would go on with the session.
            if let Some(shared) = &http_request.engine.shared
                && let Err(error) = shared.write_note(&session, &SessionNote::Ended).await
            {
                warn!(%error, "a session could not be ended for all hubs");
                return reply::reject(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the store is down, so the session cannot end at all hubs; try again later",
                );
            }
            http_request.engine.sessions.end(&session.id);
            reply::empty(StatusCode::NO_CONTENT)
        }
    }
}

async fn on_request(
    http_request: StreamableRequest,
    version: Option<ProtocolVersion>,
    accepts: AcceptedTypes,
    request: RpcRequest<'_>,
) -> Response {
    if !http_request.caller.principal.may_call() && AGENT_METHODS.contains(&&*request.method) {
        let error = RpcError::new(
            code::FORBIDDEN,
            "the token does not allow this; it needs the role agent",
        );
        return reply::rpc_error(StatusCode::FORBIDDEN, Some(&request.id), &error);
    }
    if version.is_some_and(ProtocolVersion::is_modern) || declares_version(&request) {
        return Box::pin(modern::post(http_request, accepts, &request)).await;
    }
    let owned = match OwnedRequest::new(&http_request.caller, &request).await {
        Ok(owned) => owned,
        Err(error) => return reply::rpc_error(too_large_status(&error), Some(&request.id), &error),
    };
    if request.method == "initialize" {
        // Boxed, because it would make the future of every other request larger.
        return Box::pin(initialize(&http_request, &owned)).await;
    }
    let session = match http_request.session(version).await {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    let (out, messages) = message_queue::channel();
    // A request without a session cannot be resumed; disconnecting cancels it.
    let resumable = http_request.headers.contains_key(&SESSION_ID_HEADER);
    let resumable = resumable.then(|| Arc::clone(&session));
    let engine = Arc::clone(&http_request.engine);
    let sender = out.clone();
    let work = async move {
        let answer = engine.handle_request(&session, &owned, &sender).await;
        answer.map(|text| (StatusCode::OK, text))
    };
    HttpExchange {
        engine: http_request.engine,
        accepts,
        session: resumable,
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}

/// The status of a request that takes too much memory.
pub(super) fn too_large_status(error: &RpcError) -> StatusCode {
    if error.code == SESSION_BUSY {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::PAYLOAD_TOO_LARGE
    }
}

/// `initialize`: opens a session.
async fn initialize(http_request: &StreamableRequest, request: &OwnedRequest) -> Response {
    let engine = &http_request.engine;
    // Invalid parameters must not open a session.
    let checked = RequestParams::parse(request.params.as_deref()).and_then(|params| {
        let (version, capabilities) = read_handshake(&params)?;
        let label = params.client_info.and_then(client_label);
        let label = label.as_deref().map(str::to_owned);
        Ok(TokenClient::new(version, &capabilities, label))
    });
    let client = match checked {
        Ok(client) => client,
        Err(error) => {
            return reply::rpc_error(StatusCode::BAD_REQUEST, Some(&request.id), &error);
        }
    };
    let opened = engine.open_session(http_request.caller.clone(), Some(client));
    let session = match opened {
        Ok(session) => session,
        Err(too_many) => {
            return reply::reject(StatusCode::SERVICE_UNAVAILABLE, too_many.to_string());
        }
    };
    let answer = engine.handle_request(&session, request, &session.out).await;
    let answer = answer.map(Bytes::from_owner).unwrap_or_default();
    let mut response = reply::json(StatusCode::OK, answer);
    let id = session.id.parse().expect("an id is visible ASCII");
    response.headers_mut().insert(&SESSION_ID_HEADER, id);
    response
}

fn unknown_session() -> Response {
    reply::rpc_error(
        StatusCode::NOT_FOUND,
        None,
        &RpcError::new(
            code::INVALID_REQUEST,
            "unknown or expired session; POST initialize again",
        ),
    )
}

impl StreamableRequest {
    /// The session that the request names.
    async fn session(&self, version: Option<ProtocolVersion>) -> Result<Arc<McpSession>, Response> {
        let Some(id) = self.headers.get(&SESSION_ID_HEADER) else {
            if !self.allows_no_session {
                let error = "no Mcp-Session-Id: POST initialize first, or use 2026-07-28";
                return Err(reply::rpc_error(
                    StatusCode::BAD_REQUEST,
                    None,
                    &RpcError::new(code::INVALID_REQUEST, error),
                ));
            }
            let session = self.engine.new_session(self.caller.clone());
            session.set_client_info(
                version.unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE),
                serde_json::Value::Null,
                None,
            );
            return Ok(Arc::new(session));
        };
        let found = match id.to_str() {
            Ok(id) => self.engine.find_session(id, &self.caller).await,
            Err(_) => None,
        };
        found
            .filter(|session| session.caller.scope == self.caller.scope)
            .ok_or_else(unknown_session)
    }
}
