//! Streamable HTTP: sessions until 2025-11-25, stateless since 2026-07-28.

mod batch;
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

use super::{
    Engine,
    dispatch::Owned,
    feed::{STANDALONE, parse_event_id},
    session::{Session, read_handshake},
    sessions::detached,
};
use crate::{
    mcp::{Invalid, Message, Params, Request, RpcError, Version, code, names_version},
    queue,
    tool::Caller,
};
use exchange::Exchange;
pub(super) use exchange::{Source, event_stream, or_alive, respond};
use headers::{Accepts, LAST_EVENT, accepts, one, version};
pub(crate) use headers::{check, check_headers};

/// Names the session on every request after the handshake.
pub static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// What a reader may not ask.
const ASKS: [&str; 5] = [
    "tools/call",
    "prompts/get",
    "resources/read",
    "resources/subscribe",
    "completion/complete",
];

/// One request to a Streamable HTTP door.
#[derive(Debug)]
pub struct Arrival {
    /// Who answers.
    pub engine: Arc<Engine>,
    /// Who asks, and for which part.
    pub caller: Caller,
    /// Answer also those who did not shake hands, as `POST /sse` does.
    pub lenient: bool,
    /// The request's headers.
    pub headers: HeaderMap,
}

/// `POST`: one message, or in 2025-03-26 a batch of them.
pub async fn post(arrival: Arrival, body: Bytes) -> Response {
    let accepts = match check(&arrival.headers) {
        Ok(()) => accepts(&arrival.headers),
        Err(refusal) => return refusal,
    };
    let Some(accepts) = accepts else {
        return reply::refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow application/json or text/event-stream",
        );
    };
    let (text, message) = match Message::take(&body) {
        Ok(taken) => taken,
        Err(bad) => return reply::error(StatusCode::BAD_REQUEST, None, &bad.into()),
    };
    let version = version(&arrival.headers);
    if text.trim_start().starts_with('[') {
        return match version {
            Ok(version) => Box::pin(batch::post(arrival, version, text)).await,
            Err(why) => reply::error(StatusCode::BAD_REQUEST, None, &why),
        };
    }
    let (message, version) = match (message, version) {
        (Ok(message), Ok(version)) => (message, version),
        (Err(Invalid { id, error }), _) => {
            return reply::error(StatusCode::BAD_REQUEST, id.as_ref(), &error);
        }
        (Ok(message), Err(why)) => {
            return reply::error(StatusCode::BAD_REQUEST, message.id(), &why);
        }
    };
    match message {
        Message::Request(request) => on_request(arrival, version, accepts, request).await,
        Message::Notification { .. } if version.is_some_and(Version::is_modern) => {
            reply::accepted()
        }
        message => match arrival.session(version) {
            Err(refusal) => refusal,
            Ok(session) => {
                take(&session, &message);
                reply::accepted()
            }
        },
    }
}

/// `GET`: the stream of messages that belong to no request, or one that was cut.
pub async fn get(arrival: Arrival) -> Response {
    if !accepts(&arrival.headers).is_some_and(|it| it.events) {
        return reply::refuse(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must allow text/event-stream",
        );
    }
    if !arrival.headers.contains_key(&SESSION_ID) {
        return reply::refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET needs a session: POST initialize first",
        );
    }
    let session = match version(&arrival.headers) {
        Err(why) => return reply::error(StatusCode::BAD_REQUEST, None, &why),
        Ok(version) => match arrival.session(version) {
            Err(refusal) => return refusal,
            Ok(session) => session,
        },
    };
    let resumed = one(&arrival.headers, &LAST_EVENT).and_then(parse_event_id);
    let (stream, event) = resumed.unwrap_or((STANDALONE, u64::MAX));
    let Some(mut feed) = session.streams.claim(stream).await else {
        return reply::refuse(
            StatusCode::GONE,
            "this stream is over, or held by another reader",
        );
    };
    if resumed.is_some() {
        feed.rewind(event);
    }
    exchange::stream(feed, &arrival.engine, Some(&session))
}

/// `DELETE`: ends the session.
pub fn delete(arrival: &Arrival) -> Response {
    if !arrival.headers.contains_key(&SESSION_ID) {
        return reply::refuse(StatusCode::METHOD_NOT_ALLOWED, "DELETE needs a session");
    }
    match arrival.session(None) {
        Err(refusal) => refusal,
        Ok(session) => {
            arrival.engine.sessions.end(&session.id);
            reply::empty(StatusCode::NO_CONTENT)
        }
    }
}

async fn on_request(
    arrival: Arrival,
    version: Option<Version>,
    accepts: Accepts,
    request: Request<'_>,
) -> Response {
    if !arrival.caller.principal.may_call() && ASKS.contains(&&*request.method) {
        let why = RpcError::new(
            code::FORBIDDEN,
            "the token does not allow this; it needs the role agent",
        );
        return reply::error(StatusCode::FORBIDDEN, Some(&request.id), &why);
    }
    if version.is_some_and(Version::is_modern) || names_version(&request) {
        return Box::pin(modern::post(arrival, accepts, &request)).await;
    }
    let owned = Owned::new(&request);
    if request.method == "initialize" {
        // On its own: it would make the future of every other request larger.
        return Box::pin(initialize(&arrival, &owned)).await;
    }
    let session = match arrival.session(version) {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    let (out, messages) = queue::channel();
    let engine = Arc::clone(&arrival.engine);
    let (answering, sender) = (Arc::clone(&session), out.clone());
    let work = async move {
        let answer = engine.answer(&answering, &owned, &sender).await;
        answer.map(|text| (StatusCode::OK, text))
    };
    Exchange {
        engine: arrival.engine,
        accepts,
        session: Some(session),
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}

/// The handshake opens the session.
async fn initialize(arrival: &Arrival, request: &Owned) -> Response {
    let engine = &arrival.engine;
    // Wrong parameters must not cost a session.
    let checked =
        Params::read(request.params.as_deref()).and_then(|params| read_handshake(&params));
    if let Err(why) = checked {
        return reply::error(StatusCode::BAD_REQUEST, Some(&request.id), &why);
    }
    let opened = engine.open_session(arrival.caller.clone());
    let session = match opened {
        Ok(session) => session,
        Err(full) => return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, full.to_string()),
    };
    let answer = engine.answer(&session, request, &session.out).await;
    let mut response = reply::json(StatusCode::OK, answer.unwrap_or_default());
    let id = session.id.parse().expect("an id is visible ASCII");
    response.headers_mut().insert(&SESSION_ID, id);
    response
}

/// Takes a message that wants no answer.
pub(super) fn take(session: &Session, message: &Message<'_>) {
    match message {
        Message::Notification { method, params } => {
            // A notification is never answered, not even a bad one.
            session.notified(method, &Params::read(*params).unwrap_or_default());
        }
        Message::Response(response) => session.answered(response),
        Message::Request(_) => (),
    }
}

impl Arrival {
    /// The session that the request names.
    fn session(&self, version: Option<Version>) -> Result<Arc<Session>, Response> {
        let Some(id) = self.headers.get(&SESSION_ID) else {
            if !self.lenient {
                let why = "no Mcp-Session-Id: POST initialize first, or speak 2026-07-28";
                return Err(reply::error(
                    StatusCode::BAD_REQUEST,
                    None,
                    &RpcError::new(code::INVALID_REQUEST, why),
                ));
            }
            let limits = self.engine.limits();
            let session = detached(
                self.caller.clone(),
                limits.max_calls_per_session,
                &self.engine.catalog,
            );
            session.greet(
                version.unwrap_or(Version::WITHOUT_HEADER),
                serde_json::Value::Null,
                None,
            );
            return Ok(Arc::new(session));
        };
        let found = id
            .to_str()
            .ok()
            .and_then(|id| self.engine.sessions.find(id, &self.caller.principal));
        found
            .filter(|session| session.caller.scope == self.caller.scope)
            .ok_or_else(|| {
                reply::error(
                    StatusCode::NOT_FOUND,
                    None,
                    &RpcError::new(
                        code::INVALID_REQUEST,
                        "this session is over or never was; POST initialize again",
                    ),
                )
            })
    }
}
