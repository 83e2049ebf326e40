//! `POST /v1/chat/completions`: the client's reads drive the backend's stream, without a
//! task in between.

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
    call_text::{CallOutput, ShellCommands},
    chat_request::{self, ChatCompletionRequest},
    chunk::{ChunkWriter, completion_json},
    error::{self, OpenAiError},
    prompt_tools,
};
use crate::{
    auth::Principal,
    config::ClientMode,
    downstream::http::{check_content_headers, event_stream, reply},
    llm::{self, ChatEvent, ChatRequest, ChatRequestOptions, ChatStream, ChatTool},
    tools::{Caller, CatalogScope},
};

static CLIENT_MODE_HEADER: HeaderName = HeaderName::from_static("x-maru-client-mode");
static QUEUE_POSITION_HEADER: HeaderName = HeaderName::from_static("x-maru-queue-place");
/// Longer than any setting; the model's own limit is shorter.
const MAX_CHAT_DURATION: Duration = Duration::from_secs(3600);
/// After so long in the queue a stream begins and reports its position.
const QUEUE_NOTICE_DELAY: Duration = Duration::from_secs(2);
/// How often the position is reported.
const QUEUE_NOTICE_INTERVAL: Duration = Duration::from_secs(5);
/// Tools of the hub that are offered in the mode `shell`.
const MAX_HUB_TOOLS: usize = 128;

type OpeningStream = Pin<Box<dyn Future<Output = Result<ChatStream, llm::Error>> + Send>>;
/// Completes when streams have to end because the hub stops.
type HubStopping = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The route.
pub(in super::super) async fn post(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    let principal = request.extensions().get::<Principal>();
    let principal = principal
        .expect("the router authenticates every request")
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
    let mut completion = match read_request(hub, headers, body).await {
        Ok(completion) => completion,
        Err(response) => return response,
    };
    let model = &completion.request.model;
    let mode = match choose_mode(hub, principal, headers, model) {
        Ok(mode) => mode,
        Err(error) => return error::invalid_request_response(&error),
    };
    if let Some(model) = model.strip_prefix(agent_models::AGENT_MODEL_PREFIX) {
        let model = model.to_owned();
        return agent_models::handle(hub, principal, completion, &model).await;
    }
    let request = &mut completion.request;
    let output = match mode {
        ClientMode::Openai => CallOutput::ToolCalls,
        ClientMode::Xml => {
            request.described_tools = prompt_tools::find_prompt_tools(&request.messages);
            CallOutput::Xml
        }
        ClientMode::Shell => {
            let tools = hub_tools(hub, principal);
            let names = tools.iter().map(|it| it.name.clone()).collect();
            if request.tools.is_empty() {
                request.tools = tools;
                request.tools.truncate(MAX_HUB_TOOLS);
            }
            CallOutput::Shell(ShellCommands {
                program: Arc::clone(&hub.cli_command),
                tools: Arc::new(names),
            })
        }
    };
    if completion.stream {
        respond_stream(hub, completion, output).await
    } else {
        respond_json(hub, completion.request, &output).await
    }
}

async fn read_request(
    hub: &HubState,
    headers: &HeaderMap,
    body: Body,
) -> Result<ChatCompletionRequest, Response> {
    check_content_headers(headers)
        .map_err(|(status, message)| error::rejection_response(status, message))?;
    let bytes = body::collect(body, hub.max_body_bytes())
        .await
        .map_err(|(status, message)| error::rejection_response(status, &message))?;
    let invalid = |message: &str| {
        error::invalid_request_response(&OpenAiError {
            message: message.to_owned(),
            param: None,
        })
    };
    let text = maru_protocol::validate_json(&bytes).map_err(|error| invalid(&error.to_string()))?;
    let body = serde_json::from_str(text).map_err(|_| invalid("the body is not JSON"))?;
    chat_request::parse(body).map_err(|it| error::invalid_request_response(&it))
}

/// The client mode: by the header, by the model, or by the caller.
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

/// The tools that the caller can call with `maru call`.
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
    listed.iter().map(tool).collect()
}

async fn respond_json(hub: &HubState, request: ChatRequest, output: &CallOutput) -> Response {
    tokio::select! {
        response = collect_response(hub, request, output) => response,
        () = hub.agent.stopping() => error::stopping_response(),
    }
}

async fn collect_response(hub: &HubState, request: ChatRequest, output: &CallOutput) -> Response {
    let model = request.model.clone();
    let models = hub.models.current();
    let stream = models
        .start_chat(request, &ChatRequestOptions::unstreamed(MAX_CHAT_DURATION))
        .await;
    let position = stream.as_ref().map_or(0, ChatStream::queue_position);
    let response = match stream {
        Ok(stream) => stream.collect_response().await,
        Err(error) => Err(error),
    };
    match response {
        Ok(response) => with_queue_position(
            reply::json(StatusCode::OK, completion_json(&model, output, response)),
            position,
        ),
        Err(error) => error::model_error_response(&error),
    }
}

async fn respond_stream(
    hub: &Arc<HubState>,
    completion: ChatCompletionRequest,
    output: CallOutput,
) -> Response {
    let mut options = ChatRequestOptions::streamed(MAX_CHAT_DURATION);
    // A call in the text is written when it is complete.
    options.stream_arguments = matches!(output, CallOutput::ToolCalls);
    let model = &completion.request.model;
    let writer = ChunkWriter::new(model, output, completion.include_usage);
    let mut position = options.queue_position.subscribe();
    let keep_alive = hub.engine.limits().keep_alive();
    let stopping: HubStopping = Box::pin(hub.agent.stopping());
    let hub = Arc::clone(hub);
    let mut opening: OpeningStream = Box::pin(async move {
        hub.models
            .current()
            .start_chat(completion.request, &options)
            .await
    });
    let opened = match with_timeout(QUEUE_NOTICE_DELAY, &mut opening).await {
        Some(opened) => opened,
        // Behind others, the client wants to know its position.
        None if *position.borrow_and_update() > 0 => {
            let waiting = ChatStreamPhase::Waiting(opening, position, writer);
            return phase_response(waiting, stopping, keep_alive);
        }
        // The stream begins before the model answers where a comment is due, which keeps
        // it alive. An error then comes as an event; sooner, it has a status.
        None => match with_timeout(keep_alive, &mut opening).await {
            Some(opened) => opened,
            None => {
                let waiting = ChatStreamPhase::Waiting(opening, position, writer);
                return phase_response(waiting, stopping, keep_alive);
            }
        },
    };
    match opened {
        Ok(stream) => {
            let position = stream.queue_position();
            with_queue_position(
                phase_response(
                    ChatStreamPhase::Open(Box::new(stream), writer),
                    stopping,
                    keep_alive,
                ),
                position,
            )
        }
        Err(error) => error::model_error_response(&error),
    }
}

fn with_queue_position(mut response: Response, position: usize) -> Response {
    if position > 0 {
        response
            .headers_mut()
            .insert(QUEUE_POSITION_HEADER.clone(), HeaderValue::from(position));
    }
    response
}

/// How far a stream is.
enum ChatStreamPhase {
    /// In the queue.
    Waiting(OpeningStream, watch::Receiver<usize>, ChunkWriter),
    Open(Box<ChatStream>, ChunkWriter),
    /// Everything is written.
    Closing(Box<ChatStream>),
    Ended,
}

/// A response whose body is read from the backend as the client reads it. When the hub
/// stops, it ends in an error.
fn phase_response(phase: ChatStreamPhase, stopping: HubStopping, keep_alive: Duration) -> Response {
    let start = (phase, Vec::new(), stopping);
    let events = stream::unfold(start, |(phase, mut scratch, mut stopping)| async move {
        if matches!(phase, ChatStreamPhase::Ended) {
            return None;
        }
        let (phase, text) = tokio::select! {
            biased;
            next = next_chunk(phase, &mut scratch) => next?,
            () = &mut stopping => (ChatStreamPhase::Ended, error::stopping_event()),
        };
        Some((text, (phase, scratch, stopping)))
    });
    event_stream(events, keep_alive)
}

/// The next chunk of the body; `None` at its end.
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
        ChatStreamPhase::Waiting(opening, position, writer) => {
            return Some(wait_in_queue(opening, position, writer).await);
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
                // So far it only shows that there is a response.
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

/// Reports the position in the queue until the response begins. A request that waits only
/// for its model has none.
async fn wait_in_queue(
    mut opening: OpeningStream,
    mut position: watch::Receiver<usize>,
    writer: ChunkWriter,
) -> (ChatStreamPhase, String) {
    let notice = match *position.borrow_and_update() {
        0 => String::new(),
        position => format!(": place {position} in the queue\n\n"),
    };
    tokio::select! {
        biased;
        opened = &mut opening => match opened {
            Ok(stream) => (ChatStreamPhase::Open(Box::new(stream), writer), notice),
            Err(error) => (ChatStreamPhase::Ended, error::model_error_event(&error)),
        },
        _moved = position.changed() => (ChatStreamPhase::Waiting(opening, position, writer), notice),
        () = time::sleep(QUEUE_NOTICE_INTERVAL) => (ChatStreamPhase::Waiting(opening, position, writer), notice),
    }
}
