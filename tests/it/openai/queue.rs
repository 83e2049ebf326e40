//! Turns at a backend, and what leaving means.

use serde_json::json;

use super::{
    chat_client::{chat_body, chat_request, complete, read_stream},
    fake_model::{FakeModelServer, ScriptStep, delta_step, stream_head, text_response},
};
use crate::{
    http_client::{TestRequest, wait_for},
    test_hub::TestHub,
};

/// A hub with one turn, which somebody has.
async fn hub_with_busy_model(
    waiting: u32,
) -> (FakeModelServer, TestHub, crate::http_client::TestResponse) {
    let backend = FakeModelServer::start(|number, seen| match number {
        0 => vec![
            stream_head(),
            delta_step(json!({"content": "Hello, "}), None),
            ScriptStep::WaitForClose,
        ],
        _ if seen.body["stream"] == true => super::fake_model::streamed_by_byte("next", "stop"),
        _ => text_response("next"),
    })
    .await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].max_concurrent = Some(1);
        config.models[0].max_waiting = waiting;
    })
    .await;
    let mut first = chat_request(&hub, &chat_body(json!({"stream": true})))
        .send()
        .await;
    assert!(first.next_event().await.is_some());
    (backend, hub, first)
}

async fn queue_load(hub: &TestHub) -> (u64, u64) {
    let status = TestRequest::new(&hub.address, "GET", "/api/models")
        .send()
        .await
        .json()
        .await;
    (
        status[0]["running"].as_u64().unwrap(),
        status[0]["waiting"].as_u64().unwrap(),
    )
}

#[tokio::test]
async fn disconnected_client_closes_the_backend_stream_and_frees_its_queue_slot() {
    let (backend, hub, first) = hub_with_busy_model(1).await;
    assert_eq!(queue_load(&hub).await, (1, 0));
    drop(first);
    backend.wait_for_disconnects(1).await;
    let (message, _) = complete(&hub, json!({})).await;
    assert_eq!(message["content"], "next");
    assert_eq!(queue_load(&hub).await, (0, 0));
}

#[tokio::test]
async fn full_queue_returns_429_with_retry_after() {
    let (_backend, hub, _first) = hub_with_busy_model(0).await;
    let reply = chat_request(&hub, &chat_body(json!({}))).send().await;
    assert_eq!(reply.status, 429);
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    let error = reply.json().await;
    assert_eq!(error["error"]["code"], "queue_full");
    assert_eq!(error["error"]["type"], "rate_limit_error");
}

#[tokio::test]
async fn waiting_client_is_told_its_queue_position() {
    let (_backend, hub, first) = hub_with_busy_model(5).await;
    let body = chat_body(json!({"stream": true}));
    let waiting = chat_request(&hub, &body).send().await;
    // It begins before its turn, to tell the place.
    assert_eq!(waiting.status, 200);
    assert_eq!(queue_load(&hub).await, (1, 1));
    let quick = chat_request(&hub, &chat_body(json!({}))).send();
    let free = async {
        wait_for(async || queue_load(&hub).await, |it| *it == (1, 2)).await;
        drop(first);
    };
    let (quick, ()) = tokio::join!(quick, free);
    assert_eq!(quick.headers["x-maru-queue-place"], "2");
    assert_eq!(read_stream(waiting).await.text, "next");
}

#[tokio::test]
async fn cancelled_request_leaves_the_queue() {
    let (_backend, hub, _first) = hub_with_busy_model(5).await;
    let waiting = chat_request(&hub, &chat_body(json!({"stream": true})))
        .send()
        .await;
    assert_eq!(queue_load(&hub).await.1, 1);
    drop(waiting);
    wait_for(async || queue_load(&hub).await, |it| it.1 == 0).await;
}

#[tokio::test]
async fn requests_of_a_minute_are_bounded() {
    let backend = FakeModelServer::start_with_steps(text_response("hi")).await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].requests_per_minute = Some(2);
        config.models[0].max_waiting = 0;
    })
    .await;
    complete(&hub, json!({})).await;
    complete(&hub, json!({})).await;
    let reply = chat_request(&hub, &chat_body(json!({}))).send().await;
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.headers["retry-after"].parse().unwrap();
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(backend.seen().len(), 2);
}
