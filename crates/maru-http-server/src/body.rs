//! Reads request bodies within limits of size and time.

use std::{
    borrow::Cow,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{FromRequest, Request},
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Frame, SizeHint};
use maru_runtime::{
    memory::{MAX_TREE_BYTES, MemoryShare, OutOfRequestMemory},
    tasks::{run_parser, with_timeout},
};
use serde_json::Value;

use super::{HubState, servers::json_error};
use maru_auth::{FormFields, Principal};
use maru_downstream::http::{reply, require_json};

/// How long a whole body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the body of a caller without a principal may take, such as a sign-in.
const UNIDENTIFIED_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of such a body.
const MAX_UNIDENTIFIED_BODY_BYTES: usize = 16 << 10;
/// How many bytes of the memory of large requests a body reserves at a time.
const MEMORY_STEP_BYTES: usize = 64 << 10;
/// The caller of a request without a principal, in the shares of memory.
const UNIDENTIFIED_CALLER: &str = "";
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
        let memory = RequestMemory::of(&parts.extensions);
        let max_bytes = hub.max_body_bytes();
        let bytes = if parts.extensions.get::<Principal>().is_some() {
            read(&memory, body, max_bytes).await?
        } else {
            let max_bytes = max_bytes.min(MAX_UNIDENTIFIED_BODY_BYTES);
            collect_within(UNIDENTIFIED_BODY_TIMEOUT, &memory, body, max_bytes)
                .await
                .map_err(rejection_response)?
        };
        let reject = |(status, message): (_, String)| json_error(status, &message, None);
        match parse_json(&memory, bytes).await.map_err(reject)? {
            value @ (Value::Object(_) | Value::Array(_)) => Ok(Self(value)),
            _ => {
                let message = "the body must be a JSON object".to_owned();
                Err(reject((StatusCode::BAD_REQUEST, message)))
            }
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
        let (memory, max_bytes) = (
            RequestMemory::of(&parts.extensions),
            MAX_UNIDENTIFIED_BODY_BYTES,
        );
        let bytes = collect_within(UNIDENTIFIED_BODY_TIMEOUT, &memory, body, max_bytes)
            .await
            .map_err(rejection_response)?;
        let fields = std::str::from_utf8(&bytes).ok().and_then(FormFields::parse);
        fields
            .map(Self)
            .ok_or_else(|| bad_request("the form is not valid, or has a field twice"))
    }
}

/// What a request keeps in memory until its response has been sent.
#[derive(Clone, Debug)]
pub(super) struct RequestMemory(Arc<Mutex<MemoryShare>>);

impl RequestMemory {
    /// An empty share of this caller.
    pub(super) fn new(principal: &Principal) -> Self {
        Self::for_caller(principal.shared_name())
    }

    /// The memory of the request with these extensions.
    pub(super) fn of(extensions: &Extensions) -> Self {
        let given = extensions.get().cloned();
        given.unwrap_or_else(|| Self::for_caller(UNIDENTIFIED_CALLER))
    }

    fn for_caller(name: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(Mutex::new(MemoryShare::new(name))))
    }

    fn add(&self, bytes: usize) -> Result<(), OutOfRequestMemory> {
        self.lock().add(bytes)
    }

    /// Gives back a share whose body is no longer kept.
    pub(super) fn release(&self) {
        self.lock().clear();
    }

    /// Keeps a share until the response has been sent, unless it is empty.
    pub(super) fn hold_for(self, response: Response) -> Response {
        if self.lock().is_empty() {
            return response;
        }
        response.map(|body| {
            Body::new(HoldingBody {
                body,
                _memory: self,
            })
        })
    }

    fn lock(&self) -> MutexGuard<'_, MemoryShare> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A response body that keeps the memory of its request.
struct HoldingBody {
    body: Body,
    _memory: RequestMemory,
}

impl HttpBody for HoldingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Parses a body as JSON, or returns the status and message that reject it; a large one on a
/// blocking thread.
pub(super) async fn parse_json(
    memory: &RequestMemory,
    bytes: Bytes,
) -> Result<Value, (StatusCode, String)> {
    let memory = memory.clone();
    run_parser(bytes.len(), move || {
        let bad_request = |message: String| (StatusCode::BAD_REQUEST, message);
        let (text, tree_bytes) =
            maru_protocol::measure_json(&bytes).map_err(|it| bad_request(it.to_string()))?;
        if tree_bytes > MAX_TREE_BYTES {
            let message = format!("the values of the body take more than {MAX_TREE_BYTES} bytes");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        memory.add(tree_bytes).map_err(out_of_memory)?;
        serde_json::from_str(text).map_err(|_| bad_request("the body is not JSON".to_owned()))
    })
    .await
}

fn out_of_memory(error: OutOfRequestMemory) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn is_form(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    types.next().is_some_and(|it| it == FORM_TYPE) && types.next().is_none()
}

/// Reads the whole body, or returns the response that rejects it.
pub(super) async fn read(
    memory: &RequestMemory,
    body: Body,
    max_bytes: usize,
) -> Result<Bytes, Response> {
    let bytes = collect(memory, body, max_bytes).await;
    bytes.map_err(rejection_response)
}

pub(super) fn rejection_response((status, message): (StatusCode, String)) -> Response {
    reply::reject(status, Cow::<str>::Owned(message))
}

/// Reads the whole body, or returns the status and message that reject it.
pub(super) async fn collect(
    memory: &RequestMemory,
    body: Body,
    max_bytes: usize,
) -> Result<Bytes, (StatusCode, String)> {
    collect_within(BODY_TIMEOUT, memory, body, max_bytes).await
}

async fn collect_within(
    timeout: Duration,
    memory: &RequestMemory,
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
    match with_timeout(timeout, read_frames(memory, Limited::new(body, max_bytes))).await {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(ReadError::Body(error))) if error.is::<LengthLimitError>() => Err(too_large()),
        Some(Err(ReadError::Body(_))) => Err((
            StatusCode::BAD_REQUEST,
            "the body could not be read".to_owned(),
        )),
        Some(Err(ReadError::Memory(error))) => Err(out_of_memory(error)),
        None => Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time".to_owned(),
        )),
    }
}

/// Why a body was not read to its end.
enum ReadError {
    Body(axum::BoxError),
    Memory(OutOfRequestMemory),
}

/// Reads all frames of a body. Several are joined as they come: each frame alone keeps the
/// buffer that it was read into.
async fn read_frames(memory: &RequestMemory, mut body: Limited<Body>) -> Result<Bytes, ReadError> {
    let mut first = Bytes::new();
    let mut joined: Vec<u8> = Vec::new();
    let (mut length, mut reserved) = (0, 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadError::Body)?.into_data() else {
            continue;
        };
        length += data.len();
        if reserved < length {
            let more = (length - reserved).next_multiple_of(MEMORY_STEP_BYTES);
            memory.add(more).map_err(ReadError::Memory)?;
            reserved += more;
        }
        if length == data.len() {
            first = data;
            continue;
        }
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    if joined.is_empty() {
        Ok(first)
    } else {
        Ok(joined.into())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    async fn read_pieces(memory: &RequestMemory, pieces: Vec<Bytes>) -> Bytes {
        let pieces = stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
        let body = Limited::new(Body::from_stream(pieces), 1 << 20);
        read_frames(memory, body).await.ok().unwrap()
    }

    #[tokio::test]
    async fn frames_are_joined_without_keeping_their_buffers() {
        let memory = RequestMemory::for_caller("frames");
        let buffer = Bytes::from(vec![b'x'; 100_000]);
        let pieces = (0..buffer.len()).map(|at| buffer.slice(at..=at)).collect();
        let body = read_pieces(&memory, pieces).await;
        assert_eq!(body, buffer);
        assert!(buffer.is_unique(), "no piece is kept");
        assert_eq!(memory.lock().bytes(), 2 * MEMORY_STEP_BYTES);

        let single = read_pieces(&memory, vec![Bytes::new(), buffer.clone()]).await;
        assert_eq!(single.as_ptr(), buffer.as_ptr(), "one frame is not copied");
        assert_eq!(read_pieces(&memory, Vec::new()).await, "");
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_keeps_arriving_has_a_deadline_in_total() {
        let trickle = || {
            Body::from_stream(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok::<_, Infallible>(Bytes::from_static(b" ")), ()))
            }))
        };
        for timeout in [BODY_TIMEOUT, UNIDENTIFIED_BODY_TIMEOUT] {
            let memory = RequestMemory::for_caller("trickle");
            let started = tokio::time::Instant::now();
            let read = collect_within(timeout, &memory, trickle(), 1 << 20).await;
            assert_eq!(read.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
            assert_eq!(started.elapsed(), timeout);
        }
    }
}
