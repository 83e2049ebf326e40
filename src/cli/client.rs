//! Asking the running hub, or the catalog itself when none runs.

use std::{fs, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use maru_protocol::{ProtocolVersion, SseEvent, SseReader, encode_header_value, key};
use serde_json::{Value, json};
use tokio::time;

use super::hub_endpoint::{HubEndpoint, HubStream};
use crate::{
    app::{HTTP_SOCKET, HubCore, running_hub},
    auth::Principal,
    config::{Config, LoadedConfig, ValueOrigin},
    downstream::http::KEEP_ALIVE_INTERVAL,
    tools::{Caller, CatalogScope, EntryResponse, EntryResult},
};

/// How long a stream may be silent before the hub counts as gone.
const MAX_STREAM_SILENCE: Duration = Duration::from_secs(4 * KEEP_ALIVE_INTERVAL.as_secs());
/// The longest answer that is read as a whole.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Someone who lists and calls tools.
#[derive(Debug)]
pub(super) enum CatalogClient {
    Hub(HubClient),
    InProcess(Box<HubCore>),
}

#[derive(Debug)]
pub(super) struct HubClient {
    address: String,
    endpoint: HubEndpoint,
    token: Option<String>,
    deadline: Duration,
}

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
        Some(Self {
            endpoint: endpoint(config, &address, own.as_ref() == Some(&address)),
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
        let (status, text) = self.send(request).await?;
        let answer = if text.is_empty() {
            Value::Null
        } else {
            parse_json(&text)?
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
        self.exchange(request, async |response| {
            if !is_event_stream(&response) {
                let (_, text) = self.within_deadline(read_whole(response)).await??;
                return parse_json(&text).map(Some);
            }
            let mut body = response.into_body();
            let mut reader = SseReader::default();
            let mut found = Vec::new();
            while let Some(data) = self.next_chunk(&mut body).await? {
                reader
                    .feed(&data, &mut found)
                    .context("the hub sent too much")?;
                for event in found.drain(..) {
                    on(event).await?;
                }
            }
            Ok(None)
        })
        .await
    }

    /// The next bytes of a stream; `None` at its end. The hub sends comments when it
    /// has nothing to say, so a long silence means that it is gone.
    async fn next_chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let frame = time::timeout(MAX_STREAM_SILENCE, body.frame());
        let Some(frame) = frame.await.map_err(|_| self.late(MAX_STREAM_SILENCE))? else {
            return Ok(None);
        };
        let frame = frame.with_context(|| self.unreachable())?;
        Ok(Some(frame.into_data().unwrap_or_default()))
    }

    fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.endpoint.host_header())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json");
        match &self.token {
            Some(token) => {
                request.header(header::AUTHORIZATION, format!("Bearer {}", token.trim()))
            }
            None => request,
        }
    }

    /// A request whose answer is read as a whole; its status and body.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        self.within_deadline(self.exchange(request, read_whole))
            .await?
    }

    /// Sends `request` over a connection of its own, which lives until `read` is done
    /// with the response.
    async fn exchange<T>(
        &self,
        request: Request<Full<Bytes>>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T>,
    ) -> Result<T> {
        let opening = Box::pin(self.open_connection());
        let opened = self.within_deadline(opening).await?;
        let (mut sender, connection) = opened.with_context(|| self.unreachable())?;
        let mut connection = pin!(connection);
        let mut exchange = pin!(async {
            let response = self.within_deadline(sender.send_request(request)).await?;
            read(response.with_context(|| self.unreachable())?).await
        });
        tokio::select! {
            done = &mut exchange => done,
            // The exchange notices, too, and says what is wrong.
            _closed = &mut connection => exchange.await,
        }
    }

    async fn open_connection(&self) -> Result<(SendRequest<Full<Bytes>>, HubConnection)> {
        let stream = self.endpoint.connect().await?;
        Ok(http1::handshake(TokioIo::new(stream)).await?)
    }

    async fn within_deadline<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let done = time::timeout(self.deadline, work).await;
        done.map_err(|_| self.late(self.deadline))
    }

    fn late(&self, waited: Duration) -> anyhow::Error {
        anyhow!(
            "the hub at {} did not answer within {waited:?}",
            self.address
        )
    }

    fn unreachable(&self) -> String {
        format!("cannot reach the hub at {}", self.address)
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
        let (_, text) = self.send(request).await?;
        let answer = parse_json(&text)?;
        Ok(match answer.get("error") {
            Some(error) => Err(error["message"]
                .as_str()
                .unwrap_or("no reason given")
                .to_owned()),
            None => Ok(answer["result"].clone()),
        })
    }
}

/// Our own hub is reached by its socket if there is one, any other as the settings
/// say that hubs are reached.
fn endpoint(config: &Config, address: &str, is_own: bool) -> HubEndpoint {
    let socket = config.data_dir.join(HTTP_SOCKET);
    if is_own && socket.exists() {
        return HubEndpoint::LocalSocket(socket);
    }
    let address = address.to_owned();
    match config.tls.certificate.clone() {
        None => HubEndpoint::Tcp { address },
        Some(certificate) => HubEndpoint::Tls {
            address,
            certificate,
        },
    }
}

/// The connection under requests; it must be polled for them to go on.
type HubConnection = http1::Connection<TokioIo<Box<dyn HubStream>>, Full<Bytes>>;

fn is_event_stream(response: &Response<Incoming>) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|it| it == "text/event-stream")
}

async fn read_whole(response: Response<Incoming>) -> Result<(u16, Bytes)> {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    let body = body.collect().await.map_err(|error| anyhow!(error));
    let body = body.context("the hub's answer ended early or is too large")?;
    Ok((status, body.to_bytes()))
}

fn parse_json(text: &[u8]) -> Result<Value> {
    serde_json::from_slice(text).context("the hub's answer is not JSON")
}
