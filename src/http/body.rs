//! Reading a request body, bounded in size and time.

use std::{borrow::Cow, error::Error, sync::Arc, time::Duration};

use axum::{
    body::{Bytes, HttpBody},
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

pub(super) type BodyError = Box<dyn Error + Send + Sync>;

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
pub(super) async fn read<B>(body: B, max: usize) -> Result<Bytes, Response>
where
    B: HttpBody<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    collect(body, max).await.map_err(rejection_response)
}

fn rejection_response((status, why): (StatusCode, String)) -> Response {
    reply::reject(status, Cow::<str>::Owned(why))
}

/// The whole body, or the status and words that refuse it.
pub(super) async fn collect<B>(body: B, max: usize) -> Result<Bytes, (StatusCode, String)>
where
    B: HttpBody<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    collect_within(BODY_TIMEOUT, body, max).await
}

async fn collect_within<B>(
    limit: Duration,
    body: B,
    max: usize,
) -> Result<Bytes, (StatusCode, String)>
where
    B: HttpBody<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    let too_large = || {
        let why = format!("the body may have {max} bytes at most");
        (StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    // As announced; nothing is, when it comes in chunks.
    if body.size_hint().lower() > max as u64 {
        return Err(too_large());
    }
    match with_timeout(limit, collect_frames(Limited::new(body, max))).await {
        Some(Ok(body)) => Ok(body),
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

/// All pieces of a body as one; most come in one.
async fn collect_frames<B>(mut body: B) -> Result<Bytes, BodyError>
where
    B: HttpBody<Data = Bytes, Error = BodyError> + Unpin,
{
    let first = next_data_frame(&mut body).await?;
    let second = next_data_frame(&mut body).await?;
    if second.is_empty() {
        return Ok(first);
    }
    let mut all = [first, second].concat();
    loop {
        let next = next_data_frame(&mut body).await?;
        if next.is_empty() {
            return Ok(all.into());
        }
        all.extend_from_slice(&next);
    }
}

/// The next piece of a body; empty at its end.
async fn next_data_frame<B>(body: &mut B) -> Result<Bytes, BodyError>
where
    B: HttpBody<Data = Bytes, Error = BodyError> + Unpin,
{
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        match frame?.into_data() {
            Ok(piece) if !piece.is_empty() => return Ok(piece),
            // Trailers, which nobody reads.
            _ => (),
        }
    }
    Ok(Bytes::new())
}
