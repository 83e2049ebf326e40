//! The life of a session: streams, cancelling, coming back, ending.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    http_client::{TestRequest, TestResponse, wait_for, wait_until},
    suite_fixture::{self, SLOW_CALLS},
    test_hub::{TestHub, call_message, request_message},
};

const SESSION_VERSION: &str = "2025-11-25";

async fn open_stream(hub: &TestHub, session: &str) -> TestResponse {
    let reply = TestRequest::new(&hub.address, "GET", "/mcp")
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
        .send()
        .await;
    assert_eq!(reply.status, 200);
    reply
}

#[tokio::test]
async fn changes_of_the_catalog_reach_every_open_stream() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let mut streamable = open_stream(&hub, &session).await;
    let mut sse = TestRequest::new(&hub.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .send()
        .await;
    assert_eq!(sse.next_event().await.unwrap().name, "endpoint");
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = hub
        .stateless_request("subscriptions/listen", listen)
        .send()
        .await;
    let acknowledged = listening.next_message().await.unwrap();
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true})
    );

    let extra = suite_fixture::tool("extra", json!({}), |_| async {
        Err(maru_protocol::RpcError::invalid_params("never called"))
    });
    let mut offers = suite_fixture::suite_entries(hub.running.catalog());
    offers.push(extra);
    hub.publish(&offers);
    for reader in [&mut streamable, &mut sse, &mut listening] {
        let told = reader.next_message().await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
    }
}

#[tokio::test]
async fn watched_resource_is_reported_when_it_changes() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let mut reader = open_stream(&hub, &session).await;
    let subscribe = |method: &str, uri: &str| request_message(1, method, json!({"uri": uri}));
    let done = hub
        .session_request(
            &session,
            &subscribe("resources/subscribe", "test://watched-resource"),
        )
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(done["result"], json!({}));
    let missing = hub
        .session_request(&session, &subscribe("resources/subscribe", "test://none"))
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(missing["error"]["code"], -32002);

    hub.running
        .catalog()
        .notify_resource_updated("test://static-text");
    hub.running
        .catalog()
        .notify_resource_updated("test://watched-resource");
    let told = reader.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "test://watched-resource");
}

#[tokio::test]
async fn new_connection_takes_over_the_stream_of_the_old_one() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let mut first = open_stream(&hub, &session).await;
    let mut second = open_stream(&hub, &session).await;
    assert!(first.next_message().await.is_none());
    hub.publish(&suite_fixture::suite_entries(hub.running.catalog()));
    let told = second.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn response_lost_in_transit_can_be_fetched_again() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let ask = hub
        .session_request(&session, &call_message(5, "test_simple_text", json!({})))
        .header("accept", "text/event-stream");
    let mut first = ask.send().await;
    let primed = first.next_event().await.unwrap();
    let journal = hub.running.catalog().journal();
    wait_for(
        async || journal.recent(None, 1, |_| true),
        |it| !it.is_empty(),
    )
    .await;
    drop(first);
    for _ in 0..2 {
        let mut again = TestRequest::new(&hub.address, "GET", "/mcp")
            .header("accept", "text/event-stream")
            .header("mcp-session-id", &session)
            .header("last-event-id", primed.id.as_deref().unwrap())
            .send()
            .await;
        assert_eq!(again.next_message().await.unwrap()["id"], 5);
        assert!(again.next_message().await.is_none());
    }
}

#[tokio::test]
async fn stream_that_is_cut_again_after_resuming_is_given_up() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let body = call_message(8, "slow", json!({}));
    let ask = hub
        .session_request(&session, &body)
        .header("accept", "text/event-stream");
    let mut first = ask.send().await;
    let primed = first.next_event().await.unwrap();
    drop(first);
    let again = || {
        TestRequest::new(&hub.address, "GET", "/mcp")
            .header("accept", "text/event-stream")
            .header("mcp-session-id", &session)
            .header("last-event-id", primed.id.as_deref().unwrap())
            .send()
    };
    assert_eq!(again().await.status, 200);
    // When its grace is over its work ends, and its id is free.
    let body = call_message(8, "slow", json!({"milliseconds": 1}));
    wait_until_slept(&hub, &session, &body).await;
    assert_eq!(again().await.status, 410);
}

#[tokio::test]
async fn client_that_accepts_only_json_does_not_block_progress() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let chatty = suite_fixture::tool("chatty", json!({}), |ask| async move {
        for at in 0..600 {
            ask.context.send_progress(f64::from(at), None, None).await;
        }
        Ok(maru::tools::EntryResponse::Complete(
            json!({"content": []}).into(),
        ))
    });
    hub.publish(&[chatty]);
    let session = hub.initialize_session("2025-03-26", json!({})).await;
    let body = request_message(
        1,
        "tools/call",
        json!({"name": "chatty", "_meta": {"progressToken": 1}}),
    );
    let began = Instant::now();
    let single = hub
        .session_request(&session, &body)
        .header("accept", "application/json")
        .send()
        .await;
    assert_eq!(single.rpc_response().await["id"], 1);
    let batch = hub
        .session_request(&session, &json!([body]))
        .send()
        .await
        .json()
        .await;
    assert_eq!(batch[0]["id"], 1);
    assert!(began.elapsed() < Duration::from_secs(9));
}

#[tokio::test]
async fn interrupted_stream_is_resumed_at_the_last_event() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let body = request_message(
        7,
        "tools/call",
        json!({"name": "test_tool_with_progress", "arguments": {}, "_meta": {"progressToken": "p"}}),
    );
    let mut first = hub.session_request(&session, &body).send().await;
    assert!(first.is_stream());
    let primed = first.next_event().await.unwrap();
    assert!(primed.data.is_empty());
    let seen = first.next_event().await.unwrap();
    drop(first);

    let mut again = TestRequest::new(&hub.address, "GET", "/mcp")
        .header("accept", "text/event-stream")
        .header("mcp-session-id", &session)
        .header("last-event-id", seen.id.as_deref().unwrap())
        .send()
        .await;
    let mut progress = Vec::new();
    let answer = loop {
        let message = again.next_message().await.unwrap();
        if message["id"] == 7 {
            break message;
        }
        progress.push(message["params"]["progress"].as_f64().unwrap());
    };
    assert_eq!(progress, [50.0, 100.0]);
    assert_eq!(answer["result"]["content"][0]["text"], "Progressed");
    assert!(again.next_message().await.is_none());
}

#[tokio::test]
async fn cancelled_request_gets_no_response_and_frees_its_id() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let slow = hub
        .session_request(&session, &call_message(1, "slow", json!({})))
        .send();
    let cancel = async {
        wait_until(async || SLOW_CALLS.load(Relaxed) == 1).await;
        let busy = hub
            .session_request(&session, &call_message(1, "slow", json!({})))
            .send()
            .await
            .rpc_response()
            .await;
        assert_eq!(busy["error"]["code"], -32600);
        let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
        assert_eq!(
            hub.session_request(&session, &body).send().await.status,
            202
        );
    };
    let began = Instant::now();
    let (reply, ()) = tokio::join!(slow, cancel);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(reply.text().await, "");
    let free = hub
        .session_request(
            &session,
            &call_message(1, "slow", json!({"milliseconds": 1})),
        )
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(free["result"]["content"][0]["text"], "Slept");
}

#[tokio::test]
async fn session_is_limited_in_concurrent_requests() {
    let hub = TestHub::with_config(|config| config.limits.max_calls_per_session = 2).await;
    hub.publish_fixture();
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let slow = |id: i64| {
        hub.session_request(
            &session,
            &call_message(id, "slow", json!({"milliseconds": 600})),
        )
        .send()
    };
    let late = async {
        wait_until(async || SLOW_CALLS.load(Relaxed) == 2).await;
        slow(3).await.rpc_response().await
    };
    let (one, two, three) = tokio::join!(slow(1), slow(2), late);
    assert_eq!(three["error"]["code"], -32000);
    for done in [one, two] {
        assert_eq!(
            done.rpc_response().await["result"]["content"][0]["text"],
            "Slept"
        );
    }
}

#[tokio::test]
async fn deleted_session_is_gone_and_its_stream_ends() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let mut reader = open_stream(&hub, &session).await;
    let delete =
        || TestRequest::new(&hub.address, "DELETE", "/mcp").header("mcp-session-id", &session);
    assert_eq!(delete().send().await.status, 204);
    assert!(reader.next_message().await.is_none());
    assert_eq!(delete().send().await.status, 404);
    assert_eq!(
        hub.session_request(&session, &request_message(1, "ping", json!({})))
            .send()
            .await
            .status,
        404
    );
}

#[tokio::test]
async fn idle_session_ends_by_itself_and_a_read_one_does_not() {
    let hub = TestHub::with_config(|config| config.limits.session_idle_ms = 1000).await;
    let idle = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let read = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let _reader = open_stream(&hub, &read).await;
    let ping = |session: &str| {
        hub.session_request(session, &request_message(1, "ping", json!({})))
            .send()
    };
    // A request would keep the session alive, so they are counted from outside.
    let sessions = async || {
        let ready = TestRequest::new(&hub.address, "GET", "/readyz").send();
        ready.await.json().await["sessions"].clone()
    };
    wait_for(sessions, |it| it == 1).await;
    assert_eq!(ping(&idle).await.status, 404);
    assert_eq!(ping(&read).await.status, 200);
}

#[tokio::test]
async fn no_more_sessions_are_open_than_allowed() {
    let hub = TestHub::with_config(|config| config.limits.max_sessions = 1).await;
    let one = hub.initialize_session(SESSION_VERSION, json!({})).await;
    // The idle one makes room; one that is in use does not.
    let two = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let ping = request_message(1, "ping", json!({}));
    assert_eq!(hub.session_request(&one, &ping).send().await.status, 404);
    let _reader = open_stream(&hub, &two).await;
    let refused = hub
        .post(&crate::test_hub::initialize_message(
            SESSION_VERSION,
            &json!({}),
        ))
        .send()
        .await;
    assert_eq!(refused.status, 503);
    assert_eq!(hub.session_request(&two, &ping).send().await.status, 200);
}

#[tokio::test]
async fn batches_are_accepted_in_one_version_only() {
    let hub = TestHub::start().await;
    let body = json!([
        request_message(1, "ping", json!({})),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request_message(2, "tools/call", json!({"name": "get_all_employees"})),
    ]);
    let session = hub.initialize_session("2025-03-26", json!({})).await;
    let answers: Value = hub
        .session_request(&session, &body)
        .send()
        .await
        .json()
        .await;
    let ids: Vec<&Value> = answers
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["id"])
        .collect();
    assert_eq!(ids, [1, 2]);
    let only_notes = json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}]);
    assert_eq!(
        hub.session_request(&session, &only_notes)
            .send()
            .await
            .status,
        202
    );
    let newer = hub.initialize_session(SESSION_VERSION, json!({})).await;
    assert_eq!(hub.session_request(&newer, &body).send().await.status, 400);
}

#[tokio::test]
async fn log_messages_go_only_to_clients_that_enabled_logging() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let quiet = hub
        .session_request(&session, &call_message(1, "get_all_employees", json!({})))
        .send()
        .await;
    assert!(!quiet.is_stream());
    let level = request_message(2, "logging/setLevel", json!({"level": "debug"}));
    assert_eq!(
        hub.session_request(&session, &level)
            .send()
            .await
            .rpc_response()
            .await["result"],
        json!({})
    );
    let mut told = hub
        .session_request(&session, &call_message(3, "get_all_employees", json!({})))
        .send()
        .await;
    let log = told.next_message().await.unwrap();
    assert_eq!(log["method"], "notifications/message");
    assert_eq!(log["params"]["data"]["tool"], "get_all_employees");
    assert_eq!(told.next_message().await.unwrap()["id"], 3);
}

#[tokio::test]
async fn vanished_client_does_not_block_the_hub() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    for id in 0..20 {
        let asked = hub
            .session_request(&session, &call_message(id, "slow", json!({})))
            .send();
        // The client gives up; the request goes on for its grace.
        let _ = tokio::time::timeout(Duration::from_millis(20), asked).await;
    }
    let other = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let answer = hub
        .session_request(&other, &call_message(1, "test_simple_text", json!({})))
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(answer["result"]["isError"], false);
    // After the grace nothing of the session runs any more, so its ids are free.
    for id in 0..20 {
        let body = call_message(id, "slow", json!({"milliseconds": 1}));
        wait_until_slept(&hub, &session, &body).await;
    }
}

#[tokio::test]
async fn stopping_finishes_requests_and_ends_streams() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session(SESSION_VERSION, json!({})).await;
    let mut reader = open_stream(&hub, &session).await;
    let listening = json!({"notifications": {"toolsListChanged": true}});
    let mut listening = hub
        .stateless_request("subscriptions/listen", listening)
        .send()
        .await;
    listening.next_message().await.unwrap();
    let arguments = json!({"milliseconds": 500});
    let slow = hub.stateless_request(
        "tools/call",
        json!({"name": "slow", "arguments": arguments}),
    );
    let legacy = hub.session_request(&session, &call_message(1, "slow", arguments.clone()));
    let streamed = hub
        .stateless_request(
            "tools/call",
            json!({"name": "slow", "arguments": arguments}),
        )
        .header("accept", "text/event-stream");
    let answered = async move {
        let (one, two, three) = tokio::join!(slow.send(), legacy.send(), streamed.send());
        [
            one.rpc_response().await,
            two.rpc_response().await,
            three.rpc_response().await,
        ]
    };
    let address = hub.address.clone();
    let stopped = async {
        wait_until(async || SLOW_CALLS.load(Relaxed) == 3).await;
        hub.running.stop().await;
    };
    let (answers, ()) = tokio::join!(answered, stopped);
    for answer in answers {
        assert_eq!(answer["result"]["content"][0]["text"], "Slept");
    }
    assert!(reader.next_message().await.is_none());
    let over = listening.next_message().await.unwrap();
    assert_eq!(over["result"]["resultType"], "complete");
    assert!(tokio::net::TcpStream::connect(&address).await.is_err());
}

/// Sends a call of the slow tool until it runs to its end.
async fn wait_until_slept(hub: &TestHub, session: &str, body: &Value) {
    let call = async || {
        let answer = hub.session_request(session, body).send().await;
        answer.rpc_response().await
    };
    wait_for(call, |it| it["result"]["content"][0]["text"] == "Slept").await;
}
