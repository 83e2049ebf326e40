//! Addresses that misbehave.

use futures_util::future::join_all;

use super::{
    evil_http::EvilHttpServer,
    harness::{
        CALL_TIMES_OUT,
        ExpectedOutcome::{self, Down, Echo, Fails},
        FaultHarness, assert_no_secret,
    },
};
use crate::{
    http_client::{TestRequest, wait_for},
    log_capture::LogCapture,
};

const UNREADABLE_CAUSE: &str = "something that is no answer";

/// Registers every server of the table at once and calls it, while the healthy
/// one is asked all the time. Nothing goes to the other port, and no secret
/// comes out.
async fn check_table(kind: &str, table: &[(&str, ExpectedOutcome)]) {
    let log = LogCapture::install();
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    let one = async |(at, (mode, expected)): (usize, &(&str, ExpectedOutcome))| {
        let name = format!("evil{at}");
        bench
            .add_server(&name, kind, evil.registration(kind, mode))
            .await;
        bench.check_server(&name, mode, *expected).await;
    };
    let all = join_all(table.iter().enumerate().map(one));
    bench.while_healthy_server_answers(all).await;

    let received = evil.received().await;
    let has_header = |it: &&serde_json::Value| it["h"]["authorization"] == "Bearer canary-5ecret";
    assert_eq!(received.iter().filter(has_header).count(), received.len());
    assert_eq!(
        evil.received_by_neighbour().await,
        [(); 0].map(|()| serde_json::Value::Null)
    );
    let token = format!("Bearer {}", bench.hub.running.admin_token.reveal());
    let shown = TestRequest::new(&bench.hub.address, "GET", "/api/mcp/servers")
        .header("authorization", &token)
        .send()
        .await;
    assert_no_secret(&shown.text().await);
    bench.hub.running.stop().await;
    assert_no_secret(&log.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn misbehaving_streamable_http_server() {
    check_table(
        "HTTP",
        &[
            ("good", Echo),
            ("hang", CALL_TIMES_OUT),
            ("reset", Fails("broke")),
            ("half", Fails("broke")),
            ("slow:300", Echo),
            ("garbage", Fails("broke")),
            ("html500", Fails("status 500")),
            ("h401", Down("answered 401")),
            ("h429", Fails("answered 429")),
            ("h503", Fails("answered 503")),
            ("redirect:PORT", Down("redirects are not followed")),
            ("cut", Fails("broke")),
            ("notype", Down("neither JSON nor an event stream")),
            ("noeol", Echo),
            ("badjson", Fails(UNREADABLE_CAUSE)),
            ("wrongid", Fails(UNREADABLE_CAUSE)),
            ("session404", Down("status 404")),
            ("endpoint-evil", Echo),
            ("endpoint-abs", Echo),
            ("endpoint-js", Echo),
            ("retry0", Echo),
            ("aside", Echo),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn misbehaving_http_sse_server() {
    check_table(
        "SSE",
        &[
            ("good", Echo),
            ("hang", CALL_TIMES_OUT),
            ("reset", Fails("ended its event stream")),
            ("half", Echo),
            ("slow:300", Echo),
            ("garbage", Echo),
            ("html500", Echo),
            ("h401", Echo),
            ("h429", Echo),
            ("h503", Echo),
            ("redirect:PORT", Echo),
            ("cut", Fails("ended its event stream")),
            ("notype", Echo),
            ("badjson", CALL_TIMES_OUT),
            ("wrongid", CALL_TIMES_OUT),
            ("endless", Down("did not connect within 4s")),
            ("gzipbomb", Echo),
            ("session404", Echo),
            ("endpoint-evil", Down("another origin")),
            ("endpoint-abs", Echo),
            ("endpoint-js", Down("another origin")),
            ("retry0", Echo),
            ("bigheaders", Echo),
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_receives_a_cancellation_when_the_client_leaves() {
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    bench
        .add_server("evil", "HTTP", evil.registration("HTTP", "hang"))
        .await;
    bench.check_server("evil", "hang", CALL_TIMES_OUT).await;
    let is_cancellation =
        |it: &serde_json::Value| it["b"].to_string().contains("notifications/cancelled");
    wait_for(
        async || evil.received().await,
        |it| it.iter().any(is_cancellation),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sse_stream_without_an_endpoint_event_is_closed() {
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    bench
        .add_server("evil", "SSE", evil.registration("SSE", "mute"))
        .await;
    bench
        .check_server("evil", "mute", Down("did not connect within 4s"))
        .await;
    bench.remove("evil").await;
    let received = evil.received().await;
    let methods: Vec<&str> = received.iter().filter_map(|it| it["m"].as_str()).collect();
    assert_eq!(methods, ["GET", "LEFT"]);
}
