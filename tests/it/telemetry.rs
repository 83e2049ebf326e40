//! Figures and traces for those who watch a hub.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, routing::post};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::test_hub::{TestHub, call_message};

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
    let shown = hub.send_as_admin("GET", "/metrics", Value::Null).await;
    assert_eq!(
        shown.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = shown.text().await;
    for line in [
        "maru_tool_calls_total{server=\"maru\",tool=\"get_employee_info\",outcome=\"ok\"} 3",
        "maru_tool_calls_total{server=\"maru\",tool=\"get_employee_info\",outcome=\"refused\"} 1",
        "maru_tool_calls_total{server=\"\",tool=\"(others)\",outcome=\"refused\"} 1",
        "maru_tool_call_duration_seconds_count{server=\"maru\",tool=\"get_employee_info\"} 4",
        "maru_tool_call_duration_seconds_bucket{server=\"maru\",tool=\"get_employee_info\",le=\"+Inf\"} 4",
        "maru_sessions 1",
        "maru_audit_lost_total 0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    assert!(!text.contains("no_such_tool"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_reach_a_collector_in_the_trace_of_the_client() {
    let got: Arc<Mutex<Vec<Value>>> = Arc::default();
    let kept = Arc::clone(&got);
    let taken = move |headers: axum::http::HeaderMap, body: String| async move {
        assert_eq!(headers["x-key"], "k");
        kept.lock()
            .unwrap()
            .push(serde_json::from_str(&body).unwrap());
        "{}"
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    maru_runtime::tasks::Tasks::default().spawn(async move {
        let router = Router::new().route("/v1/traces", post(taken));
        let _ = axum::serve(listener, router).await;
    });
    let hub = TestHub::with_config(|config| {
        config.telemetry.otlp_endpoint = Some(format!("http://{address}"));
        let key = maru::config::SecretString::from("k".to_owned());
        config.telemetry.headers.insert("x-key".to_owned(), key);
    })
    .await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let params = json!({
        "name": "get_employee_info", "arguments": {"employee_id": "EMP001"},
        "_meta": {"traceparent": format!("00-{trace}-00f067aa0ba902b7-01")},
    });
    hub.stateless_request("tools/call", params)
        .send()
        .await
        .rpc_response()
        .await;
    let began = Instant::now();
    while got.lock().unwrap().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(50)).await;
    }
    let sent = got.lock().unwrap()[0].clone();
    let span = &sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], trace);
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(span["name"], "tools/call get_employee_info");
    assert!(!sent.to_string().contains("EMP001"), "{sent}");
}
