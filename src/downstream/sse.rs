//! HTTP+SSE of 2024-11-05: a stream down, posts up.

use std::sync::Arc;

use axum::{body::Body, http::StatusCode, response::Response};

use super::{
    Engine,
    dispatch::Owned,
    feed::{Feed, STANDALONE},
    http::{Source, or_alive, reply, respond, take},
    session::{Reading, Running, Session},
};
use crate::{
    access::Principal,
    mcp::{Invalid, Message, event},
    tool::Caller,
};

/// `GET /sse`: opens the session. Its first event says where to post.
pub fn get(engine: &Arc<Engine>, caller: Caller) -> Response {
    let session = match engine.open_session(caller) {
        Ok(session) => session,
        Err(full) => return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, full.to_string()),
    };
    let Some(feed) = session.streams.take(STANDALONE) else {
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
    respond(line, Some(endpoint))
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
    let message = match Message::take(body) {
        Ok((_, message)) => message,
        Err(bad) => return reply::error(StatusCode::BAD_REQUEST, None, &bad.into()),
    };
    match message {
        Err(Invalid { id, error }) => {
            return reply::error(StatusCode::BAD_REQUEST, id.as_ref(), &error);
        }
        Ok(Message::Request(request)) => {
            let owned = Owned::new(&request);
            match session.begin(&owned.id) {
                Ok(running) => answer(engine, session, owned, running),
                // Nothing waits for a client that sends more than it may and reads
                // nothing: it is told at once, or its request is refused.
                Err(busy) => {
                    let told = session.out.try_send(owned.reply(&Err(busy)));
                    if told.is_err() {
                        let why = "too many requests of this session are in progress; read its stream first";
                        return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, why);
                    }
                }
            }
        }
        Ok(message) => take(&session, &message),
    }
    let mut response = Response::new(Body::from("Accepted"));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Answers in a task of its own; the post is over before that.
fn answer(engine: &Arc<Engine>, session: Arc<Session>, request: Owned, running: Running) {
    let answering = Arc::clone(engine);
    engine.tasks.spawn(async move {
        let text = answering
            .answer_running(&running, &session, &request, &session.out)
            .await;
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

impl Source for Line {
    async fn next(&mut self) -> Option<String> {
        let (feed, session) = (&mut self.feed, &self.session);
        let next = async {
            let message = feed.next().await?;
            Some(event(Some("message"), None, &message))
        };
        // Answers to what is in progress come down this stream, too.
        let wound_up = async {
            session.closing.cancelled().await;
            session.drain().await;
        };
        tokio::select! {
            biased;
            text = or_alive(next) => text,
            () = session.end.cancelled() => None,
            () = wound_up => None,
        }
    }

    fn alive(&self) {
        self.feed.alive();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.engine.sessions.end(&self.session.id);
    }
}
