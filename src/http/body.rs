//! Reads request bodies within limits of size and time.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{FromRequest, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
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

/// How long a whole body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the body of a caller without a principal may take, such as a sign-in.
const UNIDENTIFIED_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of such a body.
const MAX_UNIDENTIFIED_BODY_BYTES: usize = 16 << 10;
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
        let text = maru_protocol::validate_json(&bytes)
            .map_err(|error| bad_request(&error.to_string()))?;
        match serde_json::from_str(text) {
            Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(Self(value)),
            _ => Err(bad_request("the body must be a JSON object")),
        }
    }
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
    match with_timeout(timeout, Limited::new(body, max_bytes).collect()).await {
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
