//! `POST /v1/chat/completions`: one direction, one stream, no task in between.

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use futures_util::stream;
use maru_runtime::tasks::with_timeout;
use tokio::{sync::watch, time};

use super::{
    super::{HubState, body},
    agent_models,
    chat_request::{self, ChatCompletionRequest},
    chunk::{ChunkWriter, completion_json},
    error::{self, OpenAiError},
    prompt_tools,
};
use crate::{
    auth::Principal,
    config::ClientMode,
    downstream::http::{KEEP_ALIVE_INTERVAL, check_content_headers, event_stream, reply},
    llm::{self, ChatEvent, ChatRequest, ChatRequestOptions, ChatStream, ChatTool},
    tools::{Caller, CatalogScope},
};

static CLIENT_MODE_HEADER: HeaderName = HeaderName::from_static("x-maru-client-mode");
static QUEUE_POSITION_HEADER: HeaderName = HeaderName::from_static("x-maru-queue-place");
/// Longer than any setting; the entry of the model says how long.
const MAX_CHAT_DURATION: Duration = Duration::from_secs(3600);
/// After so long in the queue a stream begins, and tells its place.
const QUEUE_NOTICE_DELAY: Duration = Duration::from_secs(2);
/// After so long more a stream begins without an answer, and comments keep it alive.
/// An error then comes as an event; sooner, it is told by the status.
const MAX_STATUS_DELAY: Duration = KEEP_ALIVE_INTERVAL;
/// How often the place is told.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);
/// Tools of our own that are offered in the mode `shell`.
const MAX_HUB_TOOLS: usize = 128;

type OpeningStream = Pin<Box<dyn Future<Output = Result<ChatStream, llm::Error>> + Send>>;

/// The route.
pub(in super::super) async fn post(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    let principal = request.extensions().get::<Principal>();
    let principal = principal
        .expect("the gate identifies every request")
        .clone();
    let (parts, body) = request.into_parts();
    handle(&hub, &principal, &parts.headers, body).await
}

async fn handle(
    hub: &Arc<HubState>,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let asked = match read_request(hub, headers, body).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let (mut asked, mode) = match choose_mode(hub, principal, headers, &asked.request.model) {
        Ok(mode) => (asked, mode),
        Err(bad) => return error::invalid_request_response(&bad),
    };
    if let Some(model) = asked
        .request
        .model
        .strip_prefix(agent_models::AGENT_MODEL_PREFIX)
    {
        let model = model.to_owned();
        return agent_models::handle(hub, principal, asked, &model).await;
    }
    match mode {
        ClientMode::Openai => (),
        ClientMode::Xml => {
            asked.request.described_tools =
                prompt_tools::find_prompt_tools(&asked.request.messages);
        }
        ClientMode::Shell if asked.request.tools.is_empty() => {
            asked.request.tools = hub_tools(hub, principal);
        }
        ClientMode::Shell => (),
    }
    if asked.stream {
        respond_stream(hub, asked, mode).await
    } else {
        respond_json(hub, asked.request, mode).await
    }
}

async fn read_request(
    hub: &HubState,
    headers: &HeaderMap,
    body: Body,
) -> Result<ChatCompletionRequest, Response> {
    let refused = |(status, why): (StatusCode, String)| error::rejection_response(status, &why);
    check_content_headers(headers)
        .map_err(|(status, why)| error::rejection_response(status, why))?;
    let bytes = body::collect(body, hub.max_body_bytes())
        .await
        .map_err(refused)?;
    let bad = |why: &str| {
        error::invalid_request_response(&OpenAiError {
            message: why.to_owned(),
            param: None,
        })
    };
    let text = maru_protocol::validate_json(&bytes).map_err(|why| bad(&why.to_string()))?;
    let body = serde_json::from_str(text).map_err(|_| bad("the body is not JSON"))?;
    chat_request::parse(body).map_err(|it| error::invalid_request_response(&it))
}

/// The header says how calls are written, or the model, or the caller.
fn choose_mode(
    hub: &HubState,
    principal: &Principal,
    headers: &HeaderMap,
    model: &str,
) -> Result<ClientMode, OpenAiError> {
    let Some(header) = headers.get(&CLIENT_MODE_HEADER) else {
        let by_caller = hub.chat().client_modes.get(principal.name()).copied();
        let by_model = hub.models.current().client_mode(model);
        return Ok(by_model.or(by_caller).unwrap_or_default());
    };
    match header.as_bytes() {
        b"openai" => Ok(ClientMode::Openai),
        b"xml" => Ok(ClientMode::Xml),
        b"shell" if hub.chat().allow_shell => Ok(ClientMode::Shell),
        b"shell" => Err(OpenAiError::new(
            CLIENT_MODE_HEADER.as_str(),
            "the mode shell is not allowed; see chat.allow_shell in the settings",
        )),
        _ => Err(OpenAiError::new(
            CLIENT_MODE_HEADER.as_str(),
            "the mode must be openai, xml or shell",
        )),
    }
}

/// What `maru call` can call.
fn hub_tools(hub: &HubState, principal: &Principal) -> Vec<ChatTool> {
    let snapshot = hub.engine.catalog().snapshot();
    let Ok(view) = snapshot.visible_to(&Caller::new(principal.clone(), CatalogScope::All)) else {
        return Vec::new();
    };
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(view.tools.json()).unwrap_or_default();
    let tool = |it: &serde_json::Value| ChatTool {
        name: it["name"].as_str().unwrap_or_default().to_owned(),
        prompt_name: None,
        description: it["description"].as_str().unwrap_or_default().to_owned(),
        parameters: it["inputSchema"].clone(),
        other: serde_json::Map::new(),
    };
    listed.iter().take(MAX_HUB_TOOLS).map(tool).collect()
}

async fn respond_json(hub: &HubState, request: ChatRequest, mode: ClientMode) -> Response {
    let model = request.model.clone();
    let models = hub.models.current();
    let stream = models
        .start_chat(request, &ChatRequestOptions::unstreamed(MAX_CHAT_DURATION))
        .await;
    let place = stream.as_ref().map_or(0, ChatStream::place);
    let answer = match stream {
        Ok(stream) => stream.collect_response().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(answer) => with_queue_position(
            reply::json(StatusCode::OK, completion_json(&model, mode, answer)),
            place,
        ),
        Err(error) => error::model_error_response(&error),
    }
}

async fn respond_stream(
    hub: &Arc<HubState>,
    asked: ChatCompletionRequest,
    mode: ClientMode,
) -> Response {
    let writer = ChunkWriter::new(&asked.request.model, mode, asked.include_usage);
    let wanted = ChatRequestOptions::streamed(MAX_CHAT_DURATION);
    let mut place = wanted.queue_position.subscribe();
    let hub = Arc::clone(hub);
    let mut opening: OpeningStream = Box::pin(async move {
        hub.models
            .current()
            .start_chat(asked.request, &wanted)
            .await
    });
    let opened = match with_timeout(QUEUE_NOTICE_DELAY, &mut opening).await {
        Some(opened) => opened,
        // Behind others, the client wants to know its place.
        None if *place.borrow_and_update() > 0 => {
            return phase_response(ChatStreamPhase::Waiting(opening, place, writer));
        }
        None => match with_timeout(MAX_STATUS_DELAY, &mut opening).await {
            Some(opened) => opened,
            None => return phase_response(ChatStreamPhase::Waiting(opening, place, writer)),
        },
    };
    match opened {
        Ok(stream) => {
            let place = stream.place();
            with_queue_position(
                phase_response(ChatStreamPhase::Open(Box::new(stream), writer)),
                place,
            )
        }
        Err(error) => error::model_error_response(&error),
    }
}

fn with_queue_position(mut response: Response, place: usize) -> Response {
    if place > 0 {
        response
            .headers_mut()
            .insert(QUEUE_POSITION_HEADER.clone(), HeaderValue::from(place));
    }
    response
}

/// How far a stream is.
enum ChatStreamPhase {
    /// In the queue.
    Waiting(OpeningStream, watch::Receiver<usize>, ChunkWriter),
    Open(Box<ChatStream>, ChunkWriter),
    /// Everything is said.
    Closing(Box<ChatStream>),
    Ended,
}

/// A response that is read from the backend as the client reads it.
fn phase_response(phase: ChatStreamPhase) -> Response {
    let start = (phase, Vec::new());
    event_stream(stream::unfold(start, |(phase, mut scratch)| async move {
        let (phase, text) = next_chunk(phase, &mut scratch).await?;
        Some((text, (phase, scratch)))
    }))
}

/// The next piece of the body; `None` at its end.
async fn next_chunk(
    phase: ChatStreamPhase,
    scratch: &mut Vec<ChatEvent>,
) -> Option<(ChatStreamPhase, String)> {
    let (mut stream, mut writer) = match phase {
        ChatStreamPhase::Ended => return None,
        ChatStreamPhase::Closing(mut stream) => {
            // Read to its end, the connection can carry the next request.
            let _ = stream.decode_data(scratch).await;
            return None;
        }
        ChatStreamPhase::Waiting(opening, place, writer) => {
            return Some(wait_in_queue(opening, place, writer).await);
        }
        ChatStreamPhase::Open(stream, writer) => (stream, writer),
    };
    let mut text = String::new();
    loop {
        let read = stream.decode_data(scratch).await;
        writer.write(scratch, &mut text);
        match read {
            Ok(true) if writer.is_finished() => {
                writer.write_end(&mut text);
                return Some((ChatStreamPhase::Closing(stream), text));
            }
            Ok(true) => {
                // It may say nothing as yet but that there is an answer.
                writer.write_first_chunk(&mut text);
                if !text.is_empty() {
                    return Some((ChatStreamPhase::Open(stream, writer), text));
                }
            }
            Ok(false) => {
                writer.write_end(&mut text);
                return Some((ChatStreamPhase::Ended, text));
            }
            Err(error) => {
                text.push_str(&error::model_error_event(&error));
                return Some((ChatStreamPhase::Ended, text));
            }
        }
    }
}

/// Tells the place until the answer begins. A request that waits for nobody but its
/// model has no place.
async fn wait_in_queue(
    mut opening: OpeningStream,
    mut place: watch::Receiver<usize>,
    writer: ChunkWriter,
) -> (ChatStreamPhase, String) {
    let told = match *place.borrow_and_update() {
        0 => String::new(),
        place => format!(": place {place} in the queue\n\n"),
    };
    tokio::select! {
        biased;
        opened = &mut opening => match opened {
            Ok(stream) => (ChatStreamPhase::Open(Box::new(stream), writer), told),
            Err(error) => (ChatStreamPhase::Ended, error::model_error_event(&error)),
        },
        _moved = place.changed() => (ChatStreamPhase::Waiting(opening, place, writer), told),
        () = time::sleep(QUEUE_NOTICE_INTERVAL) => (ChatStreamPhase::Waiting(opening, place, writer), told),
    }
}
