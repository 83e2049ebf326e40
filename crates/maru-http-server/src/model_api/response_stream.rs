//! Streamed responses: the client's reads drive the backend's stream, without a task in
//! between.

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};
use futures_util::stream;
use maru_runtime::tasks::with_timeout;
use tokio::{sync::watch, time};

use super::{
    super::HubState, ApiError, ClientApi, ParsedRequest, call_text::CallOutput,
    endpoint::MAX_CHAT_DURATION, response_sequence::ResponseSequence,
};
use maru_auth::Principal;
use maru_downstream::http::stream_with_ping;
use maru_llm::{self as llm, ChatEvent, ChatRequestOptions, ChatStream};

static QUEUE_POSITION_HEADER: HeaderName = HeaderName::from_static("x-maru-queue-place");
/// After so long in the queue a stream begins and reports its position.
const QUEUE_NOTICE_DELAY: Duration = Duration::from_secs(2);
/// How often the position is reported.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);

type OpeningStream = Pin<Box<dyn Future<Output = Result<ChatStream, llm::Error>> + Send>>;
/// Completes when streams have to end because the hub stops.
type HubStopping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Asks the model, and streams its response.
pub(super) async fn respond<A: ClientApi>(
    hub: &Arc<HubState>,
    principal: &Principal,
    parsed: ParsedRequest<A>,
    output: CallOutput,
) -> Result<Response, ApiError> {
    let mut options = ChatRequestOptions::streamed(principal.name(), MAX_CHAT_DURATION);
    // A call in the text is written when it is complete.
    options.stream_arguments = matches!(output, CallOutput::ToolCalls);
    let mut position = options.queue_position.subscribe();
    let keep_alive = hub.engine.limits().keep_alive();
    let writer = StreamWriter::new(parsed.api, output);
    let stopping: HubStopping = Box::pin(hub.agent.stopping());
    let hub = Arc::clone(hub);
    let mut opening: OpeningStream = Box::pin(async move {
        hub.models
            .current()
            .start_chat(parsed.request, &options)
            .await
    });
    let opened = match with_timeout(QUEUE_NOTICE_DELAY, &mut opening).await {
        Some(opened) => Some(opened),
        // Behind others, the client wants to know its position.
        None if *position.borrow_and_update() > 0 => None,
        // The stream begins before the model answers where a comment is due, which keeps
        // it alive. An error then comes as an event; sooner, it has a status.
        None => with_timeout(keep_alive, &mut opening).await,
    };
    let (phase, position) = match opened {
        Some(opened) => {
            let stream = opened.map_err(|error| ApiError::from(&error))?;
            let position = stream.queue_position();
            (ResponsePhase::Open(Box::new(stream)), position)
        }
        None => (ResponsePhase::Waiting(opening, position), 0),
    };
    let body = ResponseBody {
        phase,
        writer,
        events: Vec::new(),
    };
    Ok(with_queue_position(
        body.into_response(stopping, keep_alive),
        position,
    ))
}

/// A response with the position that its request had in the queue.
pub(super) fn with_queue_position(mut response: Response, position: usize) -> Response {
    if position > 0 {
        response
            .headers_mut()
            .insert(QUEUE_POSITION_HEADER.clone(), HeaderValue::from(position));
    }
    response
}

/// Writes the events of a response in the form of an API.
#[derive(Debug)]
pub(super) struct StreamWriter<A> {
    api: A,
    sequence: ResponseSequence,
}

impl<A: ClientApi> StreamWriter<A> {
    pub(super) fn new(api: A, output: CallOutput) -> Self {
        Self {
            api,
            sequence: ResponseSequence::new(output),
        }
    }

    /// What a client skips, for a silent stream.
    pub(super) fn keep_alive(&self) -> String {
        self.api.keep_alive().into_owned()
    }

    pub(super) fn write(&mut self, events: &mut Vec<ChatEvent>, out: &mut String) {
        let Self { api, sequence } = self;
        sequence.push(events, |piece| api.write_piece(piece, out));
    }

    pub(super) fn write_end(&mut self, out: &mut String) {
        let Self { api, sequence } = self;
        let end = sequence.finish(|piece| api.write_piece(piece, out));
        api.write_end(end, out);
    }

    pub(super) fn write_error(&mut self, error: &ApiError, out: &mut String) {
        self.api.write_error(error, out);
    }
}

/// How far a response is.
enum ResponsePhase {
    /// In the queue, or at a model that has not answered.
    Waiting(OpeningStream, watch::Receiver<usize>),
    Open(Box<ChatStream>),
    /// Everything is written.
    Closing(Box<ChatStream>),
    Ended,
}

/// A body that is read from the backend as the client reads it.
struct ResponseBody<A> {
    phase: ResponsePhase,
    writer: StreamWriter<A>,
    /// Kept to be filled again.
    events: Vec<ChatEvent>,
}

impl<A: ClientApi> ResponseBody<A> {
    /// When the hub stops, the body ends in an error.
    fn into_response(self, stopping: HubStopping, keep_alive: Duration) -> Response {
        let ping = self.writer.keep_alive();
        let texts = stream::unfold((self, stopping), |(mut body, mut stopping)| async move {
            let text = tokio::select! {
                biased;
                text = body.next_text() => text?,
                () = &mut stopping => body.fail(&ApiError::stopping(), String::new()),
            };
            Some((text, (body, stopping)))
        });
        stream_with_ping(A::STREAM_TYPE, texts, keep_alive, ping)
    }

    /// The next text of the body; `None` at its end.
    async fn next_text(&mut self) -> Option<String> {
        match &mut self.phase {
            ResponsePhase::Ended => None,
            ResponsePhase::Closing(stream) => {
                // Read to its end, the connection can carry the next request.
                let _ = stream.decode_data(&mut self.events).await;
                self.phase = ResponsePhase::Ended;
                None
            }
            ResponsePhase::Waiting(..) => Some(self.wait_for_start().await),
            ResponsePhase::Open(_) => Some(self.read_stream().await),
        }
    }

    /// Reports the position in the queue until the response begins. A request that waits
    /// only for its model has none.
    async fn wait_for_start(&mut self) -> String {
        let mut text = String::new();
        let ResponsePhase::Waiting(opening, position) = &mut self.phase else {
            return text;
        };
        let current = *position.borrow_and_update();
        if current > 0 {
            A::write_queue_position(current, &mut text);
        }
        let opened = tokio::select! {
            biased;
            opened = opening => opened,
            _moved = position.changed() => return text,
            () = time::sleep(QUEUE_NOTICE_INTERVAL) => return text,
        };
        match opened {
            Ok(stream) => {
                self.phase = ResponsePhase::Open(Box::new(stream));
                text
            }
            Err(error) => self.fail(&ApiError::from(&error), String::new()),
        }
    }

    async fn read_stream(&mut self) -> String {
        let mut text = String::new();
        loop {
            let ResponsePhase::Open(stream) = &mut self.phase else {
                return text;
            };
            let read = stream.decode_data(&mut self.events).await;
            self.writer.write(&mut self.events, &mut text);
            match read {
                Ok(true) if self.writer.sequence.is_finished() => {
                    self.writer.write_end(&mut text);
                    let phase = std::mem::replace(&mut self.phase, ResponsePhase::Ended);
                    if let ResponsePhase::Open(stream) = phase {
                        self.phase = ResponsePhase::Closing(stream);
                    }
                    return text;
                }
                Ok(true) => {
                    // So far it only shows that there is a response.
                    self.writer.api.write_start(&mut text);
                    if !text.is_empty() {
                        return text;
                    }
                }
                Ok(false) => {
                    self.writer.write_end(&mut text);
                    self.phase = ResponsePhase::Ended;
                    return text;
                }
                Err(error) => return self.fail(&ApiError::from(&error), text),
            }
        }
    }

    /// Ends the body with an error behind `text`.
    fn fail(&mut self, error: &ApiError, mut text: String) -> String {
        self.writer.write_error(error, &mut text);
        self.phase = ResponsePhase::Ended;
        text
    }
}
