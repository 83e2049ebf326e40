//! A model on the wire that says what a test wants it to say.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use maru_runtime::tasks::Tasks;

use maru::config::{Config, ModelDefinition};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time,
};

/// What is sent, in order.
#[derive(Clone, Debug)]
pub(crate) enum ScriptStep {
    Send(String),
    Pause(Duration),
    /// Until the other side leaves.
    WaitForClose,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: Value,
}

#[derive(Clone)]
pub(crate) struct FakeModelServer {
    pub(crate) port: u16,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Connections that the other side closed before they were answered.
    disconnects: watch::Sender<usize>,
    /// Whether the script answers the requests that find out whether a model takes tools.
    scripts_probes: bool,
}

type ModelScript = dyn Fn(usize, &ReceivedRequest) -> Vec<ScriptStep> + Send + Sync;

impl FakeModelServer {
    /// Answers request number n with what `script` says.
    pub(crate) async fn start(
        script: impl Fn(usize, &ReceivedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
    ) -> Self {
        Self::start_server(script, false).await
    }

    /// The script also answers the requests that find out whether a model takes tools;
    /// otherwise they tell the hub nothing.
    pub(crate) async fn start_with_probes(
        script: impl Fn(usize, &ReceivedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
    ) -> Self {
        Self::start_server(script, true).await
    }

    async fn start_server(
        script: impl Fn(usize, &ReceivedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
        scripts_probes: bool,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            scripts_probes,
            port: listener.local_addr().unwrap().port(),
            received: Arc::default(),
            disconnects: watch::Sender::new(0),
        };
        let (serving, script) = (
            this.clone(),
            Arc::<ModelScript>::from(Box::new(script) as Box<ModelScript>),
        );
        Tasks::default().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, script) = (serving.clone(), Arc::clone(&script));
                Tasks::default().spawn(async move {
                    serving.serve(stream, &script).await;
                });
            }
        });
        this
    }

    /// Always the same answer.
    pub(crate) async fn start_with_steps(steps: Vec<ScriptStep>) -> Self {
        Self::start(move |_, _| steps.clone()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Serves every model of a hub.
    pub(crate) fn model(&self) -> ModelDefinition {
        ModelDefinition {
            base_url: Some(self.url()),
            ..ModelDefinition::default()
        }
    }

    /// Puts it behind a hub.
    pub(crate) fn configure(&self, config: &mut Config) {
        config.models = vec![self.model()];
    }

    pub(crate) fn seen(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }

    /// The body of the only request so far.
    pub(crate) fn only_body(&self) -> Value {
        let mut seen = self.seen();
        assert_eq!(seen.len(), 1);
        seen.remove(0).body
    }

    /// Waits until so many have left.
    pub(crate) async fn wait_for_disconnects(&self, count: usize) {
        let mut left = self.disconnects.subscribe();
        let waited = time::timeout(Duration::from_secs(10), left.wait_for(|it| *it >= count)).await;
        waited.expect("the connection is closed").unwrap();
    }

    async fn serve(&self, mut stream: TcpStream, script: &Arc<ModelScript>) {
        while let Some(seen) = read_request(&mut stream).await {
            if is_probe(&seen) && !self.scripts_probes {
                for step in text_response("yes") {
                    perform_step(&mut stream, step).await;
                }
                continue;
            }
            let number = {
                let mut all = self.received.lock().unwrap();
                all.push(seen.clone());
                all.len() - 1
            };
            let steps = script(number, &seen);
            let last = steps.iter().any(
                |it| matches!(it, ScriptStep::Send(text) if text.contains("connection: close")),
            );
            for step in steps {
                if !perform_step(&mut stream, step).await {
                    self.disconnects.send_modify(|it| *it += 1);
                    return;
                }
            }
            if last {
                return;
            }
        }
    }
}

/// Whether a request only finds out whether the model takes tools.
pub(crate) fn is_probe(seen: &ReceivedRequest) -> bool {
    let question = seen.body["messages"][0]["content"].as_str();
    question.is_some_and(|it| it.starts_with("Reply with the single word yes"))
}

/// False when the other side has left.
async fn perform_step(stream: &mut TcpStream, step: ScriptStep) -> bool {
    match step {
        ScriptStep::Send(text) => stream.write_all(text.as_bytes()).await.is_ok(),
        ScriptStep::Pause(pause) => {
            let mut byte = [0];
            match time::timeout(pause, stream.read(&mut byte)).await {
                Ok(read) => read.is_ok_and(|it| it > 0),
                Err(_) => true,
            }
        }
        ScriptStep::WaitForClose => {
            let mut byte = [0];
            while stream.read(&mut byte).await.is_ok_and(|it| it > 0) {}
            false
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = head.to_lowercase();
    let length = length.split("content-length: ").nth(1);
    let length: usize = length.map_or(0, |it| it.lines().next().unwrap().parse().unwrap());
    let mut body = bytes[end..].to_vec();
    while body.len() < length {
        let mut piece = vec![0; length - body.len()];
        let read = stream.read(&mut piece).await.ok().filter(|it| *it > 0)?;
        body.extend_from_slice(&piece[..read]);
    }
    Some(ReceivedRequest {
        path: head.split(' ').nth(1).unwrap().to_owned(),
        head,
        body: serde_json::from_slice(&body).unwrap_or_default(),
    })
}

/// An answer of one document.
pub(crate) fn json_response(status: u16, extra: &str, body: &Value) -> Vec<ScriptStep> {
    let body = body.to_string();
    vec![ScriptStep::Send(format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{extra}content-length: {}\r\n\r\n{body}",
        body.len()
    ))]
}

/// A whole answer.
pub(crate) fn completion_response(message: Value, finish: &str) -> Vec<ScriptStep> {
    json_response(
        200,
        "",
        &json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}),
    )
}

pub(crate) fn text_response(text: &str) -> Vec<ScriptStep> {
    completion_response(json!({"role": "assistant", "content": text}), "stop")
}

/// The beginning of a stream that ends with its connection.
pub(crate) fn stream_head() -> ScriptStep {
    ScriptStep::Send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_owned(),
    )
}

pub(crate) fn event_step(value: &Value) -> ScriptStep {
    ScriptStep::Send(format!("data: {value}\n\n"))
}

pub(crate) fn delta_step(delta: Value, finish: Option<&str>) -> ScriptStep {
    event_step(
        &json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}),
    )
}

/// A streamed answer of these deltas.
pub(crate) fn streamed_response(deltas: Vec<Value>, finish: &str) -> Vec<ScriptStep> {
    let body: String = deltas
        .into_iter()
        .map(|it| delta_step(it, None))
        .chain([delta_step(json!({}), Some(finish))])
        .map(|it| match it {
            ScriptStep::Send(text) => text,
            _ => String::new(),
        })
        .collect();
    let body = format!("{body}data: [DONE]\n\n");
    vec![ScriptStep::Send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))]
}

/// The same, cut into single bytes of the model's text.
pub(crate) fn streamed_by_byte(text: &str, finish: &str) -> Vec<ScriptStep> {
    streamed_response(
        text.chars()
            .map(|it| json!({"content": it.to_string()}))
            .collect(),
        finish,
    )
}
