//! Traces for a collector of OpenTelemetry: one span for each call, and one for
//! whoever answered it, sent together as JSON over HTTP (OTLP).
//!
//! A collector that does not answer costs spans, never calls.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{self, HeaderName, HeaderValue},
};
use maru_http::{AddressPolicy, ClientTls, HttpClient, Request};
use maru_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time};
use tracing::warn;

use crate::{
    config::{SecretString, TelemetrySettings as Settings},
    observability::journal::{CallJournal, CallRecord, ToolCallOutcome},
};

/// Calls that wait to be sent; one more is lost.
const QUEUE: usize = 4096;
/// Calls that are sent together, and how long one waits for others.
const BATCH: usize = 512;
const SOON: Duration = Duration::from_secs(2);
/// How long the collector may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A failing collector is complained about this often.
const COMPLAIN: Duration = Duration::from_secs(60);

/// Where spans go.
#[derive(Debug)]
struct Collector {
    client: Arc<HttpClient>,
    path: String,
    headers: BTreeMap<String, SecretString>,
}

/// Sends a span for every call of `journal`, if the settings name a collector.
pub fn start(
    settings: &Settings,
    policy: &AddressPolicy,
    journal: &CallJournal,
    tasks: &Tasks,
) -> Result<(), String> {
    let Some(endpoint) = &settings.otlp_endpoint else {
        return Ok(());
    };
    let judged = policy.authorize_configured(endpoint);
    let target = judged.map_err(|why| format!("telemetry.otlp_endpoint: {why}"))?;
    let collector = Collector {
        path: format!("{}/v1/traces", target.path.trim_end_matches('/')),
        client: HttpClient::new(target, ClientTls::default()),
        headers: settings.headers.clone(),
    };
    let (queue, records) = mpsc::channel(QUEUE);
    journal.on_record(Box::new(move |record| {
        // Full: the collector is slow, and calls do not wait for it.
        let _ = queue.try_send(Arc::clone(record));
    }));
    tasks.spawn(send_all(collector, records, tasks.clone()));
    Ok(())
}

async fn send_all(
    collector: Collector,
    mut records: mpsc::Receiver<Arc<CallRecord>>,
    tasks: Tasks,
) {
    let stop = tasks.stop_token();
    let mut batch = Vec::new();
    let mut complained: Option<time::Instant> = None;
    loop {
        tokio::select! {
            count = records.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = stop.cancelled() => break,
        }
        if let Err(why) = collector.send(&batch).await
            && complained.is_none_or(|it| it.elapsed() > COMPLAIN)
        {
            complained = Some(time::Instant::now());
            warn!("traces could not be sent: {why}");
        }
        batch.clear();
        if records.len() < BATCH {
            let _stopped = time::timeout(SOON, stop.cancelled()).await;
        }
    }
    while let Ok(record) = records.try_recv() {
        batch.push(record);
    }
    if !batch.is_empty() {
        // The last ones; nobody is left to complain to.
        let _ = collector.send(&batch).await;
    }
}

impl Collector {
    async fn send(&self, batch: &[Arc<CallRecord>]) -> Result<(), String> {
        let unusable = "a header of telemetry.headers cannot be sent";
        let body = Bytes::from(spans(batch).to_string());
        let request = Request {
            method: &Method::POST,
            uri: &self.path.parse().map_err(|_| "the path is not valid")?,
            headers: &self.headers().ok_or(unusable)?,
            more: &[],
            body: &body,
        };
        let answer = time::timeout(PATIENCE, async {
            let mut reply = self.client.send(&request).await?;
            let status = reply.status;
            reply.text().await?;
            Ok::<_, maru_http::Error>(status)
        });
        match answer.await {
            Ok(Ok(status)) if status.is_success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the collector answered with status {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }

    fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        for (name, value) in &self.headers {
            let name = HeaderName::try_from(name).ok()?;
            headers.append(name, HeaderValue::from_str(value.reveal()).ok()?);
        }
        Some(headers)
    }
}

fn spans(batch: &[Arc<CallRecord>]) -> Value {
    let spans: Vec<Value> = batch.iter().flat_map(|it| of_call(it)).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "maru"), text("service.version", env!("CARGO_PKG_VERSION"))]},
        "scopeSpans": [{"scope": {"name": "maru"}, "spans": spans}],
    }]})
}

/// The call, and within it whoever answered.
fn of_call(record: &CallRecord) -> Vec<Value> {
    let asked = &record.asked;
    let (trace, own) = (asked.request_id.to_string(), next_span());
    let end = u128::from(record.ended_at) * 1_000_000;
    let start = end.saturating_sub(record.duration.as_nanos());
    let failed = record.outcome != ToolCallOutcome::Ok;
    let mut call = json!({
        "traceId": trace,
        "spanId": own,
        "name": format!("tools/call {}", asked.tool),
        "kind": 2,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": [
            text("mcp.method.name", "tools/call"),
            text("gen_ai.tool.name", &asked.tool),
            text("maru.server", &asked.server),
            text("maru.principal", &asked.principal),
            text("maru.outcome", record.outcome.as_str()),
        ],
        "status": {"code": if failed { 2 } else { 1 }},
    });
    if let Some(parent) = asked.request_id.parent_span {
        call["parentSpanId"] = format!("{parent:016x}").into();
    }
    if record.server_duration.is_zero() {
        return vec![call];
    }
    let waiting = json!({
        "traceId": trace,
        "spanId": next_span(),
        "parentSpanId": own,
        "name": format!("answer of {}", asked.server),
        "kind": 3,
        "startTimeUnixNano": end.saturating_sub(record.server_duration.as_nanos()).to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": [text("maru.server", &asked.server)],
        "status": {},
    });
    vec![call, waiting]
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Unique in a trace, which is all that a span's number has to be.
fn next_span() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:016x}", NEXT.fetch_add(1, Relaxed))
}
