//! HTTP+SSE of 2024-11-05: a stream to read, an address to post to.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use tokio::{sync::oneshot, time};

use super::{
    Error,
    channel::Channel,
    http::{refusal, with_headers},
    news::News,
    open::Means,
};
use crate::{
    mcp::{Event, IgnoredLines, Reader},
    outbound::{Client, Reply, Request, Target},
    queue,
    tasks::WorkSlice,
};

/// A server sends a sign of life more often than this, or is gone.
const SILENCE: Duration = Duration::from_secs(600);

/// Bytes of the stream that are looked at before other tasks go on.
const PIECE: usize = 16 << 10;

/// Opens the stream and learns where to post.
pub(super) async fn open(
    client: Arc<Client>,
    headers: HeaderMap,
    news: Arc<News>,
    means: &Means,
) -> Result<Arc<Channel>, Error> {
    let tasks = &means.tasks;
    let mut all = with_headers(client.target(), &headers);
    all.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let request = Request {
        method: &Method::GET,
        uri: &path(client.target())?,
        headers: &all,
        more: &[],
        body: &Bytes::new(),
    };
    let reply = client.send(&request).await?;
    refusal(&reply)?;
    let kind = reply.header(&CONTENT_TYPE).unwrap_or_default();
    if !kind.starts_with("text/event-stream") {
        return Err(Error::Refused("the address gives no event stream; if it is a Streamable HTTP server, use transport HTTP".to_owned()));
    }
    let (out, outgoing) = queue::channel();
    let channel = Channel::new(out, news, means);
    let (found, endpoint) = oneshot::channel();
    let (trace, reading) = (means.traces.leave(), Arc::clone(&channel));
    tasks.spawn(async move {
        read(reply, reading, found).await;
        drop(trace);
    });
    // Whoever stops waiting for the address leaves the stream.
    let leaving = channel.closing.clone().drop_guard();
    let said = endpoint.await.map_err(|_| channel.why())?;
    let Some(target) = client.target().join(said.trim()) else {
        let why = "the server names an address of another origin to post to";
        channel.lose(Error::Refused(why.to_owned()));
        return Err(channel.why());
    };
    let poster = Poster {
        client,
        target,
        headers,
    };
    tasks.spawn(write(poster, outgoing, Arc::clone(&channel)));
    leaving.disarm();
    Ok(channel)
}

/// Reads events until the stream ends or nobody needs it.
async fn read(mut reply: Reply, channel: Arc<Channel>, found: oneshot::Sender<String>) {
    let mut events = EventStream {
        reader: Reader::default(),
        found: Some(found),
        slice: WorkSlice::default(),
    };
    let why = loop {
        let chunk = tokio::select! {
            chunk = time::timeout(SILENCE, reply.chunk()) => chunk,
            () = channel.closing.cancelled() => break lost("the connection was closed"),
            () = channel.lost.cancelled() => break lost("the connection was lost"),
        };
        let Ok(Some(Ok(bytes))) = chunk else {
            break lost("the server ended its event stream");
        };
        if let Err(why) = events.take(&bytes, &channel).await {
            break why;
        }
    };
    channel.lose(why);
}

fn lost(why: &str) -> Error {
    Error::Lost(why.to_owned())
}

/// The events of a server as they arrive.
struct EventStream {
    reader: Reader,
    /// Is told where to post.
    found: Option<oneshot::Sender<String>>,
    slice: WorkSlice,
}

impl EventStream {
    /// Takes the events that `bytes` completes, in pieces: other tasks go on between.
    async fn take(&mut self, bytes: &[u8], channel: &Channel) -> Result<(), Error> {
        let mut events = Vec::new();
        for piece in bytes.chunks(PIECE) {
            let ignored = self.reader.feed(piece, &mut events)?;
            channel.take_ignored(ignored)?;
            self.slice.spend(piece.len()).await;
            for event in events.drain(..) {
                self.take_event(event, channel)?;
                self.slice.spend(0).await;
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event, channel: &Channel) -> Result<(), Error> {
        if event.name == "endpoint" {
            if let Some(found) = self.found.take() {
                // Whoever opens may have stopped waiting.
                let _ = found.send(event.data);
            }
            return Ok(());
        }
        if event.data.is_empty() {
            return channel.take_ignored(IgnoredLines { lines: 1, bytes: 0 });
        }
        channel.take(event.data.as_bytes())
    }
}

struct Poster {
    client: Arc<Client>,
    target: Target,
    headers: HeaderMap,
}

/// Posts messages in order.
async fn write(poster: Poster, mut outgoing: queue::Receiver, channel: Arc<Channel>) {
    let work = async {
        while let Some(text) = outgoing.recv().await {
            if let Err(why) = poster.post(text).await {
                channel.lose(why);
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

impl Poster {
    async fn post(&self, text: String) -> Result<(), Error> {
        let mut headers = with_headers(&self.target, &self.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = Request {
            method: &Method::POST,
            uri: &path(&self.target)?,
            headers: &headers,
            more: &[],
            body: &Bytes::from(text),
        };
        let limit = Duration::from_secs(30);
        let late = |_| Error::Lost("the server did not take a message within 30 s".to_owned());
        let mut reply = time::timeout(limit, self.client.send(&request))
            .await
            .map_err(late)??;
        refusal(&reply)?;
        // Read to its end, the connection is used again.
        let _body = time::timeout(limit, reply.text()).await;
        Ok(())
    }
}

fn path(target: &Target) -> Result<hyper::Uri, Error> {
    target
        .path
        .parse()
        .map_err(|_| Error::Refused("the address cannot be asked for".to_owned()))
}
