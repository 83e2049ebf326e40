//! A minimal HTTP/1.1 client, so that tests see what is on the wire.

use std::{collections::HashMap, fmt, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;

use maru_protocol::{SseEvent, SseReader};
use maru_runtime::tasks::Tasks;
use serde_json::Value;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

/// Deadline of every wait in a test.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Time between two reads of a state that a test waits for.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A builder of requests.
pub(crate) struct TestRequest {
    address: String,
    method: &'static str,
    path: String,
    headers: HashMap<String, String>,
    body: String,
}

/// A response whose body may still be arriving.
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HashMap<String, String>,
    cookies: Vec<String>,
    body: Incoming,
    reader: SseReader,
    events: Vec<SseEvent>,
}

impl TestRequest {
    pub(crate) fn new(address: &str, method: &'static str, path: &str) -> Self {
        Self {
            address: address.to_owned(),
            method,
            path: path.to_owned(),
            headers: HashMap::from([("host".to_owned(), address.to_owned())]),
            body: String::new(),
        }
    }

    /// Builds a POST of JSON that accepts JSON and event streams.
    pub(crate) fn post(address: &str, path: &str, body: &Value) -> Self {
        Self::new(address, "POST", path)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(&body.to_string())
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn body(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    pub(crate) async fn send(self) -> TestResponse {
        let stream = TcpStream::connect(&self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        Tasks::default().spawn(async move {
            // The connection ends with its test.
            let _ = connection.await;
        });
        let mut request = Request::builder().method(self.method).uri(&self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body))).unwrap();
        let response = within_test_timeout(sender.send_request(request))
            .await
            .unwrap();
        let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
        TestResponse {
            status: response.status(),
            headers: response
                .headers()
                .iter()
                .map(|(name, value)| (name.to_string(), text(value)))
                .collect(),
            cookies: response
                .headers()
                .get_all("set-cookie")
                .iter()
                .map(text)
                .collect(),
            body: response.into_body(),
            reader: SseReader::default(),
            events: Vec::new(),
        }
    }
}

impl TestResponse {
    /// Returns the cookies that the response sets.
    pub(crate) fn cookies(&self) -> impl Iterator<Item = &str> {
        self.cookies.iter().map(String::as_str)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers
            .get("content-type")
            .is_some_and(|it| it == "text/event-stream")
    }

    pub(crate) async fn text(self) -> String {
        let bytes = within_test_timeout(self.body.collect())
            .await
            .unwrap()
            .to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    pub(crate) async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}"))
    }

    /// Returns the next bytes of the body, comments included; `None` at its end.
    pub(crate) async fn next_chunk(&mut self) -> Option<String> {
        let frame = within_test_timeout(self.body.frame()).await?.ok()?;
        let data = frame.into_data().unwrap_or_default();
        Some(String::from_utf8(data.to_vec()).unwrap())
    }

    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next_event(&mut self) -> Option<SseEvent> {
        // Keep-alive comments are not events, so one deadline covers all of them.
        within_test_timeout(async {
            while self.events.is_empty() {
                let frame = self.body.frame().await?.ok()?;
                if let Ok(data) = frame.into_data() {
                    self.reader.feed(&data, &mut self.events).unwrap();
                }
            }
            Some(self.events.remove(0))
        })
        .await
    }

    /// Returns the next message of an event stream.
    pub(crate) async fn next_message(&mut self) -> Option<Value> {
        loop {
            let event = self.next_event().await?;
            if !event.data.is_empty() {
                return Some(serde_json::from_str(&event.data).unwrap());
            }
        }
    }

    /// Returns the JSON-RPC response, from a JSON body or an event stream.
    pub(crate) async fn rpc_response(mut self) -> Value {
        if !self.is_stream() {
            return self.json().await;
        }
        loop {
            let message = self
                .next_message()
                .await
                .expect("a response before the end of the stream");
            if message.get("method").is_none() {
                return message;
            }
        }
    }
}

/// Reads a value until it is as `wanted` says, and returns it. Fails after
/// [`TEST_TIMEOUT`] with the last value.
pub(crate) async fn wait_for<T: fmt::Debug>(
    mut read: impl AsyncFnMut() -> T,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let value = within_test_timeout(read()).await;
        if wanted(&value) {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {value:?}");
        sleep(POLL_INTERVAL).await;
    }
}

/// Waits until `reached` returns true. Fails after [`TEST_TIMEOUT`].
pub(crate) async fn wait_until(mut reached: impl AsyncFnMut() -> bool) {
    wait_for(async || reached().await, |it| *it).await;
}

/// Fails if a value changes within `duration`. Only waiting shows that nothing happens.
pub(crate) async fn assert_stays<T: fmt::Debug + PartialEq>(
    duration: Duration,
    mut read: impl AsyncFnMut() -> T,
) {
    let before = read().await;
    sleep(duration).await;
    assert_eq!(read().await, before);
}

pub(crate) async fn within_test_timeout<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, work)
        .await
        .expect("in time")
}
