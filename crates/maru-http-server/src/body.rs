//! Reads request bodies within limits of size and time.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use maru_runtime::tasks::{run_parser, with_timeout};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{HubState, servers::json_error};
use maru_auth::{FormFields, Principal};
use maru_downstream::http::{reply, require_json};

/// How long a whole body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the body of a caller without a principal may take, such as a sign-in.
const UNIDENTIFIED_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of such a body.
const MAX_UNIDENTIFIED_BODY_BYTES: usize = 16 << 10;
/// Bodies up to this size need no share of [`LARGE_BODIES_KIB`].
const SMALL_BODY_BYTES: usize = 64 << 10;
/// KiB that all larger bodies may take while they arrive: without a total, 4,096 half-sent
/// bodies of 4 MiB would take 16 GiB.
static LARGE_BODIES_KIB: Semaphore = Semaphore::const_new(256 << 10);
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// A request body of JSON: an object or a list.
#[derive(Debug)]
pub(super) struct JsonBody(pub(super) Value);

impl FromRequest<Arc<HubState>> for JsonBody {
    type Rejection = Response;

    async fn from_request(request: Request, hub: &Arc<HubState>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let principal = parts.extensions.get::<Principal>();
        if principal.is_some_and(Principal::is_local_admin) && is_form(&parts.headers) {
            // `curl -d` names this type unless it is told otherwise. A web page can send
            // it without asking first, but a web page is no local admin.
            let json = HeaderValue::from_static("application/json");
            parts.headers.insert(header::CONTENT_TYPE, json);
        }
        require_json(&parts.headers)?;
        let max_bytes = hub.max_body_bytes();
        let bytes = if parts.extensions.get::<Principal>().is_some() {
            read(body, max_bytes).await?
        } else {
            let max_bytes = max_bytes.min(MAX_UNIDENTIFIED_BODY_BYTES);
            collect_within(UNIDENTIFIED_BODY_TIMEOUT, body, max_bytes)
                .await
                .map_err(rejection_response)?
        };
        let bad_request = |message: &str| json_error(StatusCode::BAD_REQUEST, message, None);
        match parse_json(bytes).await {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(Self(value)),
            Ok(_) => Err(bad_request("the body must be a JSON object")),
            Err(message) => Err(bad_request(&message)),
        }
    }
}

/// The body of a form.
#[derive(Debug)]
pub(super) struct FormBody(pub(super) FormFields);

impl FromRequest<Arc<HubState>> for FormBody {
    type Rejection = Response;

    async fn from_request(request: Request, _hub: &Arc<HubState>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let bad_request = |message: &str| json_error(StatusCode::BAD_REQUEST, message, None);
        let kind = parts.headers.get(header::CONTENT_TYPE);
        let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
        if !kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case(FORM_TYPE)
        {
            return Err(bad_request("send application/x-www-form-urlencoded"));
        }
        let bytes = collect_within(UNIDENTIFIED_BODY_TIMEOUT, body, MAX_UNIDENTIFIED_BODY_BYTES)
            .await
            .map_err(rejection_response)?;
        let fields = std::str::from_utf8(&bytes).ok().and_then(FormFields::parse);
        fields
            .map(Self)
            .ok_or_else(|| bad_request("the form is not valid, or has a field twice"))
    }
}

/// Parses a body as JSON; a large one on a blocking thread.
pub(super) async fn parse_json(bytes: Bytes) -> Result<Value, String> {
    run_parser(bytes.len(), move || {
        let text = maru_protocol::validate_json(&bytes).map_err(|it| it.to_string())?;
        serde_json::from_str(text).map_err(|_| "the body is not JSON".to_owned())
    })
    .await
}

fn is_form(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    types.next().is_some_and(|it| it == FORM_TYPE) && types.next().is_none()
}

/// Reads the whole body, or returns the response that rejects it.
pub(super) async fn read(body: Body, max_bytes: usize) -> Result<Bytes, Response> {
    collect(body, max_bytes).await.map_err(rejection_response)
}

fn rejection_response((status, message): (StatusCode, String)) -> Response {
    reply::reject(status, Cow::<str>::Owned(message))
}

/// Reads the whole body, or returns the status and message that reject it.
pub(super) async fn collect(body: Body, max_bytes: usize) -> Result<Bytes, (StatusCode, String)> {
    collect_within(BODY_TIMEOUT, body, max_bytes).await
}

async fn collect_within(
    timeout: Duration,
    body: Body,
    max_bytes: usize,
) -> Result<Bytes, (StatusCode, String)> {
    let too_large = || {
        let message = format!("the body exceeds {max_bytes} bytes");
        (StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // The size from Content-Length; a chunked body has none.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    match with_timeout(timeout, read_frames(Limited::new(body, max_bytes))).await {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(ReadError::Body(error))) if error.is::<LengthLimitError>() => Err(too_large()),
        Some(Err(ReadError::Body(_))) => Err((
            StatusCode::BAD_REQUEST,
            "the body could not be read".to_owned(),
        )),
        Some(Err(ReadError::NoMemory)) => Err((
            StatusCode::SERVICE_UNAVAILABLE,
            "too many large bodies arrive at once; try again".to_owned(),
        )),
        None => Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time".to_owned(),
        )),
    }
}

/// Why a body was not read to its end.
enum ReadError {
    Body(axum::BoxError),
    NoMemory,
}

/// Reads all frames of a body. A large one holds its share of [`LARGE_BODIES_KIB`] until it
/// has arrived.
async fn read_frames(mut body: Limited<Body>) -> Result<Bytes, ReadError> {
    let mut frames: Vec<Bytes> = Vec::new();
    let (mut length, mut reserved_kib) = (0, 0);
    let mut reserved: Option<SemaphorePermit<'static>> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadError::Body)?.into_data() else {
            continue;
        };
        length += data.len();
        frames.push(data);
        let needed_kib = length.saturating_sub(SMALL_BODY_BYTES).div_ceil(1 << 10);
        if needed_kib > reserved_kib {
            let more = u32::try_from(needed_kib - reserved_kib).unwrap_or(u32::MAX);
            let permit = LARGE_BODIES_KIB.try_acquire_many(more);
            let permit = permit.map_err(|_| ReadError::NoMemory)?;
            match &mut reserved {
                Some(reserved) => reserved.merge(permit),
                None => reserved = Some(permit),
            }
            reserved_kib = needed_kib;
        }
    }
    match frames.as_slice() {
        [single] => Ok(single.clone()),
        several => Ok(several.concat().into()),
    }
}
