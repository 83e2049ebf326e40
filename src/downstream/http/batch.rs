//! Batches, which only 2025-03-26 has.

use axum::{http::StatusCode, response::Response};
use futures_util::future::join_all;
use serde_json::value::RawValue;

use super::{Arrival, reply, take};
use crate::{
    downstream::dispatch::Owned,
    mcp::{Invalid, Message, RpcError, Version, code, error},
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
    let answers = join_all(parts.into_iter().map(|part| async {
        match Message::read(part.get()) {
            Err(Invalid { id, error: why }) => Some(error(id.as_ref(), &why)),
            Ok(Message::Request(request)) if request.method == "initialize" => {
                let why = RpcError::new(
                    code::INVALID_REQUEST,
                    "initialize cannot be part of a batch",
                );
                Some(error(Some(&request.id), &why))
            }
            Ok(Message::Request(request)) => {
                arrival
                    .engine
                    .answer(&session, &Owned::new(&request), &session.out)
                    .await
            }
            Ok(message) => {
                take(&session, &message);
                None
            }
        }
    }));
    let answers: Vec<String> = answers.await.into_iter().flatten().collect();
    match answers.is_empty() {
        true => reply::accepted(),
        false => reply::json(StatusCode::OK, format!("[{}]", answers.join(","))),
    }
}
