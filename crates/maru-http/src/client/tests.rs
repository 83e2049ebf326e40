use hyper::{
    HeaderMap, Method,
    header::{CONTENT_TYPE, HOST, HeaderValue},
};
use maru_runtime::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::AddressPolicy;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// More than what is on the way between two sockets.
const LARGE: usize = 20 << 20;

async fn listen() -> (Arc<HttpClient>, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let policy = AddressPolicy {
        serves_loopback_only: true,
        ..AddressPolicy::default()
    };
    let client = HttpClient::new(policy.authorize(&url).unwrap(), ClientTls::default());
    (client, listener)
}

/// A server that answers the requests of its connections, one after the other, as the
/// script says; tells the number of the connection for each.
async fn server(
    script: &'static [&'static [&'static str]],
) -> (Arc<HttpClient>, mpsc::Receiver<usize>) {
    let (client, listener) = listen().await;
    let (told, asked) = mpsc::channel(16);
    Tasks::default().spawn(async move {
        for (number, answers) in script.iter().enumerate() {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in *answers {
                read_request(&mut stream).await;
                told.send(number).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    });
    (client, asked)
}

/// Reads up to the head's end; small bodies come with it.
async fn read_request(stream: &mut TcpStream) {
    let mut read = Vec::new();
    while !read.windows(4).any(|it| it == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
}

async fn ask(client: &Arc<HttpClient>, body: &Bytes) -> Result<HttpResponse, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("localhost"));
    let request = Request {
        method: &Method::POST,
        uri: &"/x".parse().unwrap(),
        headers: &headers,
        more: &[],
        body,
    };
    client.send(&request).await
}

fn large() -> Bytes {
    vec![b'x'; LARGE].into()
}

async fn text(client: &Arc<HttpClient>) -> Result<Bytes, Error> {
    let mut reply = ask(client, &Bytes::from_static(b"{}")).await?;
    reply.text().await
}

#[tokio::test]
async fn connection_is_used_again_when_its_answer_was_read() {
    let (client, mut asked) = server(&[&[OK, OK], &[OK]]).await;
    assert_eq!(text(&client).await.unwrap(), "ok");
    assert_eq!(text(&client).await.unwrap(), "ok");
    // This one is left before its end, and takes its connection along.
    let reply = ask(&client, &Bytes::new()).await.unwrap();
    assert_eq!(reply.header(&CONTENT_TYPE), None);
    drop(reply);
    let numbers = [asked.recv().await, asked.recv().await, asked.recv().await];
    assert_eq!(numbers, [Some(0), Some(0), Some(1)]);
}

#[tokio::test]
async fn connection_is_not_used_again_when_the_server_says_so_or_says_more() {
    const CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    const MORE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n";
    let (client, mut asked) = server(&[&[CLOSE], &[MORE], &[OK]]).await;
    for number in 0..3 {
        assert_eq!(text(&client).await.unwrap(), "ok");
        assert_eq!(asked.recv().await, Some(number));
    }
}

#[tokio::test]
async fn connection_that_was_closed_meanwhile_is_replaced() {
    let (client, mut asked) = server(&[&[OK], &[OK]]).await;
    assert_eq!(text(&client).await.unwrap(), "ok");
    assert_eq!(asked.recv().await, Some(0));
    // The server has closed the first when it waits for the second.
    while !client.lock().iter_mut().any(|it| !it.is_quiet()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(text(&client).await.unwrap(), "ok");
    assert_eq!(asked.recv().await, Some(1));
}

#[tokio::test]
async fn answer_that_is_cut_off_is_an_error() {
    const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok";
    const CHUNK: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nok";
    let (client, _asked) =
        server(&[&[SHORT], &[CHUNK], &["HTTP/1.1 200"], &["no HTTP\r\n\r\n"]]).await;
    for _ in 0..4 {
        assert!(matches!(text(&client).await, Err(Error::Broken(_))));
    }
}

#[tokio::test]
async fn body_without_a_length_goes_to_the_end() {
    let (client, _asked) = server(&[&["HTTP/1.0 200 OK\r\n\r\nall of it"]]).await;
    assert_eq!(text(&client).await.unwrap(), "all of it");
}

#[tokio::test]
async fn large_request_is_sent_whole_and_a_refusal_is_heard_before_its_end() {
    const REFUSED: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
    let (client, listener) = listen().await;
    Tasks::default().spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        while read.len() < LARGE {
            stream.read_buf(&mut read).await.unwrap();
        }
        stream.write_all(OK.as_bytes()).await.unwrap();
        // The second request is refused when its head is read.
        let end = |it: &[u8]| it.windows(4).position(|it| it == b"\r\n\r\n");
        let whole = end(&read).unwrap() + 4 + LARGE;
        while read.len() < whole + 100 {
            stream.read_buf(&mut read).await.unwrap();
        }
        stream.write_all(REFUSED.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let mut reply = ask(&client, &large()).await.unwrap();
    assert_eq!(reply.text().await.unwrap(), "ok");
    let mut reply = ask(&client, &large()).await.unwrap();
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.text().await.unwrap(), "");
    assert!(client.lock().is_empty());
}

#[tokio::test]
async fn large_answer_comes_whole() {
    let (client, listener) = listen().await;
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
        read_request(&mut stream).await;
    });
    assert_eq!(text(&client).await.unwrap(), whole);
    assert_eq!(client.lock().len(), 1);
}

#[tokio::test]
async fn answer_that_begins_early_does_not_cut_the_request_off() {
    let (client, listener) = listen().await;
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
    let mut reply = ask(&client, &large()).await.unwrap();
    assert_eq!(reply.text().await.unwrap(), "ok");
    assert_eq!(client.lock().len(), 1);
}
