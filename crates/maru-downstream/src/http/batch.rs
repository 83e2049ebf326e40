//! Batches, which only 2025-03-26 has.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use futures_util::future::join_all;
use maru_protocol::{InvalidMessage, ProtocolVersion, RpcError, RpcMessage, code, write_error};
use maru_runtime::{memory::HeldText, message_queue};
use serde_json::value::RawValue;

use super::{StreamableRequest, exchange::HttpExchange, headers::AcceptedTypes, reply};
use crate::{owned_request::OwnedRequest, session::SESSION_BUSY};

const MAX_BATCH_MESSAGES: usize = 100;

pub(super) async fn post(
    http_request: StreamableRequest,
    version: Option<ProtocolVersion>,
    text: &str,
) -> Response {
    let refuse = |why: &'static str| reply::reject(StatusCode::BAD_REQUEST, why);
    if version.is_some_and(|it| it != ProtocolVersion::V2025_03_26) {
        return refuse("batches exist in 2025-03-26 only");
    }
    let session = match http_request.session(version).await {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    if session.version() != ProtocolVersion::V2025_03_26 {
        return refuse("batches exist in 2025-03-26 only");
    }
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return refuse("a batch must be an array of messages");
    };
    if parts.is_empty() || parts.len() > MAX_BATCH_MESSAGES {
        return refuse("a batch must have 1 to 100 messages");
    }
    let mut requests = Vec::new();
    let mut refused = Vec::new();
    for part in parts {
        match RpcMessage::parse(part.get()) {
            Err(InvalidMessage { id, error: why }) => refused.push(write_error(id.as_ref(), &why)),
            Ok(RpcMessage::Request(request)) if request.method == "initialize" => {
                let why = "initialize cannot be part of a batch";
                let why = RpcError::new(code::INVALID_REQUEST, why);
                refused.push(write_error(Some(&request.id), &why));
            }
            Ok(RpcMessage::Request(request)) => {
                match OwnedRequest::new(&http_request.caller, &request).await {
                    Ok(owned) => requests.push(owned),
                    Err(error) => refused.push(write_error(Some(&request.id), &error)),
                }
            }
            Ok(message) => {
                let engine = &http_request.engine;
                let spent = engine.spend_one_way(&session, &message, part.get().len());
                if let Err(error) = spent.await {
                    return reply::rpc_error(StatusCode::TOO_MANY_REQUESTS, None, &error);
                }
                // The others of the batch are still answered.
                let _gone = engine.handle_one_way(&session, &message, part.get()).await;
            }
        }
    }
    if requests.is_empty() && refused.is_empty() {
        return reply::accepted();
    }
    // The response is one array, so no other messages can be sent before it.
    let accepts = AcceptedTypes {
        json: true,
        events: false,
    };
    let (out, messages) = message_queue::channel();
    let (engine, batch_session, sender) = (
        Arc::clone(&http_request.engine),
        Arc::clone(&session),
        out.clone(),
    );
    let caller = http_request.caller.principal.shared_name();
    let work = async move {
        let answers = requests
            .iter()
            .map(|it| engine.handle_request(&batch_session, it, &sender));
        let text = {
            let answers = join_all(answers).await;
            let answers = answers.iter().flatten().map(|it| &**it);
            let all: Vec<&str> = answers.chain(refused.iter().map(String::as_str)).collect();
            format!("[{}]", all.join(","))
        };
        Some(match HeldText::new(&caller, text) {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => {
                let error = RpcError::new(SESSION_BUSY, error.to_string());
                (
                    StatusCode::SERVICE_UNAVAILABLE,
                    write_error(None, &error).into(),
                )
            }
        })
    };
    let session = Some(session);
    let engine = http_request.engine;
    HttpExchange {
        engine,
        accepts,
        session,
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}
