//! Connections as bytes: who may hold one, and which requests are none.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    time::sleep,
};

use crate::{
    auth::bind::tls_settings,
    clients::node_program,
    http_client::{TestRequest, within_test_timeout},
    network_namespace::{NAMESPACE_ADDRESS, is_in_namespace, run_in_namespace},
    test_hub::{TestHub, initialize_message},
};

const MAX_CONNECTIONS: usize = 32;

/// Sends `bytes` and keeps the connection.
async fn open_and_send(hub: &TestHub, bytes: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&hub.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream
}

/// All that the hub says until it closes.
async fn read_to_close(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset ends it as well.
    let _ = within_test_timeout(stream.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).into_owned()
}

/// The status of the answer to `bytes`, after which the connection is not used.
async fn status_of(hub: &TestHub, bytes: &str) -> u16 {
    let mut stream = open_and_send(hub, bytes).await;
    let mut head = [0; 12];
    within_test_timeout(stream.read_exact(&mut head))
        .await
        .unwrap();
    let head = String::from_utf8(head.to_vec()).unwrap();
    head.strip_prefix("HTTP/1.1 ").unwrap().parse().unwrap()
}

/// Waits until the hub has closed the connection.
async fn wait_until_closed(stream: &mut TcpStream) {
    read_to_close(stream).await;
}

fn slow_post(path: &str, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{more}Content-Length: 1000\r\n\r\n{{"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_token_is_rejected_before_the_body_is_read() {
    let hub = TestHub::with_config(|config| {
        config.require_token = true;
        config.limits.max_connections = MAX_CONNECTIONS;
    })
    .await;
    for path in ["/mcp", "/api/tokens", "/v1/chat/completions", "/nothing"] {
        let mut stream = open_and_send(&hub, &slow_post(path, "")).await;
        let answer = read_to_close(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("connection: close"), "{path}: {answer}");
    }
    // The page that signs in takes a body of a caller who is not known, a short one.
    let long = slow_post("/api/session", "").replace("1000", "100000");
    assert_eq!(status_of(&hub, &long).await, 413);
}

/// Sends a whole body of so many MiB before it reads anything, as Python's clients do.
async fn answer_to_large_body(hub: &TestHub, head: &str, mebibytes: usize) -> String {
    let is_chunked = head.contains("chunked");
    let mut stream = open_and_send(hub, head).await;
    let piece = vec![b' '; 1 << 20];
    let sending = async {
        for _ in 0..mebibytes {
            if is_chunked {
                stream.write_all(b"100000\r\n").await?;
            }
            stream.write_all(&piece).await?;
            if is_chunked {
                stream.write_all(b"\r\n").await?;
            }
        }
        std::io::Result::Ok(())
    };
    within_test_timeout(sending)
        .await
        .expect("the hub takes the body");
    read_to_close(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_writes_its_whole_body_first_reads_the_refusal() {
    let hub = TestHub::start().await;
    let strict = TestHub::with_config(|config| config.require_token = true).await;
    let head = |path: &str, length: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{length}\r\n\r\n"
        )
    };
    for path in ["/mcp", "/sse", "/v1/chat/completions", "/generate_with_mcp"] {
        for length in ["Content-Length: 25165824", "Transfer-Encoding: chunked"] {
            let answer = answer_to_large_body(&hub, &head(path, length), 24).await;
            assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
            let answer = answer_to_large_body(&strict, &head(path, length), 24).await;
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_without_end_is_not_read_for_ever() {
    let hub = TestHub::start().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 1000000000000\r\n\r\n";
    let mut stream = open_and_send(&hub, head).await;
    let piece = vec![b' '; 1 << 20];
    let mut mebibytes = 0;
    within_test_timeout(async {
        while stream.write_all(&piece).await.is_ok() {
            mebibytes += 1;
        }
    })
    .await;
    // What the sockets hold comes on top of what the hub reads.
    assert!((60..100).contains(&mebibytes), "{mebibytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn half_sent_bodies_are_bounded_together() {
    let hub = TestHub::start().await;
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 4194304\r\n\r\n";
    let almost_all = vec![b' '; (4 << 20) - 100];
    let mut streams = Vec::new();
    for _ in 0..70 {
        let mut stream = open_and_send(&hub, head).await;
        // One that is refused may be closed before it has sent everything.
        let _ = stream.write_all(&almost_all).await;
        streams.push(stream);
    }
    let refused = streams.iter_mut().map(async |stream| {
        let mut status = [0; 12];
        let read = stream.read_exact(&mut status);
        let read = tokio::time::timeout(Duration::from_secs(3), read).await;
        read.is_ok() && &status == b"HTTP/1.1 503"
    });
    let refused = futures_util::future::join_all(refused).await;
    let refused = refused.into_iter().filter(|it| *it).count();
    assert!(
        (1..20).contains(&refused),
        "{refused} of 70 bodies of 4 MiB"
    );
    let small = TestRequest::post(
        &hub.address,
        "/sse",
        &serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
    );
    assert_eq!(small.send().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn fetch_of_node_reads_the_refusal_of_a_large_body() {
    const SCRIPT: &str = r#"
        const [address] = process.argv.slice(1);
        const body = " ".repeat(32 << 20);
        const headers = {"content-type": "application/json"};
        for (let round = 0; round < 5; round++) {
            for (const path of ["/mcp", "/v1/chat/completions"]) {
                const answer = await fetch(`http://${address}${path}`, {method: "POST", headers, body});
                const text = await answer.text();
                if (answer.status !== 413 || !text.includes("4194304")) {
                    throw new Error(`${path}: ${answer.status} ${text}`);
                }
            }
        }
    "#;
    let hub = TestHub::start().await;
    let output = Command::new(node_program())
        .args(["--input-type=module", "--eval", SCRIPT, &hub.address])
        .output();
    let output = within_test_timeout(output).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_unauthenticated_requests_do_not_block_others() {
    for (require_token, slow) in [
        (false, slow_post("/mcp", "")),
        (true, slow_post("/api/session", "")),
        (true, "GET /readyz HTTP/1.1\r\nHost: loc".to_owned()),
        (false, String::new()),
    ] {
        let hub = TestHub::with_config(|config| {
            config.require_token = require_token;
            config.limits.max_connections = MAX_CONNECTIONS;
        })
        .await;
        let mut strangers = Vec::new();
        for _ in 0..3 * MAX_CONNECTIONS {
            strangers.push(open_and_send(&hub, &slow).await);
        }
        let listed = hub.send_as_admin("GET", "/api/tokens", json!(null)).await;
        assert_eq!(listed.status, 200, "{slow}");
        if !require_token {
            let called = hub.stateless_request("tools/list", json!({})).send().await;
            assert_eq!(called.status, 200, "{slow}");
        }
        // The oldest made room.
        wait_until_closed(&mut strangers[0]).await;
    }
}

/// The deadline is for the whole body: it passes although bytes keep arriving. That of a
/// caller with a token is longer; `body.rs` tests both with paused time.
#[tokio::test(flavor = "multi_thread")]
async fn body_that_trickles_without_a_token_ends_at_its_deadline() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    let stream = open_and_send(&hub, &slow_post("/api/session", "")).await;
    let (mut input, mut output) = stream.into_split();
    let trickling = async {
        loop {
            // Fails once the hub has closed the connection.
            let _ = output.write_all(b" ").await;
            sleep(Duration::from_millis(100)).await;
        }
    };
    let mut head = [0; 12];
    tokio::select! {
        () = trickling => (),
        read = within_test_timeout(input.read_exact(&mut head)) => {
            read.unwrap();
        }
    }
    assert_eq!(&head, b"HTTP/1.1 408");
}

/// Addresses of loopback have no share of their own, so this needs another one.
#[tokio::test(flavor = "multi_thread")]
async fn address_loses_its_own_oldest_connection() {
    if !is_in_namespace() {
        let test = "connections::address_loses_its_own_oldest_connection";
        return run_in_namespace(test).await;
    }
    let hub = TestHub::with_config(|config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.limits.max_connections = 256;
        config.tls = tls_settings();
    })
    .await;
    let port = hub.running.address.port();
    let local = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut own = Vec::new();
    // A sixteenth of a quarter of the connections.
    for _ in 0..=4 {
        own.push(TcpStream::connect((NAMESPACE_ADDRESS, port)).await.unwrap());
    }
    wait_until_closed(&mut own[0]).await;
    for stream in own[1..].iter().chain([&local]) {
        let peeked = tokio::time::timeout(Duration::from_millis(100), stream.peek(&mut [0])).await;
        assert!(peeked.is_err(), "it is open and silent");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_with_a_token_stay_when_strangers_come() {
    let hub = TestHub::with_config(|config| {
        config.require_token = true;
        config.limits.max_connections = MAX_CONNECTIONS;
    })
    .await;
    let head = format!(
        "GET /readyz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        hub.running.admin_token.reveal()
    );
    let mut known = open_and_send(&hub, &head).await;
    let mut answer = [0; 15];
    within_test_timeout(known.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let mut strangers = Vec::new();
    for _ in 0..2 * MAX_CONNECTIONS {
        strangers.push(open_and_send(&hub, "G").await);
    }
    wait_until_closed(&mut strangers[0]).await;
    // It is asked again on the same connection, and then closes when it is told to.
    let last = head.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    known.write_all(last.as_bytes()).await.unwrap();
    let rest = read_to_close(&mut known).await;
    assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_as_many_sessions_as_the_settings_say() {
    let hub = TestHub::with_config(|config| {
        config.require_token = true;
        config.limits.max_sessions_per_token = 2;
    })
    .await;
    let mut tokens = Vec::new();
    for name in ["one", "two"] {
        let token = hub
            .create_token(json!({"name": name, "role": "agent"}))
            .await;
        tokens.push(format!("Bearer {token}"));
    }
    let open = async |token: &str| {
        let body = initialize_message("2025-11-25", &json!({}));
        let reply = hub.post(&body).header("authorization", token).send().await;
        assert_eq!(reply.status, 200);
        reply.headers["mcp-session-id"].clone()
    };
    let ping = async |token: &str, session: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let ask = hub
            .session_request(session, &body)
            .header("authorization", token);
        ask.send().await.status.as_u16()
    };
    let other = open(&tokens[1]).await;
    let first = open(&tokens[0]).await;
    let second = open(&tokens[0]).await;
    assert_eq!(ping(&tokens[0], &first).await, 200);
    let third = open(&tokens[0]).await;
    let mut alive = 0;
    for session in [&first, &second, &third] {
        alive += u32::from(ping(&tokens[0], session).await == 200);
    }
    assert_eq!(alive, 2);
    assert_eq!(ping(&tokens[0], &third).await, 200);
    assert_eq!(ping(&tokens[1], &other).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_request_heads_are_refused() {
    let hub = TestHub::start().await;
    let good = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(status_of(&hub, good).await, 200);
    assert_eq!(status_of(&hub, &format!("\r\n{good}")).await, 200);
    for bad in [
        "GET /healthz HTTP/1.1\nHost: localhost\n\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: y\nZ: w\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n",
        "\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        assert_eq!(status_of(&hub, bad).await, 400, "{bad:?}");
    }
    // Byte by byte it is the same head.
    let mut stream = open_and_send(&hub, "").await;
    for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n" {
        if stream.write_all(&[*byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    let answer = read_to_close(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // The second request of a connection is read as strictly, behind any body.
    let body = json!({"jsonrpc": "2.0", "method": "\n\n"}).to_string();
    for first in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
    ] {
        let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        let smuggled = "GET /healthz HTTP/1.1\nHost: localhost\n\n";
        let mut stream = open_and_send(&hub, &format!("{head}{first}{smuggled}")).await;
        let answers = read_to_close(&mut stream).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
        assert!(
            answers.contains("HTTP/1.1 400 Bad Request\r\n"),
            "{answers}"
        );
        assert!(!answers.contains(r#"{"status":"ok"}"#), "{answers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_authorization_headers_are_refused() {
    let hub = TestHub::start().await;
    let token = hub.running.admin_token.reveal();
    for path in ["/api/tokens", "/mcp", "/v1/models", "/healthz", "/"] {
        for (one, two) in [(token, "x"), ("x", token), (token, token)] {
            let head = format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {one}\r\n\
                 authorization: Bearer {two}\r\n\r\n"
            );
            assert_eq!(status_of(&hub, &head).await, 400, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_over_the_limit_is_refused() {
    let hub = TestHub::start().await;
    let with = |length: usize| {
        let value = "x".repeat(length);
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {value}\r\n\r\n")
    };
    let frame = with(0).len();
    assert_eq!(status_of(&hub, &with((32 << 10) - frame)).await, 200);
    assert_eq!(status_of(&hub, &with((32 << 10) - frame + 1)).await, 431);
    // In many lines, and never ending.
    let many = "X: y\r\n".repeat(101);
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(status_of(&hub, &head).await, 431);
    let endless = with(64 << 10);
    assert_eq!(status_of(&hub, endless.trim_end()).await, 431);
    assert_eq!(
        TestRequest::new(&hub.address, "GET", "/healthz")
            .send()
            .await
            .status,
        200
    );
}
