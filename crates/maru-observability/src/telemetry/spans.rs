//! The spans of the hub, by the OpenTelemetry semantic conventions for HTTP, MCP and
//! generative AI. The spans of SQL statements are in `maru-sources`.
//!
//! Spans contain no arguments, results, prompts or responses.

use hyper::{HeaderMap, Method, StatusCode};
use tracing::{Span, field::Empty, info_span};

use super::propagation::RemoteTrace;
use crate::journal::ToolCallOutcome;

/// The longest name from outside in a span.
const MAX_NAME_BYTES: usize = 200;

/// An HTTP request to the hub, in the trace that its headers name.
pub fn http_request(method: &Method, route: &str, headers: &HeaderMap) -> Span {
    let span = info_span!(
        "http_request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method.as_str(),
        http.route = route,
        http.response.status_code = Empty,
    );
    if let Some(trace) = RemoteTrace::from_headers(headers) {
        trace.adopt(&span);
    }
    span
}

/// Records the status of an HTTP response.
pub fn record_http_status(span: &Span, status: StatusCode) {
    span.record("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// A tool call, from any caller. The call journal records its outcome.
pub fn tool_call(tool: &str, server: &str, principal: &str) -> Span {
    let tool = truncate_name(tool);
    info_span!(
        "tool_call",
        otel.name = format!("tools/call {tool}"),
        otel.kind = "server",
        otel.status_code = Empty,
        mcp.method.name = "tools/call",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        maru.server = server,
        maru.principal = principal,
        maru.outcome = Empty,
        "error.type" = Empty,
    )
}

/// Records how a tool call ended.
pub fn record_tool_outcome(span: &Span, outcome: ToolCallOutcome) {
    if span.is_disabled() {
        return;
    }
    span.record("maru.outcome", outcome.as_str());
    if outcome != ToolCallOutcome::Ok {
        record_error(span, outcome.as_str());
    }
}

/// A request to an upstream server for the tool, prompt or resource `key`.
pub fn upstream_request(method: &str, key: &str, server: &str) -> Span {
    let key = truncate_name(key);
    let span = info_span!(
        "upstream_request",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        mcp.method.name = method,
        gen_ai.operation.name = Empty,
        gen_ai.tool.name = Empty,
        gen_ai.prompt.name = Empty,
        mcp.resource.uri = Empty,
        maru.server = server,
        "error.type" = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    // URIs are unbounded, so they are not part of a span's name.
    let name = match method {
        "resources/read" => method.to_owned(),
        _ => format!("{method} {key}"),
    };
    span.record("otel.name", name);
    match method {
        "tools/call" => {
            span.record("gen_ai.operation.name", "execute_tool");
            span.record("gen_ai.tool.name", key);
        }
        "prompts/get" => {
            span.record("gen_ai.prompt.name", key);
        }
        "resources/read" => {
            span.record("mcp.resource.uri", key);
        }
        _ => (),
    }
    span
}

/// A request to a model, from the queue to the end of the response.
pub fn model_request(provider: &str, model: &str) -> Span {
    let model = truncate_name(model);
    info_span!(
        "model_request",
        otel.name = format!("chat {model}"),
        otel.kind = "client",
        otel.status_code = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider,
        gen_ai.request.model = model,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.response.finish_reasons = Empty,
        "error.type" = Empty,
    )
}

/// A run of the agent; model requests and tool calls are below it.
pub fn agent_run() -> Span {
    info_span!(
        "agent_run",
        otel.name = "invoke_agent maru",
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = "maru",
        gen_ai.request.model = Empty,
        gen_ai.conversation.id = Empty,
        "error.type" = Empty,
    )
}

/// Marks a span as failed; `kind` is one of few words.
pub fn record_error(span: &Span, kind: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", kind);
}

fn truncate_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME_BYTES)]
}
