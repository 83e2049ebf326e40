//! A TCP server for tests that answers with scripted bytes.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{HeaderMap, Method};
use maru_runtime::tasks::Tasks;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::{AddressPolicy, AllowedUrl, ClientTls, Error, HttpClient, HttpRequest, HttpResponse};

pub(crate) async fn listen() -> (AllowedUrl, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let target = AddressPolicy::default().authorize_configured(&url);
    (target.unwrap(), listener)
}

/// Starts a server that answers with the bytes of the script, one inner list per
/// connection. The channel receives the number of the connection and the head of each
/// request.
pub(crate) async fn scripted_server(
    script: &'static [&'static [&'static str]],
) -> (AllowedUrl, mpsc::Receiver<(usize, String)>) {
    let (target, listener) = listen().await;
    let (sender, requests) = mpsc::channel(16);
    Tasks::default().spawn(async move {
        for (number, responses) in script.iter().enumerate() {
            let (mut stream, _) = listener.accept().await.unwrap();
            for response in *responses {
                let head = read_request(&mut stream).await;
                sender.send((number, head)).await.unwrap();
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
    });
    (target, requests)
}

/// Reads a request up to the end of its head; a small body arrives with it.
pub(crate) async fn read_request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.windows(4).any(|it| it == b"\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
    String::from_utf8(read).unwrap()
}

pub(crate) fn client_of(target: AllowedUrl) -> Arc<HttpClient> {
    HttpClient::new(target, ClientTls::default())
}

pub(crate) async fn post(client: &Arc<HttpClient>, body: &Bytes) -> Result<HttpResponse, Error> {
    let request = HttpRequest {
        method: &Method::POST,
        uri: &"/x".parse().unwrap(),
        headers: &HeaderMap::new(),
        extra_headers: &[],
        body,
    };
    client.send(&request).await
}

/// Sends a small request and returns the body of the response.
pub(crate) async fn post_for_body(client: &Arc<HttpClient>) -> Result<Bytes, Error> {
    let mut response = post(client, &Bytes::from_static(b"{}")).await?;
    response.bytes().await
}
