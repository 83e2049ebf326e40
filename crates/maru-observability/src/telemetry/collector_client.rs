//! The HTTP client of the span exporter, over the hub's own client and its address
//! policy.
//!
//! The SDK exports from its own thread, outside of the runtime, so requests go through a
//! channel to a task that sends them.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use hyper::{Uri, body::Bytes};
use maru_http::HttpClient;
use maru_runtime::tasks::Tasks;
use opentelemetry_http::{HttpClient as ExporterTransport, HttpError, Request, Response};
use tokio::{
    sync::{mpsc, oneshot},
    time::{self, Instant},
};
use tracing::warn;

use super::EXPORT_TIMEOUT;

/// How often a failing collector is reported.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The exporter's side of the channel.
#[derive(Debug)]
pub(super) struct CollectorClient {
    batches: mpsc::Sender<PendingBatch>,
}

/// A batch on its way to the collector.
#[derive(Debug)]
struct PendingBatch {
    request: Request<Bytes>,
    reply: oneshot::Sender<Result<Response<Bytes>, String>>,
}

impl CollectorClient {
    pub(super) fn start(client: Arc<HttpClient>, tasks: &Tasks) -> Self {
        // The SDK sends one batch at a time.
        let (batches, pending) = mpsc::channel(1);
        let stop = tasks.stop_token();
        tasks.spawn(async move {
            tokio::select! {
                () = send_batches(client, pending) => (),
                () = stop.cancelled() => (),
            }
        });
        Self { batches }
    }
}

#[async_trait]
impl ExporterTransport for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (reply, answer) = oneshot::channel();
        let batch = PendingBatch { request, reply };
        self.batches.send(batch).await?;
        Ok(answer.await??)
    }
}

/// Sends batches until the exporter is dropped.
async fn send_batches(client: Arc<HttpClient>, mut pending: mpsc::Receiver<PendingBatch>) {
    let mut warned_at: Option<Instant> = None;
    while let Some(batch) = pending.recv().await {
        let sent = time::timeout(EXPORT_TIMEOUT, send_batch(&client, batch.request)).await;
        let sent = sent.unwrap_or_else(|_| Err(format!("no answer within {EXPORT_TIMEOUT:?}")));
        let failure = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the collector answered {}", response.status())),
            Err(reason) => Some(reason.clone()),
        };
        if let Some(reason) = failure
            && warned_at.is_none_or(|it| it.elapsed() > WARNING_INTERVAL)
        {
            warned_at = Some(Instant::now());
            warn!("spans could not be sent: {reason}");
        }
        // Fails if the exporter was dropped meanwhile.
        let _ = batch.reply.send(sent);
    }
}

async fn send_batch(
    client: &Arc<HttpClient>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, String> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    let uri: Uri = path.parse().map_err(|_| "the path is not valid")?;
    let mut reply = client
        .send(&maru_http::HttpRequest {
            method: &parts.method,
            uri: &uri,
            headers: &parts.headers,
            extra_headers: &[],
            body: &body,
        })
        .await
        .map_err(|error| error.to_string())?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = reply.status;
    *response.body_mut() = reply.bytes().await.map_err(|error| error.to_string())?;
    Ok(response)
}
