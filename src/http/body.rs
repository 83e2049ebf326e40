//! Reading a request body, bounded in size and time.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{FromRequest, Request},
    http::StatusCode,
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use maru_runtime::tasks::with_timeout;
use serde_json::Value;

use super::{HubState, servers::json_error};
use crate::{
    auth::Principal,
    downstream::http::{reply, require_json},
};

/// How long a whole body may take, however slowly its pieces come.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The same, and the size, for a caller who is not known yet.
const UNIDENTIFIED_BODY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_UNIDENTIFIED_BODY_BYTES: usize = 16 << 10;

/// A body of JSON: an object or a list.
#[derive(Debug)]
pub(super) struct JsonBody(pub(super) Value);

impl FromRequest<Arc<HubState>> for JsonBody {
    type Rejection = Response;

    async fn from_request(request: Request, hub: &Arc<HubState>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        require_json(&parts.headers)?;
        let max = hub.max_body_bytes();
        let bytes = if parts.extensions.get::<Principal>().is_some() {
            read(body, max).await?
        } else {
            let read = collect_within(
                UNIDENTIFIED_BODY_TIMEOUT,
                body,
                max.min(MAX_UNIDENTIFIED_BODY_BYTES),
            );
            read.await.map_err(rejection_response)?
        };
        let bad = |why: &str| json_error(StatusCode::BAD_REQUEST, why, None);
        let text = maru_protocol::validate_json(&bytes).map_err(|why| bad(&why.to_string()))?;
        match serde_json::from_str(text) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(Self(value)),
            _ => Err(bad("the body must be a JSON object")),
        }
    }
}

/// The whole body, or the answer that refuses it.
pub(super) async fn read(body: Body, max: usize) -> Result<Bytes, Response> {
    collect(body, max).await.map_err(rejection_response)
}

fn rejection_response((status, why): (StatusCode, String)) -> Response {
    reply::reject(status, Cow::<str>::Owned(why))
}

/// The whole body, or the status and words that refuse it.
pub(super) async fn collect(body: Body, max: usize) -> Result<Bytes, (StatusCode, String)> {
    collect_within(BODY_TIMEOUT, body, max).await
}

async fn collect_within(
    limit: Duration,
    body: Body,
    max: usize,
) -> Result<Bytes, (StatusCode, String)> {
    let too_large = || {
        let why = format!("the body may have {max} bytes at most");
        (StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    // As announced; nothing is, when it comes in chunks.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    match with_timeout(limit, Limited::new(body, max).collect()).await {
        Some(Ok(body)) => Ok(body.to_bytes()),
        Some(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Some(Err(_)) => Err((
            StatusCode::BAD_REQUEST,
            "the body could not be read".to_owned(),
        )),
        None => Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time".to_owned(),
        )),
    }
}
