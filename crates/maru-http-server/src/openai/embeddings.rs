//! `POST /v1/embeddings`: vectors of the configured embedder.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tracing::warn;

use super::{
    super::{
        HubState,
        model_api::{ApiError, read_request},
    },
    ChatCompletionWriter,
};
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_retrieval::EmbeddedTexts;

const MAX_INPUTS: usize = 2048;

struct EmbeddingsRequest {
    texts: Vec<String>,
    base64: bool,
    dimensions: Option<u64>,
}

/// The route.
pub(in super::super) async fn create(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let response = embed(&hub, request).await;
    response.unwrap_or_else(ApiError::into_response::<ChatCompletionWriter>)
}

async fn embed(hub: &HubState, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let principal = parts.extensions.get::<Principal>();
    let caller = principal.map_or("local", Principal::name);
    let asked = read_request(hub, &parts, body, |it| parse(&it)).await?;
    let embedder = hub.data.index.embedder();
    let EmbeddedTexts { vectors, tokens } = embed_texts(hub, caller, &asked.texts).await?;
    let length = vectors.first().map_or(0, Vec::len);
    if asked.dimensions.is_some_and(|it| it != length as u64) {
        let why = format!("dimensions must be {length}, which the embedder makes");
        return Err(ApiError::invalid("dimensions", why));
    }
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, it)| json!({"object": "embedding", "index": index, "embedding": vector_json(it, asked.base64)}))
        .collect();
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let answer = json!({"object": "list", "data": data, "model": embedder.model(), "usage": usage});
    Ok(reply::json(StatusCode::OK, answer.to_string()))
}

/// Embeds `texts` for `caller`, and counts what that used.
pub(in super::super) async fn embed_texts(
    hub: &HubState,
    caller: &str,
    texts: &[String],
) -> Result<EmbeddedTexts, ApiError> {
    let embedder = hub.data.index.embedder();
    let (models, backend) = (hub.models.current(), embedder.authority());
    let inputs = texts.iter().map(String::as_str);
    let meter = models.meter_embedding(caller, embedder.model(), &backend, inputs);
    let meter = meter.map_err(|error| ApiError::from(&error))?;
    let embedded = embedder.embed_counted(texts).await.map_err(|error| {
        warn!(%error, "the embedder failed");
        ApiError::rejected(StatusCode::BAD_GATEWAY, "the embedder cannot be used now")
    })?;
    meter.finish(embedded.tokens);
    Ok(embedded)
}

fn parse(body: &Value) -> Result<EmbeddingsRequest, ApiError> {
    let text = |it: &Value| it.as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    let texts: Option<Vec<String>> = match &body["input"] {
        Value::Array(inputs) if (1..=MAX_INPUTS).contains(&inputs.len()) => {
            inputs.iter().map(text).collect()
        }
        one => text(one).map(|it| vec![it]),
    };
    let why =
        format!("input must be a text, or 1 to {MAX_INPUTS} of them; token numbers are not known");
    let base64 = match body["encoding_format"].as_str() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => {
            return Err(ApiError::invalid(
                "encoding_format",
                "it must be float or base64",
            ));
        }
    };
    Ok(EmbeddingsRequest {
        texts: texts.ok_or_else(|| ApiError::invalid("input", why))?,
        base64,
        dimensions: body["dimensions"].as_u64(),
    })
}

fn vector_json(vector: &[f32], base64: bool) -> Value {
    if base64 {
        let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
        STANDARD.encode(bytes).into()
    } else {
        vector.into()
    }
}
