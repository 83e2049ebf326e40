//! `GET /metrics`: figures in the text format of Prometheus.

use std::{fmt::Write as _, fs, sync::Arc};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, header},
    response::Response,
};

use super::Hub;
use crate::journal::{Outcome, STEPS, Total};

/// What is told of every tool, every server, and the hub itself.
pub(super) async fn show(State(hub): State<Arc<Hub>>) -> Response {
    let mut out = String::new();
    let totals = hub.engine.catalog().journal().totals();
    calls(&mut out, &totals);
    times(&mut out, &totals);
    servers(&mut out, &hub);
    own(&mut out, &hub);
    process(&mut out);
    let mut response = Response::new(Body::from(out));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn one(out: &mut String, (name, kind, help): (&str, &str, &str), value: impl std::fmt::Display) {
    head(out, name, kind, help);
    let _ = writeln!(out, "{name} {value}");
}

/// A label's value.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn calls(out: &mut String, totals: &[(Arc<str>, Total)]) {
    let name = "maru_tool_calls_total";
    head(out, name, "counter", "Calls by tool and how they ended.");
    for (tool, total) in totals {
        let (server, tool) = (label(&total.server), label(tool));
        for (outcome, count) in Outcome::ALL.iter().zip(total.outcomes) {
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

fn times(out: &mut String, totals: &[(Arc<str>, Total)]) {
    let name = "maru_tool_call_duration_seconds";
    head(out, name, "histogram", "How long calls took.");
    for (tool, total) in totals {
        let labels = format!(
            "server=\"{}\",tool=\"{}\"",
            label(&total.server),
            label(tool)
        );
        let mut count = 0;
        for (bound, calls) in STEPS.iter().zip(total.steps) {
            count += calls;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let all: u64 = total.steps.iter().sum();
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {all}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", total.time.as_secs_f64());
        let _ = writeln!(out, "{name}_count{{{labels}}} {all}");
    }
}

fn servers(out: &mut String, hub: &Hub) {
    let all = hub.servers.list();
    head(
        out,
        "maru_server_state",
        "gauge",
        "1 for the state that a server is in.",
    );
    for it in &all {
        let (name, state) = (label(it.server.name.as_str()), it.status.state.name());
        let _ = writeln!(
            out,
            "maru_server_state{{server=\"{name}\",state=\"{state}\"}} 1"
        );
    }
    head(
        out,
        "maru_server_tools",
        "gauge",
        "Tools that a server offers.",
    );
    for it in &all {
        let (name, tools) = (label(it.server.name.as_str()), it.status.tools.len());
        let _ = writeln!(out, "maru_server_tools{{server=\"{name}\"}} {tools}");
    }
    head(
        out,
        "maru_server_withheld",
        "gauge",
        "What a server lists and maru does not offer.",
    );
    for it in &all {
        let (name, withheld) = (label(it.server.name.as_str()), it.status.withheld.len());
        let _ = writeln!(out, "maru_server_withheld{{server=\"{name}\"}} {withheld}");
    }
}

fn own(out: &mut String, hub: &Hub) {
    let (waiting, lost) = hub.audit.depth();
    let (denied, refused) = hub.turned_away.counts();
    let version = env!("CARGO_PKG_VERSION");
    head(out, "maru_build_info", "gauge", "Version of this hub.");
    let _ = writeln!(out, "maru_build_info{{version=\"{version}\"}} 1");
    one(
        out,
        ("maru_sessions", "gauge", "MCP sessions that are open."),
        hub.engine.session_count(),
    );
    one(
        out,
        (
            "maru_audit_queue",
            "gauge",
            "Audit records that wait to be written.",
        ),
        waiting,
    );
    one(
        out,
        (
            "maru_audit_lost_total",
            "counter",
            "Audit records of calls that were lost.",
        ),
        lost,
    );
    one(
        out,
        (
            "maru_requests_unauthorized_total",
            "counter",
            "Requests without a token that is known.",
        ),
        denied,
    );
    one(
        out,
        (
            "maru_requests_forbidden_total",
            "counter",
            "Requests whose token does not allow them.",
        ),
        refused,
    );
}

fn process(out: &mut String) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|it| it.starts_with("VmRSS:"));
    let kib = line.and_then(|it| it.split_whitespace().nth(1)?.parse::<u64>().ok());
    if let Some(kib) = kib {
        one(
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
        one(
            out,
            ("process_open_fds", "gauge", "Open files of the hub."),
            open.count(),
        );
    }
}
