//! `POST /api/embed`, and `/api/embeddings` of older clients.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        HubState,
        model_api::{ApiError, read_request},
        openai::embed_texts,
    },
    OllamaChatWriter,
};
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_retrieval::EmbeddedTexts;

const MAX_INPUTS: usize = 2048;

/// `POST /api/embed`.
pub(in super::super) async fn embed(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    respond(&hub, request, "input", |model, embedded, took| {
        json!({
            "model": model,
            "embeddings": embedded.vectors,
            "total_duration": took,
            "load_duration": 0,
            "prompt_eval_count": embedded.tokens,
        })
    })
    .await
}

/// `POST /api/embeddings`.
pub(in super::super) async fn embed_one(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    respond(&hub, request, "prompt", |_, embedded, _| {
        json!({"embedding": embedded.vectors.into_iter().next().unwrap_or_default()})
    })
    .await
}

/// Embeds the texts in `member`, and writes them with `shape`.
async fn respond(
    hub: &HubState,
    request: Request,
    member: &str,
    shape: impl FnOnce(&str, EmbeddedTexts, u64) -> Value,
) -> Response {
    let started_at = Instant::now();
    let (parts, body) = request.into_parts();
    let caller = parts
        .extensions
        .get::<Principal>()
        .map_or("local", Principal::name);
    let embedded = async {
        let body = read_request(hub, &parts, body, Ok).await?;
        embed_texts(hub, caller, &parse_texts(&body, member)?).await
    };
    match embedded.await {
        Ok(embedded) => {
            let took = u64::try_from(started_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let model = hub.data.index.embedder().model().to_owned();
            reply::json(StatusCode::OK, shape(&model, embedded, took).to_string())
        }
        Err(error) => error.into_response::<OllamaChatWriter>(),
    }
}

fn parse_texts(body: &Value, member: &str) -> Result<Vec<String>, ApiError> {
    let text = |it: &Value| it.as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    let texts: Option<Vec<String>> = match &body[member] {
        Value::Array(given) if (1..=MAX_INPUTS).contains(&given.len()) => {
            given.iter().map(text).collect()
        }
        one => text(one).map(|it| vec![it]),
    };
    texts.ok_or_else(|| {
        let reason = format!("{member} must be a text, or a list of 1 to {MAX_INPUTS} texts");
        ApiError::invalid(member, reason)
    })
}
