//! A request from its body to its response.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::Response,
};
use serde_json::Value;

use super::{
    super::{
        HubState,
        body::{self, RequestMemory},
    },
    ApiError, ClientApi, ParsedRequest,
    agent_models::{self, AGENT_MODEL_PREFIX},
    call_text::CallOutput,
    client_mode,
    response_stream::{self, with_queue_position},
};
use maru_auth::Principal;
use maru_downstream::http::{check_content_headers, reply};
use maru_llm::{ChatRequestOptions, ChatStream};
use maru_runtime::tasks::run_parser;

/// Longer than any setting; the model's own limit is shorter.
pub(super) const MAX_CHAT_DURATION: Duration = Duration::from_secs(3600);

/// The route of an API.
pub(in super::super) async fn post<A: ClientApi>(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let principal = request.extensions().get::<Principal>();
    let principal = principal
        .expect("the router authenticates every request")
        .clone();
    let (parts, body) = request.into_parts();
    let parsed = read_request(&hub, &parts, body, A::parse).await;
    let response = match parsed {
        Ok(parsed) => respond(&hub, &principal, &parts.headers, parsed).await,
        Err(error) => Err(error),
    };
    response.unwrap_or_else(ApiError::into_response::<A>)
}

/// Reads the body of a request as JSON and parses that; a large one on a blocking thread.
pub(in super::super) async fn read_request<T: Send + 'static>(
    hub: &HubState,
    head: &Parts,
    body: axum::body::Body,
    parse: impl FnOnce(Value) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let rejected = |(status, message): (StatusCode, String)| ApiError::rejected(status, message);
    check_content_headers(&head.headers)
        .map_err(|(status, message)| ApiError::rejected(status, message))?;
    let memory = RequestMemory::of(&head.extensions);
    let bytes = body::collect(&memory, body, hub.max_body_bytes()).await;
    let bytes = bytes.map_err(rejected)?;
    let length = bytes.len();
    let value = body::parse_json(&memory, bytes).await.map_err(rejected)?;
    run_parser(length, move || parse(value)).await
}

async fn respond<A: ClientApi>(
    hub: &Arc<HubState>,
    principal: &Principal,
    headers: &HeaderMap,
    mut parsed: ParsedRequest<A>,
) -> Result<Response, ApiError> {
    if let Some(body) = parsed.api.response_without_model() {
        let name = &parsed.request.model;
        let model = name.strip_prefix(AGENT_MODEL_PREFIX).unwrap_or(name);
        if !hub.models.current().serves(model) {
            return Err(ApiError::from(&maru_llm::Error::UnknownModel(name.clone())));
        }
        return Ok(reply::json(StatusCode::OK, body));
    }
    let request = &mut parsed.request;
    let mode = client_mode::choose_mode(hub, principal, headers, &request.model)?;
    if let Some(model) = request.model.strip_prefix(AGENT_MODEL_PREFIX) {
        let model = model.to_owned();
        return agent_models::respond(hub, principal, parsed, model).await;
    }
    let output = if request.text_prompt.is_some() {
        CallOutput::ToolCalls
    } else {
        client_mode::apply_mode(hub, principal, mode, request)
    };
    if parsed.stream {
        response_stream::respond(hub, principal, parsed, output).await
    } else {
        tokio::select! {
            response = respond_whole(hub, principal, parsed, &output) => response,
            () = hub.agent.stopping() => Err(ApiError::stopping()),
        }
    }
}

async fn respond_whole<A: ClientApi>(
    hub: &HubState,
    principal: &Principal,
    parsed: ParsedRequest<A>,
    output: &CallOutput,
) -> Result<Response, ApiError> {
    let options = ChatRequestOptions::unstreamed(principal.name(), MAX_CHAT_DURATION);
    let models = hub.models.current();
    let stream = models.start_chat(parsed.request, &options).await;
    let position = stream.as_ref().map_or(0, ChatStream::queue_position);
    let response = match stream {
        Ok(stream) => stream.collect_response().await,
        Err(error) => Err(error),
    };
    let mut response = response.map_err(|error| ApiError::from(&error))?;
    output.apply(&mut response);
    let body = parsed.api.response_body(response);
    Ok(with_queue_position(
        reply::json(StatusCode::OK, body),
        position,
    ))
}
