//! HTTP+SSE of 2024-11-05: messages to the client in a stream, messages from it in POSTs.

use std::sync::Arc;

use axum::{body::Bytes, http::StatusCode, response::Response};
use maru_protocol::{CheckedJson, InvalidMessage, RpcMessage, write_event};
use maru_runtime::{memory::HeldText, tasks::run_parser};

use super::{
    McpEngine,
    feed::{MessageFeed, STANDALONE_STREAM},
    http::{EventSource, reply, stream_response, too_large_status},
    owned_request::OwnedRequest,
    session::{McpSession, ReaderGuard, RunningRequest},
};
use maru_auth::Principal;
use maru_tools::Caller;

/// `GET /sse`: opens the session. Its first event says where to post.
pub fn get(engine: &Arc<McpEngine>, caller: Caller) -> Response {
    let session = match engine.open_session(caller, None) {
        Ok(session) => session,
        Err(too_many) => {
            return reply::reject(StatusCode::SERVICE_UNAVAILABLE, too_many.to_string());
        }
    };
    let Some(feed) = session.streams.take(STANDALONE_STREAM) else {
        return reply::reject(StatusCode::CONFLICT, "this stream is being read");
    };
    // A relative address works behind every proxy and under every host name.
    let endpoint = write_event(
        Some("endpoint"),
        None,
        &format!("/sse/message?session_id={}", session.id),
    );
    let stream = SseSessionStream {
        engine: Arc::clone(engine),
        _reading: session.track_reader(),
        session,
        feed,
    };
    stream_response(stream, Some(endpoint), engine.limits().keep_alive())
}

/// `POST /sse/message`: handles one message; its response is sent in the stream.
pub async fn post(
    engine: &Arc<McpEngine>,
    principal: &Principal,
    session_id: &str,
    body: Bytes,
) -> Response {
    if let Some(session) = engine.sessions.find(session_id, principal) {
        return accept(engine, session, body).await;
    }
    let forwarded = match &engine.shared {
        Some(shared) => Box::pin(shared.forward_sse(principal, session_id, &body)).await,
        None => None,
    };
    forwarded.unwrap_or_else(|| {
        reply::reject(
            StatusCode::NOT_FOUND,
            "unknown or expired session; GET /sse again",
        )
    })
}

/// Handles one message of a session whose stream is here.
pub(super) async fn accept(
    engine: &Arc<McpEngine>,
    session: Arc<McpSession>,
    body: Bytes,
) -> Response {
    let checked = run_parser(body.len(), move || CheckedJson::new(body)).await;
    let (text, message) = match checked.text() {
        Ok(text) => (text, RpcMessage::parse(text)),
        Err(bad) => return reply::rpc_error(StatusCode::BAD_REQUEST, None, &bad.into()),
    };
    match message {
        Err(InvalidMessage { id, error }) => {
            return reply::rpc_error(StatusCode::BAD_REQUEST, id.as_ref(), &error);
        }
        Ok(RpcMessage::Request(request)) => {
            let owned = match OwnedRequest::new(&session.caller, &request).await {
                Ok(owned) => owned,
                Err(error) => {
                    let status = too_large_status(&error);
                    return reply::rpc_error(status, Some(&request.id), &error);
                }
            };
            match session.begin(&owned.id) {
                Ok(running) => answer(engine, session, owned, running),
                // The error is not queued for a client that sends too much and reads
                // nothing: if it does not fit, the POST itself is refused.
                Err(busy) => {
                    let delivered = session.out.try_send(owned.to_response(&Err(busy)));
                    if delivered.is_err() {
                        let why = "too many requests of this session are in progress; read its stream first";
                        return reply::reject(StatusCode::SERVICE_UNAVAILABLE, why);
                    }
                }
            }
        }
        Ok(message) => {
            if let Err(error) = engine.spend_one_way(&session, &message, text.len()).await {
                return reply::rpc_error(StatusCode::TOO_MANY_REQUESTS, None, &error);
            }
            session.handle_one_way(&message);
        }
    }
    reply::text(StatusCode::ACCEPTED, "Accepted".to_owned())
}

/// Handles a request in its own task; the POST returns before that.
fn answer(
    engine: &Arc<McpEngine>,
    session: Arc<McpSession>,
    request: OwnedRequest,
    running: RunningRequest,
) {
    let task_engine = Arc::clone(engine);
    engine.tasks.spawn(async move {
        let text = task_engine
            .handle_running(&running, &session, &request, &session.out)
            .await;
        deliver(&task_engine, &session, text).await;
        drop(running);
    });
}

/// Sends a response; a client that does not read loses the session.
pub(super) async fn deliver(engine: &McpEngine, session: &McpSession, text: Option<HeldText>) {
    if let Some(text) = text
        && session.out.send(text).await.is_err()
    {
        session.close();
        engine.sessions.end(&session.id);
    }
}

struct SseSessionStream {
    engine: Arc<McpEngine>,
    session: Arc<McpSession>,
    feed: MessageFeed,
    _reading: ReaderGuard,
}

impl EventSource for SseSessionStream {
    async fn next(&mut self) -> Option<String> {
        let (feed, session) = (&mut self.feed, &self.session);
        let next = async {
            let message = feed.next().await?;
            Some(write_event(Some("message"), None, &message))
        };
        // Responses to requests in progress are still sent in this stream.
        let drained = async {
            session.closing.cancelled().await;
            session.drain().await;
        };
        tokio::select! {
            biased;
            text = next => text,
            () = session.end.cancelled() => None,
            () = drained => None,
        }
    }

    fn report_progress(&self) {
        self.feed.report_progress();
    }
}

impl Drop for SseSessionStream {
    fn drop(&mut self) {
        self.engine.sessions.end(&self.session.id);
    }
}
