//! Batches, which only 2025-03-26 has.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::{Arrival, exchange::Exchange, headers::Accepts, reply, take};
use crate::{
    downstream::dispatch::Owned,
    mcp::{Invalid, Message, RpcError, Version, code, error},
    queue,
};

const MAX: usize = 100;

pub(super) async fn post(arrival: Arrival, version: Option<Version>, text: &str) -> Response {
    let refuse = |why: &'static str| reply::refuse(StatusCode::BAD_REQUEST, why);
    if version.is_some_and(|it| it != Version::V2025_03_26) {
        return refuse("batches exist in 2025-03-26 only");
    }
    let session = match arrival.session(version) {
        Ok(session) => session,
        Err(refusal) => return refusal,
    };
    if session.version() != Version::V2025_03_26 {
        return refuse("batches exist in 2025-03-26 only");
    }
    let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(text) else {
        return refuse("a batch must be an array of messages");
    };
    if parts.is_empty() || parts.len() > MAX {
        return refuse("a batch must have 1 to 100 messages");
    }
    let mut requests = Vec::new();
    let mut refused = Vec::new();
    for part in parts {
        match Message::read(part.get()) {
            Err(Invalid { id, error: why }) => refused.push(error(id.as_ref(), &why)),
            Ok(Message::Request(request)) if request.method == "initialize" => {
                let why = "initialize cannot be part of a batch";
                let why = RpcError::new(code::INVALID_REQUEST, why);
                refused.push(error(Some(&request.id), &why));
            }
            Ok(Message::Request(request)) => requests.push(Owned::new(&request)),
            Ok(message) => take(&session, &message),
        }
    }
    if requests.is_empty() && refused.is_empty() {
        return reply::accepted();
    }
    // The answer is one array, so nothing can be said on the way.
    let accepts = Accepts {
        json: true,
        events: false,
    };
    let (out, messages) = queue::channel();
    let (engine, answering, sender) = (
        Arc::clone(&arrival.engine),
        Arc::clone(&session),
        out.clone(),
    );
    let work = async move {
        let answers = requests
            .iter()
            .map(|it| engine.answer(&answering, it, &sender));
        let answers = join_all(answers).await.into_iter().flatten().chain(refused);
        let text = answers.collect::<Vec<_>>().join(",");
        Some((StatusCode::OK, format!("[{text}]")))
    };
    let session = Some(session);
    let engine = arrival.engine;
    Exchange {
        engine,
        accepts,
        session,
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}
