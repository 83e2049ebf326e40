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
    super::{Hub, body},
    error::{self, Bad},
};
use crate::{
    downstream::http::{check_headers, reply},
    mcp,
};

const MOST: usize = 2048;

struct Asked {
    texts: Vec<String>,
    base64: bool,
    dimensions: Option<u64>,
}

/// The route.
pub(in super::super) async fn create(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let asked = match read(&hub, request).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal,
    };
    let embedder = hub.data.index.embedder();
    let vectors = match embedder.embed(&asked.texts).await {
        Ok(vectors) => vectors,
        Err(error) => {
            warn!(%error, "the embedder failed");
            return error::refuse(StatusCode::BAD_GATEWAY, "the embedder cannot be used now");
        }
    };
    let length = vectors.first().map_or(0, Vec::len);
    if asked.dimensions.is_some_and(|it| it != length as u64) {
        let why = format!("dimensions must be {length}, which the embedder makes");
        return error::bad(&Bad::new("dimensions", why));
    }
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, it)| json!({"object": "embedding", "index": index, "embedding": shown(it, asked.base64)}))
        .collect();
    // Embedders count no tokens.
    let usage = json!({"prompt_tokens": 0, "total_tokens": 0});
    let answer = json!({"object": "list", "data": data, "model": embedder.model(), "usage": usage});
    reply::json(StatusCode::OK, answer.to_string())
}

async fn read(hub: &Hub, request: Request) -> Result<Asked, Response> {
    let (parts, body) = request.into_parts();
    check_headers(&parts.headers).map_err(|(status, why)| error::refuse(status, why))?;
    let bytes = body::take(body, hub.max_body_bytes()).await;
    let bytes = bytes.map_err(|(status, why)| error::refuse(status, &why))?;
    let bad = |message: String| {
        error::bad(&Bad {
            message,
            param: None,
        })
    };
    let text = mcp::check(&bytes).map_err(|why| bad(why.to_string()))?;
    let body = serde_json::from_str(text).map_err(|why| bad(why.to_string()))?;
    understand(&body).map_err(|it| error::bad(&it))
}

fn understand(body: &Value) -> Result<Asked, Bad> {
    let text = |it: &Value| it.as_str().filter(|it| !it.is_empty()).map(str::to_owned);
    let texts: Option<Vec<String>> = match &body["input"] {
        Value::Array(inputs) if (1..=MOST).contains(&inputs.len()) => {
            inputs.iter().map(text).collect()
        }
        one => text(one).map(|it| vec![it]),
    };
    let why = format!("input must be a text, or 1 to {MOST} of them; token numbers are not known");
    let base64 = match body["encoding_format"].as_str() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Bad::new("encoding_format", "it must be float or base64")),
    };
    Ok(Asked {
        texts: texts.ok_or_else(|| Bad::new("input", why))?,
        base64,
        dimensions: body["dimensions"].as_u64(),
    })
}

fn shown(vector: &[f32], base64: bool) -> Value {
    match base64 {
        true => {
            let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
            STANDARD.encode(bytes).into()
        }
        false => vector.into(),
    }
}
