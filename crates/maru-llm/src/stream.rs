//! A response while it arrives, driven by its reader.

use std::{mem, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use hyper::{body::Bytes, header::CONTENT_TYPE};
use maru_http::HttpResponse;
use maru_protocol::SseReader;
use maru_runtime::tasks::{WorkSlice, with_timeout};
use tokio::time::Instant;

use super::{
    ChatEvent, ChatResponse, Error,
    backend_health::BackendHealth,
    decoder::ResponseDecoder,
    gemini,
    openai::{self, ProtocolViolation},
    queue::QueuePermit,
    request_recorder::ModelRequestRecorder,
};
use maru_config::BackendApi;

/// How long a stream may stay open after its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
/// Pieces that are read together when they are there already.
const MAX_CHUNKS_PER_READ: usize = 64;
/// The longest event that is taken; a call with a file in its arguments fits.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// Bytes that are read together.
const MAX_BYTES_PER_READ: usize = 32 << 10;

/// A response while it arrives. Dropping it closes the backend's connection and releases
/// the permit of the queue.
#[derive(Debug)]
pub struct ChatStream {
    response: HttpResponse,
    decoder: StreamDecoder,
    backend: BackendApi,
    model: String,
    deadline: Instant,
    timeout: Duration,
    /// How long a stream that has begun may be silent.
    idle_timeout: Duration,
    queue_position: usize,
    /// A backend that sends without end must not keep others waiting.
    work_slice: WorkSlice,
    /// Bytes that were read since the slice was looked at.
    unspent_bytes: usize,
    /// What was read before the stream was handed out.
    prefetched: Option<PrefetchedEvents>,
    health: Arc<BackendHealth>,
    _permit: QueuePermit,
    recorder: ModelRequestRecorder,
}

/// The first events of a stream, and whether more follow.
type PrefetchedEvents = (Vec<ChatEvent>, Result<bool, Error>);

/// What is being read, and what it means so far.
#[derive(Debug)]
struct StreamDecoder {
    /// Events of a stream; `None` for one document.
    sse_reader: Option<SseReader>,
    response_decoder: ResponseDecoder,
    state: ChatStreamState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatStreamState {
    Open,
    /// The last event has arrived; only the end of the body is missing.
    Complete,
    Ended,
}

/// What a stream is made of.
pub(super) struct ChatStreamParts {
    pub(super) response: HttpResponse,
    /// An event stream, or one document.
    pub(super) is_event_stream: bool,
    pub(super) decoder: ResponseDecoder,
    pub(super) backend: BackendApi,
    pub(super) model: String,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) health: Arc<BackendHealth>,
    pub(super) permit: QueuePermit,
    pub(super) recorder: ModelRequestRecorder,
}

/// Whether a response is an event stream or one document; neither is a violation.
pub(super) fn is_event_stream(response: &HttpResponse) -> Result<bool, ProtocolViolation> {
    let content_type = response.header(&CONTENT_TYPE).unwrap_or_default();
    match content_type.split(';').next().unwrap_or_default().trim() {
        "text/event-stream" => Ok(true),
        "application/json" | "" => Ok(false),
        _ => Err("neither JSON nor an event stream"),
    }
}

impl ChatStream {
    pub(super) fn new(parts: ChatStreamParts) -> Self {
        let sse_reader = parts
            .is_event_stream
            .then(|| SseReader::with_max_event_bytes(MAX_EVENT_BYTES));
        Self {
            response: parts.response,
            decoder: StreamDecoder {
                sse_reader,
                response_decoder: parts.decoder,
                state: ChatStreamState::Open,
            },
            backend: parts.backend,
            model: parts.model,
            deadline: parts.deadline,
            timeout: parts.timeout,
            idle_timeout: parts.idle_timeout,
            queue_position: parts.permit.initial_position,
            work_slice: WorkSlice::default(),
            unspent_bytes: 0,
            prefetched: None,
            health: parts.health,
            _permit: parts.permit,
            recorder: parts.recorder,
        }
    }

    /// The position in the queue that the request had when it arrived; 0 if it did
    /// not wait.
    pub fn queue_position(&self) -> usize {
        self.queue_position
    }

    /// What the model wrote so far, if the options asked to keep it.
    pub fn take_written(&mut self) -> Option<String> {
        self.decoder.response_decoder.take_written()
    }

    /// Adds the next events to `out`, all that have arrived at once; false at the end.
    /// After an error nothing follows.
    pub async fn decode_data(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        let before = out.len();
        let read = match self.prefetched.take() {
            Some((events, read)) => {
                out.extend(events);
                read
            }
            None if self.decoder.state == ChatStreamState::Ended => return Ok(false),
            None => self.read_events(out).await,
        };
        if let Err(error) = &read {
            self.decoder.state = ChatStreamState::Ended;
            // What was held back is not lost.
            self.decoder.response_decoder.abort(out);
            if error.is_backend_failure() {
                self.health.record_failure(None);
            }
        }
        self.recorder.observe(&out[before..], &read);
        read
    }

    /// Reads until the response has begun, for the next reader. Fails if it breaks before,
    /// when another backend can still be asked.
    pub(super) async fn prefetch(&mut self) -> Result<(), Error> {
        let mut events = Vec::new();
        let read = loop {
            let read = self.read_events(&mut events).await;
            if !events.is_empty() || !matches!(read, Ok(true)) {
                break read;
            }
        };
        match read {
            Err(error) if events.is_empty() => Err(error),
            read => {
                self.prefetched = Some((events, read));
                Ok(())
            }
        }
    }

    /// Gives up a response that has not begun.
    pub(super) fn into_recorder(self) -> ModelRequestRecorder {
        self.recorder
    }

    async fn read_events(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        if self.decoder.sse_reader.is_some() {
            self.read_event_stream(out).await
        } else {
            self.read_document(out).await
        }
    }

    /// Reads to the end.
    pub async fn collect_response(mut self) -> Result<ChatResponse, Error> {
        let mut response = ChatResponse::default();
        let mut events = Vec::new();
        while self.decode_data(&mut events).await? {
            for event in events.drain(..) {
                response.apply_event(event);
            }
        }
        for event in events {
            response.apply_event(event);
        }
        Ok(response)
    }

    async fn read_event_stream(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        // Before anything is read, so that cancelling here loses nothing.
        self.work_slice
            .spend(mem::take(&mut self.unspent_bytes))
            .await;
        let limit = match self.decoder.state {
            ChatStreamState::Complete => CLOSE_TIMEOUT,
            _ => self.idle_timeout.min(self.time_left()),
        };
        let chunk = match with_timeout(limit, self.response.chunk()).await {
            Some(chunk) => chunk,
            None if self.decoder.state == ChatStreamState::Complete => return Ok(false),
            None => return Err(self.timeout_error()),
        };
        let mut next = Some(chunk);
        let mut chunks = 0;
        while let Some(chunk) = next {
            let Some(chunk) = chunk else {
                return self.finish_body(out).map(|()| false);
            };
            self.decode_chunk(chunk, out)?;
            chunks += 1;
            let goes_on = chunks < MAX_CHUNKS_PER_READ && self.unspent_bytes < MAX_BYTES_PER_READ;
            next = if goes_on {
                self.response.chunk().now_or_never()
            } else {
                None
            };
        }
        Ok(true)
    }

    fn decode_chunk(
        &mut self,
        chunk: Result<Bytes, maru_http::Error>,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), Error> {
        let taken = match chunk {
            Ok(chunk) => {
                self.unspent_bytes += chunk.len();
                self.decoder.decode_chunk(&chunk, self.backend, out)
            }
            Err(_) if self.decoder.state == ChatStreamState::Complete => Ok(()),
            Err(source) => {
                let model = self.model.clone();
                return Err(Error::Unreachable { model, source });
            }
        };
        taken.map_err(|what| self.invalid_response(what))
    }

    fn finish_body(&mut self, out: &mut Vec<ChatEvent>) -> Result<(), Error> {
        let ended = self.decoder.finish(self.backend, out);
        ended.map_err(|what| self.invalid_response(what))
    }

    async fn read_document(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        let body = with_timeout(self.time_left(), self.response.bytes()).await;
        let body = body.ok_or_else(|| self.timeout_error())?;
        let body = body.map_err(|source| Error::Unreachable {
            model: self.model.clone(),
            source,
        })?;
        self.decoder.state = ChatStreamState::Ended;
        let decoder = &mut self.decoder.response_decoder;
        match decode(self.backend, &body, decoder, out) {
            Ok(true) => decoder.complete(out),
            Ok(false) => return Err(self.invalid_response("a response without a choice")),
            Err(what) => return Err(self.invalid_response(what)),
        }
        Ok(false)
    }

    fn invalid_response(&self, what: ProtocolViolation) -> Error {
        let model = self.model.clone();
        Error::InvalidResponse { model, what }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Names the limit that ended the wait.
    fn timeout_error(&self) -> Error {
        let model = self.model.clone();
        if self.time_left().is_zero() {
            let limit = self.timeout;
            Error::Timeout { model, limit }
        } else {
            let limit = self.idle_timeout;
            Error::Silent { model, limit }
        }
    }
}

impl StreamDecoder {
    fn decode_chunk(
        &mut self,
        chunk: &[u8],
        backend: BackendApi,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        let Self {
            sse_reader: Some(events),
            response_decoder: decoder,
            state,
        } = self
        else {
            return Ok(());
        };
        let mut wrong = None;
        let fed = events.for_each_event(chunk, |event| {
            if wrong.is_none() {
                wrong = decode_event(event.data, backend, decoder, state, out).err();
            }
        });
        fed.map_err(|_| "an event that is too long")?;
        wrong.map_or(Ok(()), Err)
    }

    /// The body has ended; that is an error unless the backend sent a finish reason.
    fn finish(
        &mut self,
        backend: BackendApi,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        let mut wrong = None;
        if let Some(mut events) = self.sse_reader.take() {
            let (decoder, state) = (&mut self.response_decoder, &mut self.state);
            events.finish(|event| {
                wrong = decode_event(event.data, backend, decoder, state, out).err();
            });
        }
        let complete =
            self.state == ChatStreamState::Complete || self.response_decoder.is_finished();
        self.state = ChatStreamState::Ended;
        if !complete {
            return Err(wrong.unwrap_or("a stream that ended early"));
        }
        self.response_decoder.complete(out);
        Ok(())
    }
}

/// One event of a stream.
fn decode_event(
    data: &[u8],
    backend: BackendApi,
    decoder: &mut ResponseDecoder,
    state: &mut ChatStreamState,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    if *state == ChatStreamState::Complete || data.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    if data == b"[DONE]" {
        *state = ChatStreamState::Complete;
        decoder.complete(out);
        return Ok(());
    }
    decode(backend, data, decoder, out).map(|_| ())
}

fn decode(
    backend: BackendApi,
    data: &[u8],
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<bool, ProtocolViolation> {
    match backend {
        BackendApi::Openai => openai::decode_response(data, decoder, out),
        BackendApi::Gemini => gemini::decode_response(data, decoder, out),
    }
}
