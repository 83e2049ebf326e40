//! Turns at a backend, and what leaving means.

use std::time::Duration;

use serde_json::json;

use super::{
    backend::{Backend, Step, delta, stream_head, text},
    client::{ask, gather, question, whole},
};
use crate::{hub::TestHub, wire::Ask};

/// A hub with one turn, which somebody has.
async fn taken(waiting: u32) -> (Backend, TestHub, crate::wire::Reply) {
    let backend = Backend::start(|number, seen| match number {
        0 => vec![
            stream_head(),
            delta(json!({"content": "Hello, "}), None),
            Step::Hang,
        ],
        _ if seen.body["stream"] == true => super::backend::letters("next", "stop"),
        _ => text("next"),
    })
    .await;
    let hub = TestHub::with(|config| {
        backend.behind(config);
        config.models[0].max_concurrent = Some(1);
        config.models[0].max_waiting = waiting;
    })
    .await;
    let mut first = ask(&hub, &question(json!({"stream": true}))).send().await;
    assert!(first.event().await.is_some());
    (backend, hub, first)
}

async fn load(hub: &TestHub) -> (u64, u64) {
    let status = Ask::new(&hub.address, "GET", "/api/models")
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
async fn a_client_that_leaves_closes_the_backends_stream_and_frees_its_place() {
    let (backend, hub, first) = taken(1).await;
    assert_eq!(load(&hub).await, (1, 0));
    drop(first);
    backend.left(1).await;
    let (message, _) = whole(&hub, json!({})).await;
    assert_eq!(message["content"], "next");
    assert_eq!(load(&hub).await, (0, 0));
}

#[tokio::test]
async fn a_full_queue_is_429_with_a_time_to_come_back() {
    let (_backend, hub, _first) = taken(0).await;
    let reply = ask(&hub, &question(json!({}))).send().await;
    assert_eq!(reply.status, 429);
    assert!(reply.headers["retry-after"].parse::<u64>().unwrap() >= 1);
    let error = reply.json().await;
    assert_eq!(error["error"]["code"], "queue_full");
    assert_eq!(error["error"]["type"], "rate_limit_error");
}

#[tokio::test]
async fn who_waits_is_told_the_place() {
    let (_backend, hub, first) = taken(5).await;
    let body = question(json!({"stream": true}));
    let waiting = ask(&hub, &body).send().await;
    // It begins before its turn, to tell the place.
    assert_eq!(waiting.status, 200);
    assert_eq!(load(&hub).await, (1, 1));
    let quick = ask(&hub, &question(json!({}))).send();
    let free = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(first);
    };
    let (quick, ()) = tokio::join!(quick, free);
    assert_eq!(quick.headers["x-maru-queue-place"], "2");
    assert_eq!(gather(waiting).await.text, "next");
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_queue() {
    let (_backend, hub, _first) = taken(5).await;
    let waiting = ask(&hub, &question(json!({"stream": true}))).send().await;
    assert_eq!(load(&hub).await.1, 1);
    drop(waiting);
    for _ in 0..100 {
        if load(&hub).await.1 == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the place is not freed");
}

#[tokio::test]
async fn requests_of_a_minute_are_bounded() {
    let backend = Backend::always(text("hi")).await;
    let hub = TestHub::with(|config| {
        backend.behind(config);
        config.models[0].requests_per_minute = Some(2);
        config.models[0].max_waiting = 0;
    })
    .await;
    whole(&hub, json!({})).await;
    whole(&hub, json!({})).await;
    let reply = ask(&hub, &question(json!({}))).send().await;
    assert_eq!(reply.status, 429);
    let wait: u64 = reply.headers["retry-after"].parse().unwrap();
    assert!((50..=60).contains(&wait), "{wait}");
    assert_eq!(backend.seen().len(), 2);
}
