//! The HTTP+SSE transport of 2024-11-05: an event stream for receiving and a URL for
//! posting.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use maru_http::{AllowedUrl, HttpRequest, HttpResponse};
use maru_protocol::{IgnoredLines, SseEvent, SseReader};
use maru_runtime::{message_queue, tasks::WorkSlice};
use tokio::{sync::oneshot, time};

use super::{
    Error, authorized_client::AuthorizedClient, channel::MessageChannel, connect::ConnectContext,
    http::check_status, notifications::NotificationSink,
};

/// The longest silence before the server counts as lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes of the stream that are parsed before yielding to other tasks.
const YIELD_CHUNK_BYTES: usize = 16 << 10;

/// Opens the event stream and waits for the URL to post to.
pub(super) async fn open(
    client: AuthorizedClient,
    headers: HeaderMap,
    sink: Arc<NotificationSink>,
    context: &ConnectContext,
) -> Result<Arc<MessageChannel>, Error> {
    let tasks = &context.tasks;
    let mut all = headers.clone();
    all.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let request = HttpRequest {
        method: &Method::GET,
        uri: &request_uri(client.target())?,
        headers: &all,
        extra_headers: &[],
        body: &Bytes::new(),
    };
    let reply = client.send(&request).await?;
    check_status(&reply)?;
    let kind = reply.header(&CONTENT_TYPE).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(Error::Refused("the address gives no event stream; if it is a Streamable HTTP server, use transport HTTP".to_owned()));
    }
    let (out, outgoing) = message_queue::channel();
    let channel = MessageChannel::new(out, sink, context);
    let (found, endpoint) = oneshot::channel();
    let (trace, reading) = (context.cleanup.token(), Arc::clone(&channel));
    tasks.spawn(async move {
        read_events(reply, reading, found).await;
        drop(trace);
    });
    // If the caller is cancelled while waiting for the URL, the stream is closed.
    let leaving = channel.closing.clone().drop_guard();
    let endpoint_url = endpoint.await.map_err(|_| channel.close_reason())?;
    let Some(target) = client.target().join(endpoint_url.trim()) else {
        let message = "the server names an address of another origin to post to";
        channel.mark_lost(Error::Refused(message.to_owned()));
        return Err(channel.close_reason());
    };
    let poster = MessagePoster {
        client,
        target,
        headers,
    };
    tasks.spawn(post_messages(poster, outgoing, Arc::clone(&channel)));
    leaving.disarm();
    Ok(channel)
}

/// Reads events until the stream ends or the link is closed.
async fn read_events(
    mut reply: HttpResponse,
    channel: Arc<MessageChannel>,
    found: oneshot::Sender<String>,
) {
    let mut events = EventStream {
        reader: SseReader::default(),
        endpoint_sender: Some(found),
        slice: WorkSlice::default(),
    };
    let error = loop {
        let chunk = tokio::select! {
            chunk = time::timeout(IDLE_TIMEOUT, reply.chunk()) => chunk,
            () = channel.closing.cancelled() => break lost_error("the connection was closed"),
            () = channel.lost.cancelled() => break lost_error("the connection was lost"),
        };
        let Ok(Some(Ok(bytes))) = chunk else {
            break lost_error("the server ended its event stream");
        };
        if let Err(error) = events.handle_chunk(&bytes, &channel).await {
            break error;
        }
    };
    channel.mark_lost(error);
}

fn lost_error(message: &str) -> Error {
    Error::Lost(message.to_owned())
}

/// Parses the events of a server as they arrive.
struct EventStream {
    reader: SseReader,
    /// Receives the URL to post to.
    endpoint_sender: Option<oneshot::Sender<String>>,
    slice: WorkSlice,
}

impl EventStream {
    /// Handles the events that `bytes` completes, yielding to other tasks in between.
    async fn handle_chunk(&mut self, bytes: &[u8], channel: &MessageChannel) -> Result<(), Error> {
        let mut events = Vec::new();
        for piece in bytes.chunks(YIELD_CHUNK_BYTES) {
            let ignored = self.reader.feed(piece, &mut events)?;
            channel.count_ignored(ignored)?;
            self.slice.spend(piece.len()).await;
            for event in events.drain(..) {
                self.handle_event(event, channel).await?;
                self.slice.spend(0).await;
            }
        }
        Ok(())
    }

    async fn handle_event(
        &mut self,
        event: SseEvent,
        channel: &MessageChannel,
    ) -> Result<(), Error> {
        let is_endpoint = event.name == "endpoint";
        if is_endpoint && let Some(found) = self.endpoint_sender.take() {
            // The caller may have been cancelled.
            let _ = found.send(event.data);
            return Ok(());
        }
        if is_endpoint || event.data.is_empty() {
            let bytes = event.data.len();
            return channel.count_ignored(IgnoredLines { lines: 1, bytes });
        }
        channel.handle_bytes(event.data.into_bytes()).await
    }
}

struct MessagePoster {
    client: AuthorizedClient,
    target: AllowedUrl,
    headers: HeaderMap,
}

/// Posts messages in order.
async fn post_messages(
    poster: MessagePoster,
    mut outgoing: message_queue::MessageReceiver,
    channel: Arc<MessageChannel>,
) {
    let work = async {
        while let Some(text) = outgoing.recv().await {
            if let Err(error) = poster.post(text).await {
                channel.mark_lost(error);
                return;
            }
        }
    };
    tokio::select! {
        () = work => (),
        () = channel.closing.cancelled() => (),
        () = channel.lost.cancelled() => (),
    }
}

impl MessagePoster {
    async fn post(&self, text: String) -> Result<(), Error> {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = HttpRequest {
            method: &Method::POST,
            uri: &request_uri(&self.target)?,
            headers: &headers,
            extra_headers: &[],
            body: &Bytes::from(text),
        };
        let limit = Duration::from_secs(30);
        let late = |_| Error::Lost("the server did not take a message within 30 s".to_owned());
        let mut reply = time::timeout(limit, self.client.send(&request))
            .await
            .map_err(late)??;
        check_status(&reply)?;
        // The body is read to its end so that the connection is reused.
        let _body = time::timeout(limit, reply.bytes()).await;
        Ok(())
    }
}

fn request_uri(target: &AllowedUrl) -> Result<hyper::Uri, Error> {
    target
        .path
        .parse()
        .map_err(|_| Error::Refused("the address cannot be used in a request".to_owned()))
}
