//! HTTP responses of server-sent events, with keep-alive comments.

use std::{convert::Infallible, future::ready, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::Response,
};
use futures_util::{Stream, StreamExt as _, stream};
use maru_runtime::tasks::with_timeout;

/// What clients of an event stream skip.
pub const KEEP_ALIVE_COMMENT: &str = ": keep-alive\n\n";
/// The content type of an event stream.
pub const EVENT_STREAM: &str = "text/event-stream";

/// A response that sends `events`, which are framed already, as they arrive, and a comment
/// after each silence of `keep_alive`. Empty items are skipped. An event may be split into
/// several items if they follow each other immediately.
pub fn event_stream(
    events: impl Stream<Item = String> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    event_stream_from_bytes(events.map(Bytes::from), keep_alive)
}

/// The response of [`event_stream`] in another format, with `ping` after each silence.
pub fn stream_with_ping(
    content_type: &'static str,
    items: impl Stream<Item = String> + Send + 'static,
    keep_alive: Duration,
    ping: impl Into<Bytes>,
) -> Response {
    respond(
        content_type,
        items.map(Bytes::from),
        keep_alive,
        ping.into(),
    )
}

/// The response of [`event_stream`], for events that are bytes.
pub(super) fn event_stream_from_bytes(
    events: impl Stream<Item = Bytes> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    let comment = Bytes::from_static(KEEP_ALIVE_COMMENT.as_bytes());
    respond(EVENT_STREAM, events, keep_alive, comment)
}

fn respond(
    content_type: &'static str,
    events: impl Stream<Item = Bytes> + Send + 'static,
    keep_alive: Duration,
    ping: Bytes,
) -> Response {
    let pieces = with_keep_alive(events, keep_alive, ping).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, content_type);
    // A proxy that compresses (`no-transform`) or buffers would hold events back.
    set(header::CACHE_CONTROL, "no-cache, no-transform");
    set(HeaderName::from_static("x-accel-buffering"), "no");
    response
}

/// The items of `events`, and `ping` after each silence of `interval`, which does not
/// restart the wait inside `events`.
fn with_keep_alive(
    events: impl Stream<Item = Bytes> + Send,
    interval: Duration,
    ping: Bytes,
) -> impl Stream<Item = Bytes> + Send {
    let events = Box::pin(events.filter(|it| ready(!it.is_empty())));
    stream::unfold((events, ping), move |(mut events, ping)| async move {
        let item = match with_timeout(interval, events.next()).await {
            Some(item) => item?,
            None => ping.clone(),
        };
        Some((item, (events, ping)))
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::{self, Instant};

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(15);

    /// The frames of a response, and after how many seconds each was sent.
    async fn sent(response: Response) -> Vec<(u64, String)> {
        let begin = Instant::now();
        let mut body = response.into_body();
        let mut found = Vec::new();
        while let Some(frame) = body.frame().await {
            let data = frame.unwrap().into_data().unwrap();
            let text = String::from_utf8(data.to_vec()).unwrap();
            found.push((begin.elapsed().as_secs(), text));
        }
        found
    }

    /// Events with these pauses before them, in seconds; a pause of one second sends an
    /// empty item.
    fn after_pauses(pauses: Vec<u64>) -> impl Stream<Item = String> + Send + 'static {
        stream::iter(pauses).then(|pause| async move {
            time::sleep(Duration::from_secs(pause)).await;
            if pause == 1 {
                return String::new();
            }
            format!("data: {pause}\n\n")
        })
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_filled_with_comments_and_no_event_is_lost() {
        let found = sent(event_stream(after_pauses(vec![0, 14, 1, 39, 14]), INTERVAL)).await;
        let event = |at, pause: u64| (at, format!("data: {pause}\n\n"));
        let comment = |at| (at, KEEP_ALIVE_COMMENT.to_owned());
        let expected = [
            event(0, 0),
            event(14, 14),
            comment(29),
            comment(44),
            event(54, 39),
            event(68, 14),
        ];
        assert_eq!(found, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn headers_keep_proxies_from_buffering() {
        let response = event_stream(stream::empty(), INTERVAL);
        let headers = response.headers();
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-cache, no-transform");
        assert_eq!(headers["x-accel-buffering"], "no");
        assert!(sent(response).await.is_empty());
    }
}
