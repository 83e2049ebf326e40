//! Asking the running hub, or the catalog itself when none runs.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use maru_protocol::{ProtocolVersion, SseEvent, SseReader, encode_header_value, key};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time,
};

use crate::{
    app::{HTTP_SOCKET, HubCore, running_hub},
    auth::Principal,
    config::{LoadedConfig, ValueOrigin},
    tools::{Caller, CatalogScope, EntryResponse, EntryResult},
};

/// Someone who lists and calls tools.
#[derive(Debug)]
pub(super) enum CatalogClient {
    Hub(HubClient),
    InProcess(Box<HubCore>),
}

#[derive(Debug)]
pub(super) struct HubClient {
    address: String,
    /// The way to our own hub that does not depend on where it listens.
    socket: Option<PathBuf>,
    token: Option<String>,
    deadline: Duration,
}

/// A connection to a hub.
trait HubStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> HubStream for T {}

/// How a call went.
#[derive(Debug)]
pub(super) enum CliCallOutcome {
    /// The tool's result.
    Result(EntryResult),
    /// The call could not be made; says why.
    Refused(String),
}

impl CatalogClient {
    /// The hub that was named by `--listen`, the one that runs on this data
    /// directory, or the catalog itself.
    pub(super) async fn open(loaded: LoadedConfig) -> Result<Self> {
        if let Some(hub) = HubClient::find(&loaded) {
            return Ok(Self::Hub(hub));
        }
        let core = HubCore::open(loaded.config, None).await?;
        core.servers.wait_for_first_connect().await;
        Ok(Self::InProcess(Box::new(core)))
    }

    /// The entries of `tools/list`.
    pub(super) async fn tools(&self) -> Result<Vec<Value>> {
        let text = match self {
            Self::InProcess(core) => core
                .catalog
                .snapshot()
                .view(&CatalogScope::All)
                .map_err(|why| anyhow!(why.message))?
                .tools
                .json()
                .to_owned(),
            Self::Hub(hub) => match hub.send_mcp("tools/list", json!({})).await? {
                Ok(result) => result["tools"].to_string(),
                Err(why) => bail!("the hub at {} did not list its tools: {why}", hub.address),
            },
        };
        serde_json::from_str(&text).context("the list of tools is not JSON")
    }

    /// Calls a tool.
    pub(super) async fn call(&self, name: &str, arguments: Value) -> Result<CliCallOutcome> {
        match self {
            Self::Hub(hub) => {
                let params = json!({"name": name, "arguments": arguments});
                Ok(match hub.send_mcp("tools/call", params).await? {
                    Ok(result) => CliCallOutcome::Result(result.into()),
                    Err(why) => CliCallOutcome::Refused(why),
                })
            }
            Self::InProcess(core) => {
                let caller = Caller::new(Principal::local(), CatalogScope::All);
                Ok(
                    match core
                        .catalog
                        .call_tool(&caller, name, Arc::new(arguments.into()), Arc::default())
                        .await
                    {
                        Ok(EntryResponse::Complete(result)) => CliCallOutcome::Result(result),
                        Ok(EntryResponse::InputRequired(_)) => CliCallOutcome::Refused(
                            "the tool asks back, which needs an MCP client".to_owned(),
                        ),
                        Err(why) => CliCallOutcome::Refused(why.message.into_owned()),
                    },
                )
            }
        }
    }
}

impl HubClient {
    /// The hub that was named by `--listen`, or the one that runs on this data
    /// directory.
    fn find(loaded: &LoadedConfig) -> Option<Self> {
        // The settings say where a hub would listen, not that one does.
        let named = matches!(loaded.origin_of("/listen"), ValueOrigin::Flag(_));
        let config = &loaded.config;
        let own = running_hub(&config.data_dir);
        let address = if named {
            config.listen.to_string()
        } else {
            own.clone()?
        };
        // Only our own hub is shown our token.
        let token = (own.as_ref() == Some(&address))
            .then(|| fs::read_to_string(config.data_dir.join("admin-token")).ok());
        let longest = config
            .limits
            .tool_timeout_ms
            .max(config.mcp.connect_timeout_ms);
        let socket = config.data_dir.join(HTTP_SOCKET);
        Some(Self {
            socket: (own.as_ref() == Some(&address) && socket.exists()).then_some(socket),
            address,
            token: token.flatten(),
            deadline: Duration::from_millis(longest) + Duration::from_secs(5),
        })
    }

    /// The same; there must be one.
    pub(super) fn open(loaded: &LoadedConfig) -> Result<Self> {
        Self::find(loaded).ok_or_else(|| {
            anyhow!(
                "no hub runs on the data directory {}; start one with: maru",
                loaded.config.data_dir.display()
            )
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// A request to the API; its status and answer.
    pub(super) async fn send_rest(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value)> {
        let request = self.request(method, path).body(Full::new(Bytes::from(
            body.map_or(String::new(), Value::to_string),
        )))?;
        let (status, text) = self.send_within_deadline(request).await?;
        let answer = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&text).context("the hub's answer is not JSON")?
        };
        Ok((status, answer))
    }

    /// A request whose answer is a stream of events, each given to `on` as it
    /// comes; what it gives back ends the stream. Says what else was answered.
    pub(super) async fn stream_events(
        &self,
        path: &str,
        body: &Value,
        mut on: impl AsyncFnMut(SseEvent) -> Result<()>,
    ) -> Result<Option<Value>> {
        let mut request = self
            .request("POST", path)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let accept = HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(header::ACCEPT, accept);
        let unreachable = || format!("cannot reach the hub at {}", self.address);
        let stream = TcpStream::connect(&self.address).await;
        let stream = stream.map_err(|error| self.connect_error(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .with_context(unreachable)?;
        let exchange = async {
            let mut reply = sender
                .send_request(request)
                .await
                .with_context(unreachable)?;
            let is_stream = reply
                .headers()
                .get(header::CONTENT_TYPE)
                .is_some_and(|it| it == "text/event-stream");
            if !is_stream {
                let body = reply.into_body().collect().await?.to_bytes();
                return Ok(Some(
                    serde_json::from_slice(&body).context("the hub's answer is not JSON")?,
                ));
            }
            let mut reader = SseReader::default();
            let mut found = Vec::new();
            while let Some(frame) = reply.body_mut().frame().await {
                let frame = frame.with_context(unreachable)?;
                let data = frame.data_ref().map_or(&[][..], |it| it);
                reader
                    .feed(data, &mut found)
                    .context("the hub sent too much")?;
                for event in found.drain(..) {
                    on(event).await?;
                }
            }
            Ok(None)
        };
        tokio::select! {
            done = exchange => done,
            // The exchange notices, too, and says what is wrong.
            Err(error) = connection => Err(error).with_context(unreachable),
        }
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.host_header())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        match &self.token {
            Some(token) => {
                request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            }
            None => request,
        }
    }

    async fn send_within_deadline(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        let late = |_| {
            anyhow!(
                "the hub at {} did not answer within {:?}",
                self.address,
                self.deadline
            )
        };
        time::timeout(self.deadline, self.send(request))
            .await
            .map_err(late)?
    }

    /// One request of 2026-07-28, which needs no handshake.
    async fn send_mcp(&self, method: &str, mut params: Value) -> Result<Result<Value, String>> {
        params["_meta"] = json!({key::PROTOCOL_VERSION: ProtocolVersion::V2026_07_28.as_str(), key::CLIENT_CAPABILITIES: {}});
        let name = params["name"].as_str().map(str::to_owned);
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut request = self
            .request("POST", "/mcp")
            .header(
                "mcp-protocol-version",
                ProtocolVersion::V2026_07_28.as_str(),
            )
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", &*encode_header_value(&name));
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let (_, text) = self.send_within_deadline(request).await?;
        let answer: Value =
            serde_json::from_slice(&text).context("the hub's answer is not JSON")?;
        Ok(match answer.get("error") {
            Some(error) => Err(error["message"]
                .as_str()
                .unwrap_or("no reason given")
                .to_owned()),
            None => Ok(answer["result"].clone()),
        })
    }

    fn host_header(&self) -> &str {
        match self.socket {
            Some(_) => "localhost",
            None => &self.address,
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn HubStream>> {
        if let Some(socket) = &self.socket {
            return Ok(Box::new(UnixStream::connect(socket).await?));
        }
        Ok(Box::new(TcpStream::connect(&self.address).await?))
    }

    /// Nobody listens there, or not for us; says what to do.
    fn connect_error(&self, error: &io::Error) -> anyhow::Error {
        let address = &self.address;
        match error.kind() {
            io::ErrorKind::ConnectionRefused => anyhow!(
                "no hub listens on {address}; start one with: maru --listen {address}, or leave out --listen to ask the hub of the data directory"
            ),
            kind => anyhow!("cannot reach the hub at {address}: {kind}"),
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        let unreachable = || format!("cannot reach the hub at {}", self.address);
        let stream = self.connect().await;
        let stream = stream.map_err(|error| self.connect_error(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .with_context(unreachable)?;
        let exchange = async {
            let reply = sender.send_request(request).await?;
            let status = reply.status().as_u16();
            let body = reply.into_body().collect().await?;
            Ok::<_, hyper::Error>((status, body.to_bytes()))
        };
        let mut exchange = std::pin::pin!(exchange);
        let mut connection = std::pin::pin!(connection);
        let body = tokio::select! {
            body = &mut exchange => body,
            _closed = &mut connection => exchange.await,
        };
        body.with_context(unreachable)
    }
}
