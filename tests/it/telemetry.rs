//! Figures and traces for those who watch a hub.

mod collector;

use std::time::Duration;

use maru::config::{ModelDefinition, ModelPrice};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    agent::model_that_calls,
    http_client::TestRequest,
    openai::fake_model::{FakeModelServer, json_response},
    signals::ServeProcess,
    test_hub::{TestHub, call_message, request_message, stateless_message},
};
use collector::{ReceivedSpan, TestCollector};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_calls_by_tool_and_outcome() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    for _ in 0..3 {
        let body = call_message(1, "get_employee_info", json!({"employee_id": "EMP001"}));
        hub.session_request(&session, &body)
            .send()
            .await
            .rpc_response()
            .await;
    }
    for tool in ["get_employee_info", "no_such_tool\"x"] {
        hub.session_request(&session, &call_message(2, tool, json!({})))
            .send()
            .await
            .rpc_response()
            .await;
    }
    for sql in ["SELECT 1", "DELETE FROM employees"] {
        let body = call_message(3, "query_bga_database", json!({"generated_sql": sql}));
        hub.session_request(&session, &body)
            .send()
            .await
            .rpc_response()
            .await;
    }
    let shown = hub.send_as_admin("GET", "/metrics", Value::Null).await;
    assert_eq!(
        shown.headers["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    let text = shown.text().await;
    for line in [
        "maru_tool_calls_total{server=\"maru\",tool=\"get_employee_info\",outcome=\"ok\"} 3",
        "maru_tool_calls_total{server=\"maru\",tool=\"get_employee_info\",outcome=\"refused\"} 1",
        "maru_tool_calls_total{server=\"\",tool=\"(others)\",outcome=\"refused\"} 1",
        "maru_tool_call_duration_seconds_count{server=\"maru\",tool=\"get_employee_info\"} 4",
        "maru_tool_call_duration_seconds_bucket{le=\"+Inf\",server=\"maru\",tool=\"get_employee_info\"} 4",
        "maru_sessions 1",
        "maru_audit_lost_total 0",
        "maru_http_requests_total{method=\"POST\",route=\"/mcp\",status=\"200\"} 8",
        "maru_requests_unauthorized_total 0",
        "maru_sql_statements_total{source=\"sample\",outcome=\"ok\"} 1",
        "maru_sql_statements_total{source=\"sample\",outcome=\"refused\"} 1",
        "maru_sql_statement_duration_seconds_count{source=\"sample\"} 2",
        "# EOF",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    assert!(!text.contains("no_such_tool"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_and_tokens_of_models() {
    let backend = FakeModelServer::start(|_, _| {
        let message = json!({"role": "assistant", "content": "Good day."});
        let usage = json!({"prompt_tokens": 30, "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 5}});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        json_response(200, "", &json!({"choices": [choice], "usage": usage}))
    })
    .await;
    let priced = ModelDefinition {
        price: Some(ModelPrice {
            input: 1e6,
            output: 2e6,
            cached: Some(0.0),
        }),
        ..backend.model()
    };
    let hub = TestHub::with_config(|config| config.models = vec![priced]).await;
    let body = json!({"model": "small", "messages": [{"role": "user", "content": "Hi"}]});
    let answer = hub.send_as_admin("POST", "/v1/chat/completions", body);
    assert_eq!(answer.await.status, 200);
    let shown = hub.send_as_admin("GET", "/metrics", Value::Null).await;
    let text = shown.text().await;
    let at = format!("model=\"*\",backend=\"127.0.0.1:{}\"", backend.port);
    let of_the_backend = [
        format!("maru_model_requests_total{{{at},outcome=\"ok\"}} 1"),
        format!("maru_model_tokens_total{{{at},kind=\"input\"}} 30"),
        format!("maru_model_tokens_total{{{at},kind=\"cached\"}} 10"),
        format!("maru_model_tokens_total{{{at},kind=\"output\"}} 20"),
        format!("maru_model_tokens_total{{{at},kind=\"reasoning\"}} 5"),
        format!("maru_model_cost_total{{{at}}} 60.0"),
    ];
    for line in of_the_backend.iter().map(String::as_str).chain([
        "maru_model_request_duration_seconds_count{model=\"*\"} 1",
        "maru_model_queue_wait_seconds_count{model=\"*\"} 1",
        "maru_model_time_to_first_token_seconds_count{model=\"*\"} 1",
        "maru_model_queue_running{model=\"*\"} 0",
        "maru_model_queue_waiting{model=\"*\"} 0",
    ]) {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

/// Names that a peer chooses must not add series without end.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_do_not_grow_with_names_of_peers() {
    const NAMES: usize = 200;
    let backend =
        FakeModelServer::start(|_, _| crate::openai::fake_model::text_response("Good day.")).await;
    let hub = TestHub::with_config(|config| config.models = vec![backend.model()]).await;
    let send_names = async |from: usize, until: usize| {
        for number in from..until {
            let name = format!("endless{number}");
            let call = call_message(1, &name, json!({}));
            TestRequest::post(&hub.address, "/sse", &call).send().await;
            let resource = request_message(2, "resources/read", json!({"uri": name}));
            TestRequest::post(&hub.address, "/sse", &resource)
                .send()
                .await;
            let chat = json!({"model": name, "messages": [{"role": "user", "content": "Hi"}]});
            hub.send_as_admin("POST", "/v1/chat/completions", chat)
                .await;
            for path in [format!("/{name}"), format!("/mcp/{name}")] {
                TestRequest::new(&hub.address, "GET", &path).send().await;
            }
            let sql = json!({"generated_sql": "SELECT 1", "source": name});
            let call = call_message(3, "query_bga_database", sql);
            TestRequest::post(&hub.address, "/sse", &call).send().await;
        }
        let shown = hub.send_as_admin("GET", "/metrics", Value::Null).await;
        shown.text().await
    };
    // The first requests add the series that all of them share, and that of `/metrics`.
    send_names(0, 1).await;
    let first = send_names(1, 5).await;
    let last = send_names(5, NAMES).await;
    assert!(!last.contains("endless"), "{last}");
    assert_eq!(first.lines().count(), last.lines().count());
}

async fn call_employee_info(hub: &ServeProcess, body: &str) -> Value {
    TestRequest::new(&hub.address, "POST", "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "get_employee_info")
        .body(body)
        .send()
        .await
        .rpc_response()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_is_in_the_trace_that_meta_names_with_spaces() {
    let collector = TestCollector::start().await;
    let hub = ServeProcess::start(&collector.settings()).await;
    let params = json!({
        "name": "get_employee_info", "arguments": {"employee_id": "EMP001"},
        "_meta": {"traceparent": format!("00-{TRACE}-{CLIENT_SPAN}-01")},
    });
    // As Python writes JSON by default.
    let body = stateless_message("tools/call", params)
        .to_string()
        .replace("\"traceparent\":", "\"traceparent\": ");
    call_employee_info(&hub, &body).await;
    let spans = collector.wait_for(|it| it.len() >= 2).await;
    let call = spans
        .iter()
        .find(|it| it.name == "tools/call get_employee_info")
        .unwrap();
    assert_eq!((&*call.trace, &*call.parent), (TRACE, CLIENT_SPAN));
    assert_eq!(call.attributes["mcp.method.name"], "tools/call");
    assert_eq!(call.attributes["gen_ai.tool.name"], "get_employee_info");
    assert_eq!(call.attributes["maru.outcome"], "ok");
    assert!(!format!("{spans:?}").contains("EMP001"), "{spans:?}");
}

/// The path from `span` up to the client, as names; a hub is told by its instance.
fn path_of(spans: &[ReceivedSpan], span: &ReceivedSpan) -> Vec<String> {
    let mut path = Vec::new();
    let mut at = Some(span);
    while let Some(span) = at {
        assert_eq!(span.trace, TRACE, "{span:?}");
        path.push(span.name.clone());
        if span.parent == CLIENT_SPAN {
            path.push("client".to_owned());
        }
        at = spans.iter().find(|it| it.id == span.parent);
    }
    path.reverse();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_run_is_one_trace_across_two_hubs() {
    let collector = TestCollector::start().await;
    let inner = ServeProcess::start(&collector.settings()).await;
    let query = json!({"generated_sql": "SELECT 7"});
    let backend = model_that_calls("inner__query_bga_database", query, "Seven.").await;
    let yaml = format!(
        "{}mcp: {{servers: [{{name: inner, transport: http, url: 'http://{}/mcp'}}]}}\n\
         models: [{{name: small, base_url: '{}'}}]\nagent: {{model: small}}\n",
        collector.settings(),
        inner.address,
        backend.url(),
    );
    let outer = ServeProcess::start(&yaml).await;
    let params =
        json!({"messages": [{"role": "user", "content": "Ask."}], "mcp_servers": ["inner"]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
    let answer = TestRequest::post(&outer.address, "/generate_with_mcp", &body)
        .header("traceparent", &format!("00-{TRACE}-{CLIENT_SPAN}-01"))
        .send()
        .await
        .json()
        .await;
    assert_eq!(answer["result"]["text"], "Seven.", "{answer}");
    assert_eq!(
        answer["result"]["tool_calls"][0]["is_error"], false,
        "{answer}"
    );
    let is_ours = |it: &&ReceivedSpan| it.trace == TRACE;
    let spans = collector.wait_for(|all| all.iter().filter(is_ours).count() >= 9);
    let spans: Vec<_> = spans
        .await
        .into_iter()
        .filter(|it| it.trace == TRACE)
        .collect();
    let mut paths: Vec<String> = spans
        .iter()
        .map(|it| path_of(&spans, it).join(" > "))
        .collect();
    paths.sort();
    let run = "client > POST /generate_with_mcp > invoke_agent maru";
    let call = format!("{run} > tools/call inner__query_bga_database");
    let upstream = format!("{call} > tools/call query_bga_database");
    let served = format!("{upstream} > POST /mcp");
    let expected = [
        "client > POST /generate_with_mcp".to_owned(),
        run.to_owned(),
        format!("{run} > chat small"),
        format!("{run} > chat small"),
        call,
        upstream,
        served.clone(),
        format!("{served} > tools/call query_bga_database"),
        format!("{served} > tools/call query_bga_database > SELECT sample"),
    ];
    assert_eq!(paths, expected);
    let instance = |name: &str| &spans.iter().find(|it| it.name == name).unwrap().instance;
    assert_eq!(instance("POST /mcp"), instance("SELECT sample"));
    assert_ne!(instance("POST /mcp"), instance("invoke_agent maru"));
    let chat = spans.iter().find(|it| it.name == "chat small").unwrap();
    assert_eq!(chat.attributes["gen_ai.operation.name"], "chat");
    assert_eq!(chat.attributes["gen_ai.request.model"], "small");
    let shown = format!("{spans:?}");
    assert!(!shown.contains("SELECT 7"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_collector_delays_neither_calls_nor_the_end() {
    // Connections are made and never answered.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let yaml = format!("telemetry: {{otlp_endpoint: 'http://{address}'}}\n");
    let mut hub = ServeProcess::start(&yaml).await;
    let params = json!({"name": "get_employee_info", "arguments": {"employee_id": "EMP001"}});
    let body = stateless_message("tools/call", params).to_string();
    let started = Instant::now();
    for _ in 0..600 {
        let answer = call_employee_info(&hub, &body).await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    // More than a batch was made, and the collector has 5 s for each.
    assert!(started.elapsed() < Duration::from_secs(5));
    hub.stop().await;
}
