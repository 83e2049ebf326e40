//! A collector that decodes OTLP protobuf and keeps the spans.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use crate::http_client::wait_for;
use axum::{Router, body::Bytes, http::HeaderMap, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
};
use prost::Message as _;

/// A span as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedSpan {
    /// Which process sent it.
    pub(crate) instance: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) name: String,
    pub(crate) attributes: BTreeMap<String, String>,
}

pub(crate) struct TestCollector {
    address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedSpan>>>,
}

impl TestCollector {
    pub(crate) async fn start() -> Self {
        let received: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let kept = Arc::clone(&received);
        let take = move |headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["x-key"], "k");
            assert_eq!(headers["content-type"], "application/x-protobuf");
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            kept.lock().unwrap().extend(read_spans(&request));
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        maru_runtime::tasks::Tasks::default().spawn(async move {
            let router = Router::new().route("/v1/traces", post(take));
            let _ = axum::serve(listener, router).await;
        });
        Self { address, received }
    }

    /// Settings of a hub that sends its spans here.
    pub(crate) fn settings(&self) -> String {
        let address = self.address;
        format!("telemetry: {{otlp_endpoint: 'http://{address}', headers: {{x-key: k}}}}\n")
    }

    pub(crate) async fn wait_for(
        &self,
        is_enough: impl Fn(&[ReceivedSpan]) -> bool,
    ) -> Vec<ReceivedSpan> {
        let received = async || self.received.lock().unwrap().clone();
        wait_for(received, |it| is_enough(it)).await
    }
}

fn read_spans(request: &ExportTraceServiceRequest) -> Vec<ReceivedSpan> {
    let mut found = Vec::new();
    for resource in &request.resource_spans {
        let described = resource.resource.as_ref().unwrap();
        let instance = attributes(&described.attributes)["service.instance.id"].clone();
        for span in resource.scope_spans.iter().flat_map(|it| &it.spans) {
            found.push(ReceivedSpan {
                instance: instance.clone(),
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                name: span.name.clone(),
                attributes: attributes(&span.attributes),
            });
        }
    }
    found
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |it: &KeyValue| match it.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text.clone()),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    };
    let all = all
        .iter()
        .map(|it| (it.key.clone(), text(it).unwrap_or_default()));
    all.collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
