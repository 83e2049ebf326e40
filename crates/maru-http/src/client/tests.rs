use hyper::{
    HeaderMap, Method, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, HeaderValue},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use maru_runtime::tasks::{Tasks, with_timeout};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use super::*;
use crate::{
    AddressPolicy,
    test_server::{client_of, listen, post, post_for_body, read_request, scripted_server},
};

const OK_LINE: &str = "HTTP/1.1 200 OK\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// More than the socket buffers of both sides hold.
const LARGE: usize = 20 << 20;
const TLS_FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/tls");

fn large() -> Bytes {
    vec![b'x'; LARGE].into()
}

/// Waits until hyper has returned the connection of the last response to the pool, or
/// closed it.
async fn wait_for_the_pool() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn connection_is_reused_after_its_response_was_read() {
    const STREAM: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";
    let (target, mut requests) = scripted_server(&[&[OK, OK, STREAM], &[OK]]).await;
    let client = client_of(target);
    for _ in 0..2 {
        assert_eq!(post_for_body(&client).await.unwrap(), "ok");
        wait_for_the_pool().await;
    }
    // A response that is dropped before its end closes the connection.
    let mut response = post(&client, &Bytes::new()).await.unwrap();
    assert_eq!(response.header(&CONTENT_TYPE), None);
    assert_eq!(response.chunk().await.unwrap().unwrap(), "ok");
    drop(response);
    wait_for_the_pool().await;
    assert_eq!(post_for_body(&client).await.unwrap(), "ok");
    for expected in [0, 0, 0, 1] {
        assert_eq!(requests.recv().await.unwrap().0, expected);
    }
}

#[tokio::test]
async fn connection_is_not_reused_after_close_or_surplus_bytes() {
    const CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    const MORE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n";
    let (target, mut requests) = scripted_server(&[&[CLOSE], &[MORE], &[OK]]).await;
    let client = client_of(target);
    for number in 0..3 {
        assert_eq!(post_for_body(&client).await.unwrap(), "ok");
        wait_for_the_pool().await;
        assert_eq!(requests.recv().await.unwrap().0, number);
    }
}

#[tokio::test]
async fn connection_closed_by_the_server_is_replaced() {
    let (target, mut requests) = scripted_server(&[&[OK], &[OK]]).await;
    let client = client_of(target);
    for number in 0..2 {
        assert_eq!(post_for_body(&client).await.unwrap(), "ok");
        wait_for_the_pool().await;
        assert_eq!(requests.recv().await.unwrap().0, number);
    }
}

#[tokio::test]
async fn truncated_or_malformed_response_is_an_error() {
    const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
    const CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok";
    const NO_SIZE: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\nok\r\n";
    const LENGTHS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok";
    let (target, _requests) = scripted_server(&[
        &[SHORT],
        &[CHUNK],
        &[NO_SIZE],
        &[LENGTHS],
        &["HTTP/1.1 200"],
        &["no HTTP\r\n\r\n"],
    ])
    .await;
    let client = client_of(target);
    for number in 0..6 {
        let result = post_for_body(&client).await;
        assert!(matches!(result, Err(Error::Broken(_))), "{number}");
        wait_for_the_pool().await;
    }
}

#[tokio::test]
async fn oversized_head_is_an_error() {
    for head in [
        format!("{OK_LINE}x: {}", "y".repeat(MAX_HEAD_BYTES)),
        format!("{OK_LINE}{}\r\n", "x: y\r\n".repeat(101)),
        "\r\n".repeat(MAX_HEAD_BYTES),
    ] {
        let (target, listener) = listen().await;
        Tasks::default().spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            // The client may close the connection before it has read everything.
            let _ = stream.write_all(head.as_bytes()).await;
            std::future::pending::<()>().await;
        });
        let result = post_for_body(&client_of(target)).await;
        assert!(matches!(result, Err(Error::Broken(_))), "{result:?}");
    }
}

#[tokio::test]
async fn body_without_a_length_ends_with_the_connection() {
    let (target, _requests) = scripted_server(&[&["HTTP/1.0 200 OK\r\n\r\nall of it"]]).await;
    assert_eq!(
        post_for_body(&client_of(target)).await.unwrap(),
        "all of it"
    );
}

#[tokio::test]
async fn oversized_body_is_an_error() {
    let (target, listener) = listen().await;
    Tasks::default().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 1 << 16]).await.is_ok() {}
    });
    let result = post_for_body(&client_of(target)).await;
    assert!(matches!(result, Err(Error::TooLarge(_))));
}

#[tokio::test]
async fn early_error_response_to_a_large_request_is_received() {
    const REFUSED: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
    let (target, listener) = listen().await;
    Tasks::default().spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.read_buf(&mut Vec::with_capacity(100)).await.unwrap();
        first.write_all(REFUSED.as_bytes()).await.unwrap();
        // The rest is never read, and the next request comes on another connection.
        let (mut second, _) = listener.accept().await.unwrap();
        read_request(&mut second).await;
        second.write_all(OK.as_bytes()).await.unwrap();
        drop(first);
    });
    let client = client_of(target);
    let mut response = post(&client, &large()).await.unwrap();
    assert_eq!(response.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.bytes().await.unwrap(), "");
    wait_for_the_pool().await;
    assert_eq!(post_for_body(&client).await.unwrap(), "ok");
}

#[tokio::test(start_paused = true)]
async fn server_that_reads_nothing_times_out() {
    let (target, _listener) = listen().await;
    let result = post(&client_of(target), &large()).await;
    assert!(matches!(result, Err(Error::Broken(_))));
}

#[tokio::test]
async fn early_response_does_not_cut_the_request_off() {
    let (target, listener) = listen().await;
    Tasks::default().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        stream.read_buf(&mut read).await.unwrap();
        let (head, rest) = OK.split_at(OK.len() - 2);
        stream.write_all(head.as_bytes()).await.unwrap();
        while read.len() < LARGE {
            assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
        }
        stream.write_all(rest.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut response = post(&client_of(target), &large()).await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), "ok");
}

#[tokio::test]
async fn large_chunked_response_is_read_completely() {
    let (target, listener) = listen().await;
    let whole: Bytes = (0..3 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let sent = whole.clone();
    Tasks::default().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        for chunk in sent.chunks(70_001) {
            let line = format!("{:x}\r\n", chunk.len());
            for part in [line.as_bytes(), chunk, b"\r\n"] {
                stream.write_all(part).await.unwrap();
            }
        }
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    });
    assert_eq!(post_for_body(&client_of(target)).await.unwrap(), whole);
}

#[tokio::test]
async fn host_header_is_the_target_unless_the_caller_sets_it() {
    let (target, mut requests) = scripted_server(&[&[OK], &[OK]]).await;
    let (client, authority) = (client_of(target.clone()), target.authority());
    let mut headers = HeaderMap::new();
    headers.insert("mcp-name", HeaderValue::from_static("usual"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from_static("1"));
    let extra_headers = [(
        HeaderName::from_static("mcp-name"),
        HeaderValue::from_static("own"),
    )];
    for (host, expected) in [(None, authority.as_str()), (Some("h:1"), "h:1")] {
        if let Some(host) = host {
            headers.insert(HOST, HeaderValue::from_static(host));
        }
        let request = HttpRequest {
            method: &Method::DELETE,
            uri: &"/mcp?x=1".parse().unwrap(),
            headers: &headers,
            extra_headers: &extra_headers,
            body: &Bytes::new(),
        };
        client.send(&request).await.unwrap();
        let (_, head) = requests.recv().await.unwrap();
        assert!(head.starts_with("DELETE /mcp?x=1 HTTP/1.1\r\n"), "{head}");
        for line in [
            format!("host: {expected}"),
            "mcp-name: own".to_owned(),
            "content-length: 0".to_owned(),
        ] {
            assert_eq!(
                head.matches(&format!("\r\n{line}\r\n")).count(),
                1,
                "{head}"
            );
        }
        assert_eq!(head.lines().count(), 5, "{head}");
        drop(client.pools.lock().unwrap().drain());
    }
}

#[tokio::test]
async fn requests_beyond_the_limit_fail_at_once() {
    let (target, _listener) = listen().await;
    let client = client_of(target);
    let all = u32::try_from(MAX_REQUESTS_IN_FLIGHT).unwrap();
    let _taken = client.permits.try_acquire_many(all).unwrap();
    let result = post(&client, &Bytes::new()).await;
    assert!(matches!(result, Err(Error::Busy(_))));
}

#[tokio::test]
async fn closed_port_is_unreachable() {
    let (target, listener) = listen().await;
    drop(listener);
    let authority = target.authority();
    let error = post(&client_of(target), &Bytes::new()).await.unwrap_err();
    let reason = "connection refused".to_owned();
    assert_eq!(error, Error::Unreachable { authority, reason });
}

/// Accepts TLS connections that speak HTTP/2 only.
fn http2_acceptor() -> TlsAcceptor {
    let file = |name: &str| format!("{TLS_FIXTURES}/{name}.pem");
    let certificate = CertificateDer::from_pem_file(file("certificate")).unwrap();
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn http2_target(plain: &AllowedUrl) -> AllowedUrl {
    let url = format!("https://localhost:{}/x", plain.port);
    AddressPolicy::default().authorize_configured(&url).unwrap()
}

/// Trusts the certificate of [`http2_acceptor`].
fn trusting_tls() -> ClientTls {
    let mut roots = RootCertStore::empty();
    let file = format!("{TLS_FIXTURES}/certificate.pem");
    roots
        .add(CertificateDer::from_pem_file(file).unwrap())
        .unwrap();
    ClientTls::with_roots(roots)
}

/// Starts a server that speaks HTTP/2 only; the channel receives one item per connection.
async fn http2_server() -> (AllowedUrl, mpsc::Receiver<()>) {
    let (plain, listener) = listen().await;
    let (sender, connections) = mpsc::channel(16);
    let tls = http2_acceptor();
    Tasks::default().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = tls.accept(stream).await.unwrap();
            sender.send(()).await.unwrap();
            let answer = service_fn(async |request: Request<_>| {
                let _: &hyper::body::Incoming = request.body();
                let shown = format!("{:?} {}", request.version(), request.uri());
                Ok::<_, std::convert::Infallible>(hyper::Response::new(Full::<Bytes>::from(shown)))
            });
            let served = http2::Builder::new(TokioExecutor::new());
            Tasks::default().spawn(async move {
                let _ = served.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (http2_target(&plain), connections)
}

#[tokio::test]
async fn http2_is_used_when_the_server_chooses_it() {
    let (target, mut connections) = http2_server().await;
    let expected = format!("HTTP/2.0 https://{}/x", target.authority());
    let client = HttpClient::new(target.clone(), trusting_tls());
    assert_eq!(post_for_body(&client).await.unwrap(), expected);
    let (one, two) = tokio::join!(post_for_body(&client), post_for_body(&client));
    assert_eq!(
        (one.unwrap(), two.unwrap()),
        (expected.clone().into(), expected.into())
    );
    // All requests used one connection.
    connections.recv().await.unwrap();
    assert!(connections.try_recv().is_err());
    // A certificate without a trusted root is not accepted.
    let untrusting_client = HttpClient::new(target, ClientTls::with_roots(RootCertStore::empty()));
    let error = post_for_body(&untrusting_client).await.unwrap_err();
    assert!(
        error.to_string().contains("the TLS handshake failed"),
        "{error}"
    );
}

/// Starts a server that answers every connection with `frames`, again and again, and reads
/// what the client sends if `reads` says so.
async fn http2_flood_server(frames: Vec<u8>, reads: bool) -> AllowedUrl {
    let (plain, listener) = listen().await;
    let tls = http2_acceptor();
    Tasks::default().spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = tls.accept(stream).await.unwrap();
        let (mut input, mut output) = tokio::io::split(stream);
        let settings = http2_frame(0x4, 0, &[]);
        output.write_all(&settings).await.unwrap();
        let block = frames.repeat((64 << 10) / frames.len());
        let flood = async { while output.write_all(&block).await.is_ok() {} };
        let drain = async {
            let mut sink = tokio::io::sink();
            if reads {
                let _ = tokio::io::copy(&mut input, &mut sink).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = flood => (),
            () = drain => (),
        }
    });
    http2_target(&plain)
}

fn http2_frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [&length[1..], &[kind, 0], &stream.to_be_bytes()].concat();
    [head.as_slice(), payload].concat()
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// On the thread that floods reach, another request still gets its turn, and nothing of the
/// floods is kept.
#[tokio::test]
async fn http2_server_that_floods_control_frames_does_not_starve_others() {
    // Stream 1 is the request's.
    let resets = http2_frame(0x3, 1, &8_u32.to_be_bytes());
    for (frames, reads) in [
        (http2_frame(0x6, 0, b"pingping"), true),
        (http2_frame(0x6, 0, b"pingping"), false),
        (http2_frame(0x4, 0, &[]), true),
        (http2_frame(0x4, 0, &[]), false),
        (resets, true),
        (http2_frame(0x8, 0, &0_u32.to_be_bytes()), true),
        (http2_frame(0x0, 1, &[]), true),
    ] {
        let flooded = http2_flood_server(frames.clone(), reads).await;
        let flooded = HttpClient::new(flooded, trusting_tls());
        let (target, _requests) = scripted_server(&[&[OK; 10]]).await;
        let healthy = client_of(target);
        let before = resident_bytes();
        let asking = async {
            for _ in 0..10 {
                assert_eq!(post_for_body(&healthy).await.unwrap(), "ok");
                wait_for_the_pool().await;
            }
        };
        let ended = async {
            post_for_body(&flooded).await.unwrap_err();
            std::future::pending::<()>().await;
        };
        let kind = frames[3];
        tokio::select! {
            // A connection that breaks the protocol is closed; that is as good.
            () = ended => (),
            done = with_timeout(Duration::from_secs(30), asking) => {
                assert!(done.is_some(), "frames of kind {kind} starve others");
            }
        }
        let grown = resident_bytes().saturating_sub(before) >> 20;
        assert!(grown < 64, "frames of kind {kind}: {grown} MiB");
    }
}
