//! A response while it arrives, driven by its reader.

use std::{mem, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use hyper::{body::Bytes, header::CONTENT_TYPE};
use maru_http::HttpResponse;
use maru_protocol::SseReader;
use maru_runtime::{
    tasks::{WorkSlice, run_parser, with_timeout},
    traffic_budget::{TrafficBudget, TrafficRate},
};
use tokio::time::Instant;

use super::{
    ChatEvent, ChatResponse, Error, FinishReason, anthropic,
    backend_health::BackendHealth,
    decoder::ResponseDecoder,
    gemini,
    openai::{self, ProtocolViolation},
    queue::QueuePermit,
    reasoning_start::ReasoningStarts,
    request_recorder::ModelRequestRecorder,
};
use maru_config::BackendApi;

/// How long a stream may stay open after its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);
/// Comments and events without content that a backend may send per second. They keep a
/// stream from being silent, so nothing else would end one that consists of them.
const EMPTY_EVENT_RATE: TrafficRate = TrafficRate {
    messages: 10_000,
    bytes: 8 << 20,
};
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
    /// `None` while it decodes on a blocking thread.
    decoder: Option<Box<StreamDecoder>>,
    /// Whether everything was read.
    ended: bool,
    /// Until when the end of the body is waited for, once its last event has arrived.
    close_deadline: Option<Instant>,
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
    /// The backend's name of the model, and where the beginning of its response is recorded.
    backend_model: String,
    reasoning_starts: Arc<ReasoningStarts>,
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
    backend: BackendApi,
    /// The last event has arrived; only the end of the body is missing.
    is_complete: bool,
    empty_events: TrafficBudget,
}

/// What was read of the body.
enum BodyPart {
    Chunk(Bytes),
    /// The end of an event stream.
    End,
    Document(Bytes),
}

/// What a stream is made of.
pub(super) struct ChatStreamParts {
    pub(super) response: HttpResponse,
    /// An event stream, or one document.
    pub(super) is_event_stream: bool,
    pub(super) decoder: ResponseDecoder,
    pub(super) backend: BackendApi,
    /// The backend's name of the model.
    pub(super) backend_model: String,
    pub(super) reasoning_starts: Arc<ReasoningStarts>,
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
            decoder: Some(Box::new(StreamDecoder {
                sse_reader,
                response_decoder: parts.decoder,
                backend: parts.backend,
                is_complete: false,
                empty_events: TrafficBudget::new(EMPTY_EVENT_RATE),
            })),
            ended: false,
            close_deadline: None,
            model: parts.model,
            deadline: parts.deadline,
            timeout: parts.timeout,
            idle_timeout: parts.idle_timeout,
            queue_position: parts.permit.initial_position,
            work_slice: WorkSlice::default(),
            unspent_bytes: 0,
            prefetched: None,
            backend_model: parts.backend_model,
            reasoning_starts: parts.reasoning_starts,
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
        self.decoder.as_mut()?.response_decoder.take_written()
    }

    /// Adds the next events to `out`, all that have arrived at once; false at the end.
    /// After an error nothing follows, nor after this future was dropped while it decoded
    /// a large event.
    pub async fn decode_data(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        let before = out.len();
        let read = match self.prefetched.take() {
            Some((events, read)) => {
                out.extend(events);
                read
            }
            None if self.ended => return Ok(false),
            None => self.read_events(out).await,
        };
        if let Err(error) = &read {
            self.ended = true;
            // What was held back is not lost.
            if let Some(decoder) = &mut self.decoder {
                decoder.response_decoder.abort(out);
            }
            if error.is_backend_failure() {
                self.health.record_failure(None);
            }
        }
        self.record_reasoning_start(&out[before..]);
        self.recorder.observe(&out[before..], &read);
        read
    }

    /// At the end of the response: one that was cut off, or has only calls, may have begun
    /// in reasoning nevertheless.
    fn record_reasoning_start(&self, events: &[ChatEvent]) {
        let finish = events.iter().find_map(|it| match it {
            ChatEvent::Finish(reason) => Some(*reason),
            _ => None,
        });
        if let (Some(finish), Some(decoder)) = (finish, &self.decoder) {
            let started = decoder
                .response_decoder
                .text_parser()
                .started_in_reasoning();
            if started || finish == FinishReason::Stop {
                self.reasoning_starts.record(&self.backend_model, started);
            }
        }
    }

    /// Reads until the response has begun, for the next reader. Fails if it breaks before,
    /// when another backend can still be asked.
    pub(super) async fn prefetch(&mut self) -> Result<(), Error> {
        let has_begun = |this: &Self, new: &[ChatEvent]| {
            new.iter().any(ChatEvent::is_output) || this.holds_start_text()
        };
        let (events, read) = self.read_until(has_begun).await;
        match read {
            Err(error) if !events.iter().any(ChatEvent::is_output) => Err(error),
            read => {
                self.prefetched = Some((events, read));
                Ok(())
            }
        }
    }

    /// Reads until the response calls a tool, for the next reader; false if it is an answer
    /// without a call.
    pub(super) async fn prefetch_call(&mut self) -> bool {
        let is_call = |it: &ChatEvent| {
            matches!(
                it,
                ChatEvent::ToolCallStarted { .. } | ChatEvent::ToolCall(_)
            )
        };
        let has_call = |_: &Self, new: &[ChatEvent]| new.iter().any(is_call);
        let (events, read) = self.read_until(has_call).await;
        let is_answer = events.contains(&ChatEvent::Finish(FinishReason::Stop))
            && !events
                .iter()
                .any(|it| is_call(it) || matches!(it, ChatEvent::Refusal(_)));
        self.prefetched = Some((events, read));
        !is_answer
    }

    /// Reads until `is_enough` of the events that came last.
    async fn read_until(
        &mut self,
        is_enough: impl Fn(&Self, &[ChatEvent]) -> bool,
    ) -> PrefetchedEvents {
        let prefetched = self.prefetched.take();
        let (mut events, mut read) = prefetched.unwrap_or_else(|| (Vec::new(), Ok(true)));
        let mut seen = 0;
        while matches!(read, Ok(true)) && !is_enough(self, &events[seen..]) {
            seen = events.len();
            read = self.read_events(&mut events).await;
        }
        (events, read)
    }

    /// Whether the model writes what may be its reasoning, for which no limit of a
    /// beginning counts.
    fn holds_start_text(&self) -> bool {
        let decoder = self.decoder.as_ref();
        decoder.is_some_and(|it| it.response_decoder.text_parser().holds_start_text())
    }

    /// Gives up a response that has not begun.
    pub(super) fn into_recorder(self) -> ModelRequestRecorder {
        self.recorder
    }

    async fn read_events(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        match &self.decoder {
            Some(decoder) if decoder.sse_reader.is_some() => self.read_event_stream(out).await,
            Some(_) => self.read_document(out).await,
            None => Ok(false),
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
        let chunk = if self.is_complete() {
            let now = Instant::now();
            let deadline = *self.close_deadline.get_or_insert(now + CLOSE_TIMEOUT);
            // A timeout of zero would still read what a backend sends without pause.
            let left = deadline.checked_duration_since(now);
            match with_timeout(left.unwrap_or_default(), self.response.chunk()).await {
                Some(chunk) if left.is_some() => chunk,
                _ => return Ok(false),
            }
        } else {
            let limit = self.idle_timeout.min(self.time_left());
            if limit.is_zero() {
                // As above: a timeout of zero would still read.
                return Err(self.timeout_error());
            }
            let chunk = with_timeout(limit, self.response.chunk()).await;
            chunk.ok_or_else(|| self.timeout_error())?
        };
        let mut next = Some(chunk);
        let mut chunks = 0;
        while let Some(chunk) = next {
            let Some(chunk) = chunk else {
                self.decode(BodyPart::End, out).await?;
                return Ok(false);
            };
            match chunk {
                Ok(chunk) => {
                    self.unspent_bytes += chunk.len();
                    self.decode(BodyPart::Chunk(chunk), out).await?;
                }
                Err(_) if self.is_complete() => (),
                Err(source) => {
                    let model = self.model.clone();
                    return Err(Error::Unreachable { model, source });
                }
            }
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

    async fn read_document(&mut self, out: &mut Vec<ChatEvent>) -> Result<bool, Error> {
        let body = with_timeout(self.time_left(), self.response.bytes()).await;
        let body = body.ok_or_else(|| self.timeout_error())?;
        let body = body.map_err(|source| Error::Unreachable {
            model: self.model.clone(),
            source,
        })?;
        self.decode(BodyPart::Document(body), out).await?;
        Ok(false)
    }

    /// Decodes what was read, on a blocking thread if that may take long.
    async fn decode(&mut self, part: BodyPart, out: &mut Vec<ChatEvent>) -> Result<(), Error> {
        let Some(mut decoder) = self.decoder.take() else {
            return Ok(());
        };
        self.ended |= !matches!(part, BodyPart::Chunk(_));
        let bytes = decoder.bytes_to_decode(&part);
        let mut decoded = mem::take(out);
        let (decoder, decoded, result) = run_parser(bytes, move || {
            let result = decoder.decode(part, &mut decoded);
            (decoder, decoded, result)
        })
        .await;
        *out = decoded;
        self.decoder = Some(decoder);
        result.map_err(|what| self.invalid_response(what))
    }

    fn is_complete(&self) -> bool {
        self.decoder.as_ref().is_some_and(|it| it.is_complete)
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
    /// How many bytes may be looked at when `part` is decoded.
    fn bytes_to_decode(&self, part: &BodyPart) -> usize {
        let buffered = self
            .sse_reader
            .as_ref()
            .map_or(0, SseReader::buffered_bytes);
        let received = match part {
            BodyPart::Chunk(bytes) | BodyPart::Document(bytes) => bytes.len(),
            BodyPart::End => 0,
        };
        buffered + received + self.response_decoder.held_bytes()
    }

    fn decode(
        &mut self,
        part: BodyPart,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        match part {
            BodyPart::Chunk(chunk) => self.decode_chunk(&chunk, out),
            BodyPart::End => self.finish(out),
            BodyPart::Document(document) => self.decode_document(&document, out),
        }
    }

    fn decode_document(
        &mut self,
        document: &[u8],
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        if !decode_response(self.backend, document, &mut self.response_decoder, out)? {
            return Err("a response without a choice");
        }
        self.response_decoder.complete(out);
        Ok(())
    }

    fn decode_chunk(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        let Some(mut reader) = self.sse_reader.take() else {
            return Ok(());
        };
        let mut wrong = None;
        let (mut empty, mut empty_bytes) = (0, 0);
        let fed = reader.for_each_event(chunk, |event| {
            if wrong.is_none() {
                let before = out.len();
                wrong = self.decode_event(event.data, out).err();
                if out.len() == before {
                    empty += 1;
                    empty_bytes += event.data.len();
                }
            }
        });
        self.sse_reader = Some(reader);
        let ignored = fed.map_err(|_| "an event that is too long")?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        let spent = (self.empty_events).spend(ignored.lines + empty, ignored.bytes + empty_bytes);
        // After the last event, the end of the body is waited for only shortly.
        if spent.is_err() && !self.is_complete {
            return Err("more comments and empty events than a stream may have");
        }
        Ok(())
    }

    /// The body has ended; that is an error unless the backend sent a finish reason.
    fn finish(&mut self, out: &mut Vec<ChatEvent>) -> Result<(), ProtocolViolation> {
        let mut wrong = None;
        if let Some(mut reader) = self.sse_reader.take() {
            reader.finish(|event| wrong = self.decode_event(event.data, out).err());
        }
        if !self.is_complete && !self.response_decoder.is_finished() {
            return Err(wrong.unwrap_or("a stream that ended early"));
        }
        self.response_decoder.complete(out);
        Ok(())
    }

    /// Decodes one event of a stream.
    fn decode_event(
        &mut self,
        data: &[u8],
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ProtocolViolation> {
        if self.is_complete || data.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_complete = true;
            self.response_decoder.complete(out);
            return Ok(());
        }
        decode_response(self.backend, data, &mut self.response_decoder, out)?;
        if self.response_decoder.message.is_stopped {
            self.is_complete = true;
            self.response_decoder.complete(out);
        }
        Ok(())
    }
}

/// Decodes a whole response, or one event of a streamed one; whether it had a choice.
fn decode_response(
    backend: BackendApi,
    data: &[u8],
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<bool, ProtocolViolation> {
    match backend {
        BackendApi::Openai => openai::decode_response(data, decoder, out),
        BackendApi::Gemini => gemini::decode_response(data, decoder, out),
        BackendApi::Anthropic => anthropic::decode_response(data, decoder, out),
    }
}
