//! HTTP+SSE of 2024-11-05: a stream down, posts up.

use std::{convert::Infallible, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
    response::Response,
};
use futures_util::stream;

use super::{
    Engine,
    dispatch::Owned,
    feed::{Feed, STANDALONE},
    http::{ALIVE, event_stream, next_or_alive, reply, take},
    session::{Reading, Session},
};
use crate::{
    access::Principal,
    mcp::{Invalid, Message, RpcError, check, code, event},
    tool::Caller,
};

/// `GET /sse`: opens the session. Its first event says where to post.
pub fn get(engine: &Arc<Engine>, caller: Caller) -> Response {
    let limit = engine.limits.max_calls_per_session;
    let session = match engine.sessions.open(caller, limit, &engine.catalog) {
        Ok(session) => session,
        Err(full) => return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, full.to_string()),
    };
    let Some(feed) = session.unpark(STANDALONE) else {
        return reply::refuse(StatusCode::CONFLICT, "this stream is being read");
    };
    // A relative address is right behind every proxy and under every name.
    let endpoint = event(
        Some("endpoint"),
        None,
        &format!("/sse/message?session_id={}", session.id),
    );
    let line = Line {
        engine: Arc::clone(engine),
        _reading: session.reading(),
        session,
        feed,
    };
    let events = stream::unfold((line, Some(endpoint)), |(mut line, first)| async move {
        let text = match first {
            Some(text) => text,
            None => line.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (line, None)))
    });
    event_stream(Body::from_stream(events))
}

/// `POST /sse/message`: takes one message; its answer comes down the stream.
pub fn post(
    engine: &Arc<Engine>,
    principal: &Principal,
    session_id: &str,
    body: &[u8],
) -> Response {
    let Some(session) = engine.sessions.find(session_id, principal) else {
        return reply::refuse(
            StatusCode::NOT_FOUND,
            "this session is over or never was; GET /sse again",
        );
    };
    let text = match check(body) {
        Ok(text) => text,
        Err(bad) => {
            return reply::error(
                StatusCode::BAD_REQUEST,
                None,
                &RpcError::new(code::PARSE, bad.to_string()),
            );
        }
    };
    match Message::read(text) {
        Err(Invalid { id, error }) => {
            return reply::error(StatusCode::BAD_REQUEST, id.as_ref(), &error);
        }
        Ok(Message::Request(request)) => answer(engine, session, Owned::new(&request)),
        Ok(message) => take(&session, &message),
    }
    let mut response = Response::new(Body::from("Accepted"));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Answers in a task of its own; the post is over before that.
pub(super) fn answer(engine: &Arc<Engine>, session: Arc<Session>, request: Owned) {
    let begun = session.begin(&request.id);
    let answering = Arc::clone(engine);
    engine.tasks.spawn(async move {
        let (running, text) = match begun {
            Err(busy) => (None, Some(request.reply(&Err(busy)))),
            Ok(running) => {
                let text = answering
                    .answer_running(&running, &session, &request, &session.out)
                    .await;
                (Some(running), text)
            }
        };
        deliver(&answering, &session, text).await;
        drop(running);
    });
}

/// Sends an answer; a reader who takes nothing loses the session.
pub(super) async fn deliver(engine: &Engine, session: &Session, text: Option<String>) {
    if let Some(text) = text
        && session.out.send(text).await.is_err()
    {
        session.close();
        engine.sessions.end(&session.id);
    }
}

struct Line {
    engine: Arc<Engine>,
    session: Arc<Session>,
    feed: Feed,
    _reading: Reading,
}

impl Line {
    async fn next(&mut self) -> Option<String> {
        let next = tokio::select! {
            biased;
            next = next_or_alive(&mut self.feed) => next?,
            () = self.session.end.cancelled() => return None,
        };
        Some(next.map_or_else(
            || ALIVE.to_owned(),
            |message| event(Some("message"), None, &message),
        ))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.engine.sessions.end(&self.session.id);
    }
}
