//! Sessions that any hub of a store goes on with.
//!
//! A session id is a [`SessionToken`], so that a hub that does not know it takes it over.
//! What changes later (its end, its log level, its subscriptions) is a note that every hub
//! reads. What belongs to a stream goes to the hub that holds it, which the id of the
//! client request, of the event or of the session names.

mod peer_requests;

use std::{sync::Arc, time::Duration};

use axum::{body::Bytes, http::StatusCode, response::Response};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru_auth::Principal;
use maru_peers::{Error as PeerError, Exchange, HubNote, NoteChange, PeerHubs, PeerTopic};
use maru_protocol::{LoggingLevel, RpcError, RpcId, RpcMessage, code};
use maru_runtime::{clock, tasks::with_timeout};
use maru_store::SecretSealer;
use maru_tools::Caller;
use serde_json::{Value, json};
use tracing::warn;

use super::{
    McpEngine,
    dispatch::DispatchContext,
    feed::EventId,
    http::{EventSource, reply, stream_response},
    owned_request::OwnedRequest,
    session::{McpSession, ReaderGuard},
    session_token::{SessionToken, TOKEN_LIFETIME_MS, TokenClient, scope_name},
};

/// How long the hub that holds a stream may take to hand it over.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);
/// The last characters of an id are its tag, which no other id has.
const NOTE_KEY_BYTES: usize = 32;

/// What hubs that share a store need for each other's sessions.
#[derive(Debug)]
pub(super) struct SharedSessions {
    pub(super) peers: Arc<PeerHubs>,
    sealer: SecretSealer,
}

/// What every hub must know of a session.
#[derive(Debug)]
pub(super) enum SessionNote<'a> {
    Ended,
    LogLevel(LoggingLevel),
    Subscribed(&'a str),
    Unsubscribed(&'a str),
}

/// A stream of another hub that this one reads for its client.
struct RelayedStream {
    exchange: Exchange,
    session: Arc<McpSession>,
    _reading: ReaderGuard,
}

impl SharedSessions {
    pub(super) fn new(peers: Arc<PeerHubs>) -> Self {
        let sealer = peers.key().sealer("session");
        Self { peers, sealer }
    }

    /// The id of a new session; `client` is absent for HTTP+SSE.
    pub(super) fn new_id(&self, caller: &Caller, client: Option<TokenClient>) -> String {
        let hub = self.peers.id().to_string();
        SessionToken::new(hub, clock::now_ms(), caller, client).seal(&self.sealer)
    }

    pub(super) fn open_id(&self, id: &str) -> Option<SessionToken> {
        SessionToken::open(&self.sealer, id, clock::now_ms())
    }

    /// The hub that sent the request with this id to its client, if it is another one.
    fn sender_of(&self, id: &RpcId) -> Option<Arc<str>> {
        let RpcId::Text(text) = id else { return None };
        let (hub, _number) = text.split_once('-')?;
        (hub != &**self.peers.id()).then(|| hub.into())
    }

    /// Writes what every hub must know of a session.
    pub(super) async fn write_note(
        &self,
        session: &McpSession,
        note: &SessionNote<'_>,
    ) -> Result<(), PeerError> {
        let mut body = note.to_json();
        body["session"] = (*session.id).into();
        let body = body.to_string();
        let lifetime = Duration::from_millis(TOKEN_LIFETIME_MS.unsigned_abs());
        let key = note_key(&session.id);
        // Sealed notes do not show which resources a session watches, nor do their kinds.
        let uri_kind = |uri: &str| {
            let hash = self.peers.key().derive(&format!("note {key} {uri}"));
            BASE64_URL_SAFE_NO_PAD.encode(hash)
        };
        let change = match note {
            SessionNote::Ended => NoteChange::Last,
            SessionNote::LogLevel(_) => NoteChange::Kept("log_level".to_owned()),
            SessionNote::Subscribed(uri) => NoteChange::Kept(uri_kind(uri)),
            SessionNote::Unsubscribed(uri) => NoteChange::Removed(uri_kind(uri)),
        };
        let note = HubNote {
            topic: PeerTopic::SessionNote,
            key,
            change,
            body: &body,
            lifetime,
        };
        self.peers.write_note(note).await
    }

    /// Applies the notes on a session that was opened elsewhere; false if it has ended, or
    /// the notes cannot be read, which would tell.
    async fn apply_notes(&self, engine: &McpEngine, session: &McpSession) -> bool {
        let notes = match self.peers.notes(note_key(&session.id)).await {
            Ok(notes) => notes,
            Err(error) => {
                warn!(%error, "a session of another hub is refused");
                return false;
            }
        };
        let mut notes = notes.iter().filter_map(|it| serde_json::from_str(it).ok());
        notes
            .all(|note: Value| SessionNote::parse(&note).is_none_or(|it| it.apply(engine, session)))
    }

    /// Sends a message of a client to the hub that it is meant for. Returns true if that is
    /// another one.
    pub(super) async fn forward_one_way(
        &self,
        session: &McpSession,
        message: &RpcMessage<'_>,
        text: &str,
    ) -> Result<bool, PeerError> {
        match message {
            RpcMessage::Response(response) => {
                let Some(hub) = self.sender_of(&response.id) else {
                    return Ok(false);
                };
                let body = json!({"session": session.id, "text": text}).to_string();
                self.peers
                    .request(&hub, PeerTopic::SessionMessage, &body)
                    .await?;
                Ok(true)
            }
            RpcMessage::Notification { method, params } => {
                let params = maru_protocol::RequestParams::parse(*params).unwrap_or_default();
                let cancelled = params
                    .request_id
                    .filter(|_| method == "notifications/cancelled");
                let Some(id) = cancelled.and_then(RpcId::parse) else {
                    return Ok(false);
                };
                if session.is_running(&id) {
                    return Ok(false);
                }
                let body = json!({"session": session.id, "text": text}).to_string();
                self.peers.broadcast(PeerTopic::SessionCancel, &body).await;
                Ok(true)
            }
            RpcMessage::Request(_) => Ok(false),
        }
    }

    /// Hands a message of HTTP+SSE to the hub that holds the session's stream.
    pub(super) async fn forward_sse(
        &self,
        principal: &Principal,
        session_id: &str,
        body: &Bytes,
    ) -> Option<Response> {
        let token = self.open_id(session_id)?;
        if !token.belongs_to(principal) || token.client.is_some() {
            return None;
        }
        let text = std::str::from_utf8(body).ok()?;
        let request = json!({"session": session_id, "text": text}).to_string();
        let answer = self
            .peers
            .request(&token.hub, PeerTopic::SseMessage, &request);
        let answer: Value = serde_json::from_str(&answer.await.ok()?).ok()?;
        let status = u16::try_from(answer["status"].as_u64()?).ok()?;
        let status = StatusCode::from_u16(status).ok()?;
        let text = answer["text"].as_str()?.to_owned();
        Some(if status.is_success() {
            reply::text(status, text)
        } else {
            reply::json(status, text)
        })
    }

    /// Reads a stream of the hub that `event` names for the client, from `event` on.
    pub(super) async fn resume_from_hub(
        &self,
        engine: &McpEngine,
        session: &Arc<McpSession>,
        event: &EventId,
    ) -> Result<Response, PeerError> {
        let hub = event.hub.as_deref().ok_or(PeerError::HubGone)?;
        let body = json!({
            "session": session.id,
            "stream": event.stream,
            "event": event.number,
        });
        let body = body.to_string();
        let opened = async {
            let mut exchange = self.peers.open(hub, PeerTopic::StreamResume, &body).await?;
            let first = exchange.receive().await?;
            Ok::<_, PeerError>((exchange, first))
        };
        let (exchange, first) = with_timeout(RESUME_TIMEOUT, opened)
            .await
            .ok_or(PeerError::ReplyTimeout)??;
        if first == peer_requests::STREAM_GONE {
            return Ok(reply::stream_gone());
        }
        let stream = RelayedStream {
            exchange,
            _reading: session.track_reader(),
            session: Arc::clone(session),
        };
        let keep_alive = engine.limits().keep_alive();
        Ok(stream_response(stream, None, keep_alive))
    }

    /// Lets another hub handle a request with the answer to a question that it asked.
    /// After any error but [`PeerError::HubGone`] it may have done so.
    pub(super) async fn forward_round(
        &self,
        hub: &str,
        context: &DispatchContext<'_>,
        request: &OwnedRequest,
        timeout: Duration,
    ) -> Result<Result<String, RpcError>, PeerError> {
        let caller = context.caller;
        let body = json!({
            "principal": caller.principal.to_json(),
            "scope": scope_name(&caller.scope),
            "ip": caller.remote_ip,
            "id": request.id,
            "method": request.method,
            "params": request.params,
        });
        let body = body.to_string();
        let answer = async {
            let mut exchange = self.peers.open(hub, PeerTopic::InputRound, &body).await?;
            loop {
                let text = exchange.receive().await?;
                let answer: Result<Value, _> = serde_json::from_str(&text);
                let mut answer = answer.map_err(|_| PeerError::ExchangeEnded)?;
                if let Value::String(message) = answer["message"].take() {
                    // Fails if the client has disconnected, which drops this future.
                    let _ = context.out.send(message).await;
                    continue;
                }
                return Ok(match answer["result"].take() {
                    Value::String(result) => Ok(result),
                    _ => Err(parse_error(&mut answer["error"])),
                });
            }
        };
        let answer = with_timeout(timeout, answer).await;
        answer.unwrap_or(Err(PeerError::ReplyTimeout))
    }
}

impl McpEngine {
    /// Takes over a session that another hub opened, or that was idle here for long.
    pub(super) async fn adopt_session(
        &self,
        shared: &SharedSessions,
        id: &str,
        caller: &Caller,
    ) -> Option<Arc<McpSession>> {
        let token = shared.open_id(id).filter(|it| it.matches(caller))?;
        let client = token.client?;
        let version = client.version()?;
        let mut session = self.new_session(caller.clone());
        session.set_id(id.to_owned(), Arc::clone(shared.peers.id()));
        session.set_client_info(version, client.capabilities, client.label.map(Into::into));
        if !shared.apply_notes(self, &session).await {
            return None;
        }
        self.sessions.register(session, &self.limits()).ok()
    }
}

impl SessionNote<'_> {
    fn to_json(&self) -> Value {
        match self {
            Self::Ended => json!({"ended": true}),
            Self::LogLevel(level) => json!({"log_level": level}),
            Self::Subscribed(uri) => json!({"subscribed": uri}),
            Self::Unsubscribed(uri) => json!({"unsubscribed": uri}),
        }
    }

    fn parse(note: &Value) -> Option<SessionNote<'_>> {
        if note["ended"] == true {
            return Some(SessionNote::Ended);
        }
        if let Some(level) = note["log_level"].as_str() {
            let quoted = json!(level).to_string();
            return LoggingLevel::parse(&quoted).ok().map(SessionNote::LogLevel);
        }
        if let Some(uri) = note["subscribed"].as_str() {
            return Some(SessionNote::Subscribed(uri));
        }
        note["unsubscribed"].as_str().map(SessionNote::Unsubscribed)
    }

    /// Applies the note; false if the session has ended.
    fn apply(&self, engine: &McpEngine, session: &McpSession) -> bool {
        match self {
            Self::Ended => return false,
            Self::LogLevel(level) => session.set_log_level(*level),
            Self::Subscribed(uri) => {
                let snapshot = engine.catalog().snapshot();
                if let Some(it) = snapshot.subscribe_resource(&session.caller, uri) {
                    session.subscriptions.add(uri, it);
                }
            }
            Self::Unsubscribed(uri) => {
                session.subscriptions.remove(uri);
            }
        }
        true
    }
}

impl EventSource for RelayedStream {
    async fn next(&mut self) -> Option<String> {
        tokio::select! {
            text = self.exchange.next() => text,
            () = self.session.end.cancelled() => None,
        }
    }

    fn report_progress(&self) {}
}

fn note_key(session_id: &str) -> &str {
    let start = session_id.len().saturating_sub(NOTE_KEY_BYTES);
    session_id.get(start..).unwrap_or(session_id)
}

fn parse_error(error: &mut Value) -> RpcError {
    let message = error["message"].as_str().unwrap_or("no reason given");
    let code = error["code"].as_i64().unwrap_or(code::INTERNAL_ERROR);
    let parsed = RpcError::new(code, message.to_owned());
    match error.get_mut("data").map(Value::take) {
        None | Some(Value::Null) => parsed,
        Some(data) => parsed.with_data(data),
    }
}
