//! `GET /metrics`: figures in the text format of Prometheus.

use std::{fmt::Write as _, fs, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};

use super::HubState;
use crate::observability::journal::{LATENCY_BOUNDS_SECONDS, ToolCallOutcome, ToolTotal};

/// What is told of every tool, every server, and the hub itself.
pub(super) async fn show(State(hub): State<Arc<HubState>>) -> Response {
    let mut out = String::new();
    let totals = hub.engine.catalog().journal().totals();
    write_calls(&mut out, &totals);
    write_durations(&mut out, &totals);
    write_servers(&mut out, &hub);
    write_hub(&mut out, &hub);
    write_process(&mut out);
    let mut response = Response::new(Body::from(out));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn write_header(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn write_metric(
    out: &mut String,
    (name, kind, help): (&str, &str, &str),
    value: impl std::fmt::Display,
) {
    write_header(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
}

/// A label's value.
fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn write_calls(out: &mut String, totals: &[(Arc<str>, ToolTotal)]) {
    let name = "maru_tool_calls_total";
    write_header(out, name, "counter", "Calls by tool and how they ended.");
    for (tool, total) in totals {
        let (server, tool) = (escape_label(&total.server), escape_label(tool));
        for (outcome, count) in ToolCallOutcome::ALL.iter().zip(total.outcomes) {
            if count > 0 {
                let outcome = outcome.as_str();
                let _ = writeln!(
                    out,
                    "{name}{{server=\"{server}\",tool=\"{tool}\",outcome=\"{outcome}\"}} {count}"
                );
            }
        }
    }
}

fn write_durations(out: &mut String, totals: &[(Arc<str>, ToolTotal)]) {
    let name = "maru_tool_call_duration_seconds";
    write_header(out, name, "histogram", "How long calls took.");
    for (tool, total) in totals {
        let labels = format!(
            "server=\"{}\",tool=\"{}\"",
            escape_label(&total.server),
            escape_label(tool)
        );
        let mut count = 0;
        for (bound, calls) in LATENCY_BOUNDS_SECONDS.iter().zip(total.latency_counts) {
            count += calls;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let all: u64 = total.latency_counts.iter().sum();
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
        let _ = writeln!(
            out,
            "{name}_sum{{{labels}}} {}",
            total.total_duration.as_secs_f64()
        );
        let _ = writeln!(out, "{name}_count{{{labels}}} {all}");
    }
}

fn write_servers(out: &mut String, hub: &HubState) {
    let all = hub.servers.list();
    write_header(
        out,
        "maru_server_state",
        "gauge",
        "1 for the state that a server is in.",
    );
    for it in &all {
        let (name, state) = (
            escape_label(it.server.name.as_str()),
            it.status.state.as_str(),
        );
        let _ = writeln!(
            out,
            "maru_server_state{{server=\"{name}\",state=\"{state}\"}} 1"
        );
    }
    write_header(
        out,
        "maru_server_tools",
        "gauge",
        "Tools that a server offers.",
    );
    for it in &all {
        let (name, tools) = (escape_label(it.server.name.as_str()), it.status.tools.len());
        let _ = writeln!(out, "maru_server_tools{{server=\"{name}\"}} {tools}");
    }
    write_header(
        out,
        "maru_server_withheld",
        "gauge",
        "What a server lists and maru does not offer.",
    );
    for it in &all {
        let (name, withheld) = (
            escape_label(it.server.name.as_str()),
            it.status.withheld.len(),
        );
        let _ = writeln!(out, "maru_server_withheld{{server=\"{name}\"}} {withheld}");
    }
}

fn write_hub(out: &mut String, hub: &HubState) {
    let (waiting, lost) = hub.audit.queue_depth();
    let (denied, refused) = hub.rejected_requests.counts();
    let version = env!("CARGO_PKG_VERSION");
    write_header(out, "maru_build_info", "gauge", "Version of this hub.");
    let _ = writeln!(out, "maru_build_info{{version=\"{version}\"}} 1");
    write_metric(
        out,
        ("maru_sessions", "gauge", "MCP sessions that are open."),
        hub.engine.session_count(),
    );
    write_metric(
        out,
        (
            "maru_audit_queue",
            "gauge",
            "Audit records that wait to be written.",
        ),
        waiting,
    );
    write_metric(
        out,
        (
            "maru_audit_lost_total",
            "counter",
            "Audit records of calls that were lost.",
        ),
        lost,
    );
    write_metric(
        out,
        (
            "maru_requests_unauthorized_total",
            "counter",
            "Requests without a token that is known.",
        ),
        denied,
    );
    write_metric(
        out,
        (
            "maru_requests_forbidden_total",
            "counter",
            "Requests whose token does not allow them.",
        ),
        refused,
    );
}

fn write_process(out: &mut String) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmRSS:"));
    let kib = line.and_then(|it| it.split_whitespace().nth(1)?.parse::<u64>().ok());
    if let Some(kib) = kib {
        write_metric(
            out,
            (
                "process_resident_memory_bytes",
                "gauge",
                "Memory of the hub.",
            ),
            kib * 1024,
        );
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        write_metric(
            out,
            ("process_open_fds", "gauge", "Open files of the hub."),
            open.count(),
        );
    }
}
