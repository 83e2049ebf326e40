//! One HTTP request and the messages of its response.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hyper::{
    StatusCode,
    body::Bytes,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue},
};
use maru_http::HttpResponse;
use maru_protocol::{CheckedJson, RpcId, RpcMessage, SseEvent, SseReader, write_notification};
use maru_runtime::{
    tasks::{WorkSlice, run_parser},
    traffic_budget::TrafficBudget,
};
use serde_json::json;
use tokio::time;

use super::{HttpLink, SESSION_ID_HEADER};
use crate::{Error, channel::UNREADABLE_RESPONSE, in_flight::CallGuard, link::CallEvent};

/// Bytes of a stream that are parsed before yielding to other tasks.
const YIELD_CHUNK_BYTES: usize = 16 << 10;
/// How often an interrupted stream is resumed.
const MAX_RESUMES: usize = 5;

/// A request in progress on an [`HttpLink`]; dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct HttpCall {
    response: ResponseReader,
    /// Receives the messages that arrive on the event stream, if the call was made for a
    /// client.
    pub(crate) guard: Option<CallGuard>,
}

/// Reads the response of the request itself.
#[derive(Debug)]
struct ResponseReader {
    cancel_guard: CancelGuard,
    reply: HttpResponse,
    /// Parses the response if it is an event stream. Boxed, because most responses are
    /// plain JSON and the struct is moved often.
    events: Option<Box<ResumableEvents>>,
    /// A message that was received and not parsed yet.
    unparsed: Option<Bytes>,
    resume_count: usize,
}

/// Sends `notifications/cancelled` when a request is dropped before its response.
#[derive(Debug)]
pub(super) struct CancelGuard {
    link: Arc<HttpLink>,
    id: i64,
    /// The protocol forbids it for the handshake.
    is_cancellable: bool,
    pub(super) done: bool,
}

impl CancelGuard {
    pub(super) fn new(link: &Arc<HttpLink>, id: i64, method: &str) -> Self {
        Self {
            link: Arc::clone(link),
            id,
            is_cancellable: method != "initialize",
            done: false,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct ResumableEvents {
    reader: SseReader,
    parsed: Vec<SseEvent>,
    ready: VecDeque<SseEvent>,
    /// Bytes that were received and not parsed yet.
    unparsed: Bytes,
    slice: WorkSlice,
    /// The event id after which to resume.
    pub(super) last_event_id: Option<String>,
    /// How long to wait before resuming, as the server requested.
    pub(super) retry_delay: Option<Duration>,
}

impl HttpCall {
    pub(super) async fn new(
        pending: CancelGuard,
        reply: HttpResponse,
        client: Option<CallGuard>,
    ) -> Result<Self, Error> {
        let mut response = ResponseReader {
            cancel_guard: pending,
            reply,
            events: None,
            unparsed: None,
            resume_count: 0,
        };
        let checked = response.check_response().await;
        response.cancel_guard.done |= checked.is_err();
        if checked.is_err() {
            // The status is the final response.
            client.iter().for_each(CallGuard::end);
        }
        checked.map(|()| Self {
            response,
            guard: client,
        })
    }

    /// Returns the session id that the server assigned in this response.
    pub(crate) fn session_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.response.reply.header(&SESSION_ID_HEADER)?).ok()
    }

    /// Returns the link of the call.
    pub(crate) fn link(&self) -> &Arc<HttpLink> {
        &self.response.cancel_guard.link
    }

    /// Returns the next message of the call; the response comes last. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> Result<CallEvent, Error> {
        let Some(client) = &mut self.guard else {
            return self.response.next_call_event().await;
        };
        tokio::select! {
            biased;
            Some(text) = client.messages.recv() => {
                self.response.cancel_guard.link.log.record_received(&text);
                Ok(CallEvent::Message(text))
            }
            next = self.response.next_call_event() => {
                if matches!(&next, Ok(CallEvent::Answer(_)) | Err(Error::InvalidMessage(_))) {
                    client.end();
                }
                next
            }
        }
    }

    /// Replies to a request of the server.
    pub(crate) async fn respond(&self, text: String) -> Result<(), Error> {
        self.response.cancel_guard.link.send(text).await
    }
}

impl ResponseReader {
    /// Checks the status and content type of the response.
    async fn check_response(&mut self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::InvalidMessage(message.to_owned()));
        if self.reply.header(&CONTENT_ENCODING).is_some() {
            return invalid("the server sent a compressed response, which maru did not request");
        }
        let kind = self.reply.header(&CONTENT_TYPE).unwrap_or_default();
        let is_json = kind.starts_with("application/json");
        let is_stream = kind.starts_with("text/event-stream");
        if !self.reply.status.is_success() {
            let link = &self.cancel_guard.link;
            let is_doubtful = self.reply.status == StatusCode::BAD_REQUEST;
            if is_doubtful && Box::pin(link.is_session_unknown()).await {
                return Err(Error::SessionExpired);
            }
            let refused = link.check_session_status(&self.reply);
            // Since 2026-07-28 a JSON-RPC error comes with an HTTP error status.
            return if is_json && Box::pin(self.take_rpc_error()).await {
                Ok(())
            } else {
                refused
            };
        }
        match (is_json, is_stream) {
            (true, _) => Ok(()),
            (_, true) => {
                self.events = Some(Box::default());
                Ok(())
            }
            _ => invalid("the server answered with neither JSON nor an event stream"),
        }
    }

    /// Whether the body is the JSON-RPC error of this request; buffers it if so.
    async fn take_rpc_error(&mut self) -> bool {
        let Ok(body) = self.reply.bytes().await else {
            return false;
        };
        let Ok((text, message)) = RpcMessage::parse_bytes(&body) else {
            return false;
        };
        let is_ours = matches!(message, Ok(RpcMessage::Response(it)) if it.id == RpcId::Number(self.cancel_guard.id));
        if is_ours {
            let event = SseEvent {
                data: text.to_owned(),
                ..SseEvent::default()
            };
            self.events = Some(Box::new(ResumableEvents {
                ready: VecDeque::from([event]),
                ..ResumableEvents::default()
            }));
        }
        is_ours
    }

    /// Returns the next message of the response. Cancel-safe.
    async fn next_call_event(&mut self) -> Result<CallEvent, Error> {
        if self.events.is_none() {
            return self.read_json_body().await;
        }
        loop {
            if self.unparsed.is_none() {
                let Some(event) = self.next_sse_event().await? else {
                    Box::pin(self.resume()).await?;
                    continue;
                };
                self.unparsed = Some(event.data.into());
            }
            let received = self.parse_message().await?;
            if let Some(CallEvent::Answer(_)) = &received {
                self.cancel_guard.done = true;
            }
            if let Some(received) = received {
                return Ok(received);
            }
        }
    }

    async fn read_json_body(&mut self) -> Result<CallEvent, Error> {
        if self.unparsed.is_none() {
            let body = self.reply.bytes().await;
            self.cancel_guard.done = true;
            self.unparsed = Some(body?);
        }
        match self.parse_message().await? {
            Some(answer @ CallEvent::Answer(_)) => Ok(answer),
            Some(CallEvent::Message(_)) | None => {
                Err(Error::InvalidMessage(UNREADABLE_RESPONSE.to_owned()))
            }
        }
    }

    async fn next_sse_event(&mut self) -> Result<Option<SseEvent>, Error> {
        let events = self.events.get_or_insert_default();
        let link = &self.cancel_guard.link;
        let next = events.next(&mut self.reply, &link.budget).await;
        next.inspect_err(|error| link.mark_lost(error.clone()))
    }

    /// Parses the message that was received; `None` if it is the response to another
    /// request. Cancel-safe.
    async fn parse_message(&mut self) -> Result<Option<CallEvent>, Error> {
        let bytes = self.unparsed.clone().unwrap_or_default();
        let checked = run_parser(bytes.len(), move || CheckedJson::new(bytes)).await;
        self.unparsed = None;
        let invalid = || Error::InvalidMessage(UNREADABLE_RESPONSE.to_owned());
        let text = checked.text().map_err(|_| invalid())?;
        let message = RpcMessage::parse(text);
        let received = match message.map_err(|_| invalid())? {
            RpcMessage::Response(response)
                if response.id == RpcId::Number(self.cancel_guard.id) =>
            {
                CallEvent::Answer(response.owned_outcome())
            }
            RpcMessage::Response(_) => {
                self.charge_budget(text)?;
                return Ok(None);
            }
            RpcMessage::Request(_) | RpcMessage::Notification { .. } => {
                self.charge_budget(text)?;
                CallEvent::Message(text.to_owned())
            }
        };
        self.cancel_guard.link.log.record_received(text);
        Ok(Some(received))
    }

    /// Charges an unsolicited message to the budget; exceeding it ends the connection.
    fn charge_budget(&self, text: &str) -> Result<(), Error> {
        let link = &self.cancel_guard.link;
        let spent = link.budget.spend_message(text.len()).map_err(Error::from);
        spent.inspect_err(|error| link.mark_lost(error.clone()))
    }

    /// Resumes an interrupted stream after its last event.
    async fn resume(&mut self) -> Result<(), Error> {
        let interrupted =
            || Error::Lost("the server ended its stream before it answered".to_owned());
        let events = self.events.as_ref().ok_or_else(interrupted)?;
        let last = events.last_event_id.clone();
        let last = last
            .filter(|_| {
                !self.cancel_guard.link.version().is_modern() && self.resume_count < MAX_RESUMES
            })
            .ok_or_else(interrupted)?;
        self.resume_count += 1;
        let wait = events.retry_delay.unwrap_or(Duration::from_secs(1));
        time::sleep(wait.clamp(Duration::from_millis(10), Duration::from_secs(30))).await;
        let reply = self
            .cancel_guard
            .link
            .open_event_stream(Some(&last))
            .await?;
        self.cancel_guard.link.check_session_status(&reply)?;
        self.reply = reply;
        Ok(())
    }
}

impl ResumableEvents {
    /// Parses a stream that resumes after this event id.
    pub(super) fn resuming_after(last_event_id: Option<String>) -> Self {
        Self {
            last_event_id,
            ..Self::default()
        }
    }

    /// Returns the next event with data; `None` at the end of the stream. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        reply: &mut HttpResponse,
        budget: &TrafficBudget,
    ) -> Result<Option<SseEvent>, Error> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.id.is_some() {
                    self.last_event_id.clone_from(&event.id);
                }
                if let Some(retry) = event.retry {
                    self.retry_delay = Some(Duration::from_millis(retry));
                }
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
                budget.spend(1, 0)?;
            }
            if self.unparsed.is_empty() {
                let Some(Ok(bytes)) = reply.chunk().await else {
                    return Ok(None);
                };
                self.unparsed = bytes;
            }
            // Parsed in pieces, so that other tasks can run in between. The yield comes
            // first, so that a cancelled future loses nothing.
            self.slice
                .spend(YIELD_CHUNK_BYTES.min(self.unparsed.len()))
                .await;
            let piece = self
                .unparsed
                .split_to(YIELD_CHUNK_BYTES.min(self.unparsed.len()));
            let ignored = self.reader.feed(&piece, &mut self.parsed)?;
            self.ready.extend(self.parsed.drain(..));
            budget.spend(ignored.lines, ignored.bytes)?;
        }
    }
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        // Since 2026-07-28 closing the response stream cancels the request.
        if self.done
            || self.link.version().is_modern()
            || self.link.lost.is_cancelled()
            || !self.is_cancellable
        {
            return;
        }
        let params = json!({"requestId": self.id, "reason": "the client no longer waits"});
        let text = write_notification("notifications/cancelled", &params);
        // If too many are in flight, the server does not read, and the cancellation would
        // not reach it either.
        let _sent = self.link.send_detached(text);
    }
}
