//! `GET /metrics`: metrics for Prometheus in the `OpenMetrics` text format.

use std::{fs, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::ConstCounter, family::Family, gauge::Gauge, info::Info},
    registry::Registry,
};

use super::HubState;

const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerStateLabels {
    server: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    model: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendAvailabilityLabels {
    model: String,
    backend: String,
}

/// `GET /metrics`: counters since the start, and current states.
pub(super) async fn show(State(hub): State<Arc<HubState>>) -> Response {
    let mut current = Registry::default();
    add_servers(&mut current, &hub);
    add_model_queues(&mut current, &hub);
    add_hub(&mut current, &hub);
    add_process(&mut current);
    let mut response = Response::default();
    match hub.metrics.encode(&current) {
        Ok(text) => *response.body_mut() = Body::from(text),
        Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
    }
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, CONTENT_TYPE);
    response
}

fn add_servers(registry: &mut Registry, hub: &HubState) {
    let states = Family::<ServerStateLabels, Gauge>::default();
    let counts = Family::<StateLabels, Gauge>::default();
    let tools = Family::<ServerLabels, Gauge>::default();
    let withheld = Family::<ServerLabels, Gauge>::default();
    for it in hub.servers.list() {
        let (server, state) = (it.server.name.as_str().to_owned(), it.status.state.as_str());
        let labels = ServerLabels {
            server: server.clone(),
        };
        tools
            .get_or_create(&labels)
            .set(count(it.status.tools.len()));
        withheld
            .get_or_create(&labels)
            .set(count(it.status.withheld.len()));
        states
            .get_or_create(&ServerStateLabels { server, state })
            .set(1);
        counts.get_or_create(&StateLabels { state }).inc();
    }
    registry.register(
        "maru_server_state",
        "1 for the current state of a server",
        states,
    );
    registry.register("maru_servers", "Number of servers in each state", counts);
    registry.register("maru_server_tools", "Available tools of a server", tools);
    registry.register(
        "maru_server_withheld",
        "Listed entries of a server that maru withholds",
        withheld,
    );
}

fn add_model_queues(registry: &mut Registry, hub: &HubState) {
    let running = Family::<QueueLabels, Gauge>::default();
    let waiting = Family::<QueueLabels, Gauge>::default();
    let available = Family::<BackendAvailabilityLabels, Gauge>::default();
    for it in hub.models.current().status() {
        let labels = QueueLabels { model: it.name };
        running.get_or_create(&labels).inc_by(count(it.running));
        waiting.get_or_create(&labels).inc_by(count(it.waiting));
        let labels = BackendAvailabilityLabels {
            model: labels.model,
            backend: it.backend,
        };
        available
            .get_or_create(&labels)
            .set(i64::from(it.cooldown.is_zero()));
    }
    registry.register(
        "maru_model_backend_available",
        "0 for a backend that is used last because it failed repeatedly, 1 for others",
        available,
    );
    registry.register(
        "maru_model_queue_running",
        "Requests to a model that are in progress",
        running,
    );
    registry.register(
        "maru_model_queue_waiting",
        "Requests that wait in the queue of a model",
        waiting,
    );
}

fn add_hub(registry: &mut Registry, hub: &HubState) {
    let (waiting, lost) = hub.audit.queue_depth();
    let (unauthorized, forbidden) = hub.rejected_requests.counts();
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("maru_build", "Version of this hub", version);
    add_gauge(
        registry,
        "maru_sessions",
        "Open MCP sessions",
        hub.engine.session_count(),
    );
    add_gauge(
        registry,
        "maru_audit_queue",
        "Audit records that wait to be written",
        waiting,
    );
    registry.register(
        "maru_audit_lost",
        "Lost audit records of calls",
        ConstCounter::new(lost),
    );
    registry.register(
        "maru_requests_unauthorized",
        "Requests without a valid token",
        ConstCounter::new(unauthorized),
    );
    registry.register(
        "maru_requests_forbidden",
        "Requests whose token does not allow them",
        ConstCounter::new(forbidden),
    );
}

fn add_process(registry: &mut Registry) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmRSS:"));
    let kib = line.and_then(|it| it.split_whitespace().nth(1)?.parse::<usize>().ok());
    if let Some(kib) = kib {
        add_gauge(
            registry,
            "process_resident_memory_bytes",
            "Resident memory of the hub",
            kib * 1024,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        add_gauge(
            registry,
            "process_open_fds",
            "Open file descriptors of the hub",
            open.count(),
        );
    }
}

fn add_gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge = Gauge::<i64>::default();
    gauge.set(count(value));
    registry.register(name, help, gauge);
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
