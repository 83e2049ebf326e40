//! Clients that send too much: their session ends with the cause, what they sent is not
//! kept, and others are served meanwhile.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader,
    },
    net::{TcpStream, UnixStream},
};

use super::{
    floods::MAX_GROWTH_MIB,
    harness::{FaultHarness, resident_mib},
};
use crate::{
    http_client::{TestRequest, within_test_timeout},
    suite_fixture::text_tool,
    test_hub::call_message,
};

const NOTIFICATION: &str = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
const STRAY_ANSWER: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
const MESSAGES_SETTING: &str = "limits.client_messages_per_second";
const BYTES_SETTING: &str = "limits.client_bytes_per_second";

async fn start_harness() -> FaultHarness {
    // On a busy machine an unoptimised hub reads less than the usual budget.
    FaultHarness::start_with(|config| {
        config.limits.client_messages_per_second = 100;
        config.limits.client_bytes_per_second = 1 << 20;
    })
    .await
}

fn large_notification() -> String {
    let params = json!({"x": "x".repeat(100_000)});
    json!({"jsonrpc": "2.0", "method": "notifications/x", "params": params}).to_string()
}

/// Writes `block` at full speed until the hub closes the connection; returns what it sent.
async fn flood(stream: impl AsyncRead + AsyncWrite, block: String) -> Vec<String> {
    let (input, mut output) = tokio::io::split(stream);
    let writing = async {
        while output.write_all(block.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let reading = async {
        let mut lines = Vec::new();
        let mut input = BufReader::new(input).lines();
        // A hub that closes the connection with unread input resets it.
        while let Ok(Some(line)) = input.next_line().await {
            lines.push(line);
        }
        lines
    };
    tokio::select! {
        () = writing => unreachable!("it waits for the reader"),
        lines = within_test_timeout(reading) => lines,
    }
}

async fn assert_bounded<T>(bench: &FaultHarness, what: &str, work: impl Future<Output = T>) -> T {
    let before = resident_mib();
    let done = bench.while_healthy_server_answers(work).await;
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_MIB, "{what}: {grown} MiB");
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn stdio_client_that_floods_is_disconnected_with_the_cause() {
    let bench = start_harness().await;
    let large = large_notification();
    for (line, setting) in [
        (NOTIFICATION, MESSAGES_SETTING),
        (STRAY_ANSWER, MESSAGES_SETTING),
        ("y", MESSAGES_SETTING),
        ("", MESSAGES_SETTING),
        (&large, BYTES_SETTING),
    ] {
        let socket = bench.hub.directory.path().join("hub.sock");
        let stream = UnixStream::connect(socket).await.unwrap();
        let block = format!("{line}\n").repeat(100);
        let sent = assert_bounded(&bench, line, flood(stream, block)).await;
        let last = sent.last().expect("the cause");
        assert!(last.contains(setting), "{last}");
    }
}

fn pipelined_post(address: &str, path: &str, session: Option<&str>, body: &str) -> String {
    let session = session.map_or(String::new(), |it| format!("mcp-session-id: {it}\r\n"));
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{session}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Writes requests until the hub refuses one for `setting`.
async fn flood_until_refused(address: &str, request: &str, setting: &str) {
    let (mut input, mut output) = TcpStream::connect(address).await.unwrap().into_split();
    let block = request.repeat(20);
    let writing = async {
        while output.write_all(block.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let reading = async {
        let (mut seen, mut chunk) = (String::new(), vec![0; 64 << 10]);
        while !(seen.contains("429") && seen.contains(setting)) {
            let count = input.read(&mut chunk).await.unwrap();
            assert_ne!(count, 0, "closed after {seen}");
            // An answer may be split between two reads.
            let keep = seen.len().saturating_sub(2000);
            seen.drain(..keep);
            seen.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
    };
    tokio::select! {
        () = writing => unreachable!("it waits for the reader"),
        () = within_test_timeout(reading) => (),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_of_a_client_that_floods_over_http_ends_with_the_cause() {
    let bench = start_harness().await;
    let hub = &bench.hub;
    let large = large_notification();
    for (body, setting) in [
        (NOTIFICATION, MESSAGES_SETTING),
        (STRAY_ANSWER, MESSAGES_SETTING),
        (&large, BYTES_SETTING),
    ] {
        let session = hub.initialize_session("2025-06-18", json!({})).await;
        let request = pipelined_post(&hub.address, "/mcp", Some(&session), body);
        let flooding = flood_until_refused(&hub.address, &request, setting);
        assert_bounded(&bench, body, flooding).await;
        let body: Value = serde_json::from_str(NOTIFICATION).unwrap();
        let after = hub.session_request(&session, &body).send().await;
        assert_eq!(after.status, 404);
    }
    let session = hub.initialize_session("2025-03-26", json!({})).await;
    let batch = format!("[{}]", [NOTIFICATION; 100].join(","));
    let request = pipelined_post(&hub.address, "/mcp", Some(&session), &batch);
    let flooding = flood_until_refused(&hub.address, &request, MESSAGES_SETTING);
    assert_bounded(&bench, "batch", flooding).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sse_client_that_floods_loses_its_stream() {
    let bench = start_harness().await;
    let address = &bench.hub.address;
    for (body, setting) in [
        (NOTIFICATION, MESSAGES_SETTING),
        (&large_notification(), BYTES_SETTING),
    ] {
        let mut stream = TestRequest::new(address, "GET", "/sse").send().await;
        let endpoint = stream.next_event().await.unwrap().data;
        let request = pipelined_post(address, &endpoint, None, body);
        let flooding = flood_until_refused(address, &request, setting);
        assert_bounded(&bench, body, flooding).await;
        assert!(stream.next_event().await.is_none());
    }
}

/// Requests have no budget; their answers wait for the reader, and then it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn sse_client_that_sends_requests_and_does_not_read_is_bounded() {
    let bench = start_harness().await;
    let address = &bench.hub.address;
    let mut stream = TestRequest::new(address, "GET", "/sse").send().await;
    let endpoint = stream.next_event().await.unwrap().data;
    let text = "x".repeat(200_000);
    let sending = async {
        for id in 0.. {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": "fx__echo", "arguments": {"text": text}}});
            let sent = TestRequest::post(address, &endpoint, &call).send().await;
            if sent.status != 202 {
                return sent.status.as_u16();
            }
        }
        unreachable!("the loop ends only with a status");
    };
    let status = assert_bounded(&bench, "requests", sending).await;
    assert!(status == 503 || status == 404, "{status}");
}

/// Two sessions ask for 900 MB together and read nothing before they have asked for all.
#[tokio::test(flavor = "multi_thread")]
async fn large_responses_that_are_not_read_are_bounded() {
    const CALLS: usize = 64;
    const MAX_HELD_MIB: usize = 256;
    let bench = start_harness().await;
    let text: &'static str = "x".repeat(7 << 20).leak();
    bench.hub.publish(&[text_tool("large", text)]);
    let address = &bench.hub.address;
    let before = resident_mib();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = TestRequest::new(address, "GET", "/sse").send().await;
        let endpoint = stream.next_event().await.unwrap().data;
        let posts = (0..CALLS).map(|id| {
            let call = call_message(i64::try_from(id).unwrap(), "large", json!({}));
            TestRequest::post(address, &endpoint, &call).send()
        });
        join_all(posts).await;
        streams.push(stream);
    }
    let mut most = 0;
    // On a busy machine a session may end before it is read; then it holds nothing.
    for stream in &mut streams {
        let mut answered = 0;
        while answered < CALLS && stream.next_event().await.is_some() {
            most = most.max(resident_mib().saturating_sub(before));
            answered += 1;
        }
    }
    // Some copies of what is held, and of what the tool just returned, exist as well.
    assert!(most < MAX_HELD_MIB + MAX_GROWTH_MIB, "{most} MiB");
    drop(streams);
    // Everything was given back.
    let session = bench.hub.initialize_session("2025-06-18", json!({})).await;
    let call = call_message(1000, "large", json!({}));
    let response = bench.hub.session_request(&session, &call).send().await;
    assert!(response.text().await.len() > text.len());
}
