//! A client of the running hub.

use std::{
    fs,
    pin::pin,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, anyhow};
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

use super::{
    catalog_client::CliCallOutcome,
    context::CliContext,
    hub_endpoint::{HubEndpoint, HubStream},
    remote_hub::RemoteHub,
    servers::percent_encode,
};
use crate::{
    app::{HTTP_SOCKET, running_hub},
    config::{Config, ValueOrigin},
};

/// How long a stream may be silent before the hub counts as disconnected: longer than
/// `limits.keep_alive_ms` can be.
const MAX_STREAM_SILENCE: Duration = Duration::from_secs(60);
/// The maximum size of a response that is read whole.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Sends requests to a running hub.
#[derive(Debug)]
pub(super) struct HubClient {
    address: String,
    origin: String,
    endpoint: HubEndpoint,
    token: Option<String>,
    is_own: bool,
    deadline: Duration,
}

/// The message of an error response of the hub.
pub(super) fn error_message(response: &Value) -> &str {
    let error = &response["error"];
    let message = error.as_str().or(error["message"].as_str());
    message.unwrap_or("the hub refused the request without a reason")
}

impl HubClient {
    /// Finds the hub at `--hub` or `--listen`, or the hub that runs on this data directory.
    pub(super) fn find(context: &CliContext) -> Result<Option<Self>> {
        let config = context.config();
        let sources = config.sources.iter().map(|it| &it.bounds);
        let sources = sources.chain([&config.postgresql.bounds]);
        let queries = sources.map(|it| it.acquire_timeout_ms + 2 * it.timeout_ms);
        let longest_ms = queries
            .chain([config.limits.tool_timeout_ms, config.mcp.connect_timeout_ms])
            .max()
            .unwrap_or_default();
        let deadline = Duration::from_millis(longest_ms) + Duration::from_secs(5);
        if let Some(url) = &context.hub {
            let hub = RemoteHub::parse(url)?;
            hub.check_token(context.token.as_deref())?;
            return Ok(Some(Self {
                origin: hub.origin(),
                address: hub.address.clone(),
                endpoint: hub.endpoint(config),
                token: context.token.clone(),
                is_own: false,
                deadline,
            }));
        }
        // An address in the settings does not mean that a hub listens there.
        let has_flag = matches!(context.loaded.origin_of("/listen"), ValueOrigin::Flag(_));
        let own_address = running_hub(&config.data_dir);
        let address = match &own_address {
            _ if has_flag => config.listen.to_string(),
            Some(address) => address.clone(),
            None => return Ok(None),
        };
        let is_own = own_address.as_ref() == Some(&address);
        // The admin token of this data directory is sent only to its own hub.
        let own_token = || fs::read_to_string(config.data_dir.join("admin-token")).ok();
        let token = context.token.clone();
        let is_encrypted = config.tls.certificate.is_some() || config.behind_tls_proxy;
        let scheme = if is_encrypted { "https" } else { "http" };
        Ok(Some(Self {
            origin: format!("{scheme}://{address}"),
            endpoint: endpoint(config, &address, is_own),
            address,
            token: token.or_else(|| is_own.then(own_token).flatten()),
            is_own,
            deadline,
        }))
    }

    /// Finds the hub like [`find`](Self::find), with an error if there is none.
    pub(super) fn open(context: &CliContext) -> Result<Self> {
        Self::find(context)?.ok_or_else(|| {
            anyhow!(
                "no hub runs on the data directory {}; start one with: maru",
                context.config().data_dir.display()
            )
        })
    }

    /// Sends a request that changes or reads something; an answer other than success is an
    /// error with the hub's reason.
    pub(super) async fn request_json(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let (status, response) = self.send_rest(method, path, body).await?;
        match status {
            200..300 => Ok(response),
            _ => Err(anyhow!(self.refusal(status, &response))),
        }
    }

    /// Reads a server as the console's form does: its whole `config`, with secrets masked.
    pub(super) async fn request_for_editing(&self, path: &str) -> Result<Value> {
        let request = self
            .request("GET", path)
            .header("x-maru-console", "1")
            .body(Full::new(Bytes::new()))?;
        let (status, text) = self.send(request).await?;
        let response = parse_json(&text)?;
        match status {
            200 => Ok(response),
            _ => Err(anyhow!(self.refusal(status, &response))),
        }
    }

    /// Why the hub did not do what was asked, and what helps.
    pub(super) fn refusal(&self, status: u16, response: &Value) -> String {
        let message = error_message(response);
        match status {
            401 if self.token.is_none() => format!(
                "the hub at {} requires a token: set MARU_TOKEN, or use --token TOKEN",
                self.address
            ),
            401 => format!(
                "the hub at {} does not know the token: {message}",
                self.address
            ),
            _ => message.to_owned(),
        }
    }

    /// The hub's time in seconds since 1970, as it dates its responses.
    pub(super) async fn clock(&self) -> Result<Option<i64>> {
        let request = self
            .request("GET", "/healthz")
            .body(Full::new(Bytes::new()))?;
        let date = self.exchange(request, async |response| {
            Ok(response.headers().get(header::DATE).cloned())
        });
        let date = self.within_deadline(date).await??;
        let date = date.as_ref().and_then(|it| it.to_str().ok());
        let time = date.and_then(|it| httpdate::parse_http_date(it).ok());
        let elapsed = time.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
        Ok(elapsed.and_then(|it| i64::try_from(it.as_secs()).ok()))
    }

    /// The address of the hub as a URL without a path.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether it is the hub of the data directory.
    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The address that the hub listens on.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request to the API; returns the status and the JSON of the response.
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
        let response = if text.is_empty() {
            Value::Null
        } else {
            parse_json(&text)?
        };
        Ok((status, response))
    }

    /// Sends a request and passes each event of the response to `on_event`, whose error ends
    /// the stream. Returns the JSON of a response that is not an event stream.
    pub(super) async fn stream_events(
        &self,
        path: &str,
        body: &Value,
        on_event: impl AsyncFnMut(SseEvent) -> Result<()>,
    ) -> Result<Option<Value>> {
        let mut request = self
            .request("POST", path)
            .body(Full::new(Bytes::from(body.to_string())))?;
        let accept = HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(header::ACCEPT, accept);
        self.send_for_events(request, on_event).await
    }

    async fn send_for_events(
        &self,
        request: Request<Full<Bytes>>,
        mut on_event: impl AsyncFnMut(SseEvent) -> Result<()>,
    ) -> Result<Option<Value>> {
        self.exchange(request, async |response| {
            if !is_event_stream(&response) {
                let (_, text) = self.within_deadline(read_whole(response)).await??;
                return parse_json(&text).map(Some);
            }
            let mut body = response.into_body();
            let mut reader = SseReader::default();
            let mut events = Vec::new();
            while let Some(data) = self.next_chunk(&mut body).await? {
                reader
                    .feed(&data, &mut events)
                    .context("the hub sent an event that is too large")?;
                for event in events.drain(..) {
                    on_event(event).await?;
                }
            }
            Ok(None)
        })
        .await
    }

    /// Returns the next bytes of a stream; `None` at its end. The hub sends comments while it
    /// has no events, so a long silence means that it is disconnected.
    async fn next_chunk(&self, body: &mut Incoming) -> Result<Option<Bytes>> {
        let frame = time::timeout(MAX_STREAM_SILENCE, body.frame());
        let Some(frame) = frame
            .await
            .map_err(|_| self.timeout_error(MAX_STREAM_SILENCE))?
        else {
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

    /// Sends a request; returns the status and the whole body of the response.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(u16, Bytes)> {
        self.within_deadline(self.exchange(request, read_whole))
            .await?
    }

    /// Sends `request` over its own connection, which is open until `read` has read the
    /// response.
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
            result = &mut exchange => result,
            // The exchange fails with the connection and returns the error.
            _closed = &mut connection => exchange.await,
        }
    }

    async fn open_connection(&self) -> Result<(SendRequest<Full<Bytes>>, HubConnection)> {
        let stream = self.endpoint.connect().await?;
        Ok(http1::handshake(TokioIo::new(stream)).await?)
    }

    async fn within_deadline<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let result = time::timeout(self.deadline, work).await;
        result.map_err(|_| self.timeout_error(self.deadline))
    }

    fn timeout_error(&self, timeout: Duration) -> anyhow::Error {
        anyhow!(
            "the hub at {} did not answer within {timeout:?}",
            self.address
        )
    }

    fn unreachable(&self) -> String {
        format!("cannot reach the hub at {}", self.address)
    }

    /// Sends an MCP request; returns its result or the message of its error.
    pub(super) async fn send_mcp(
        &self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, String>> {
        let request = self.mcp_request(method, params, json!({}))?;
        let (_, text) = self.send(request).await?;
        Ok(rpc_outcome(&parse_json(&text)?))
    }

    pub(super) async fn call_tool(
        &self,
        name: &str,
        arguments: Value,
        on_notification: impl Fn(&Value),
    ) -> Result<CliCallOutcome> {
        let params = json!({"name": name, "arguments": arguments});
        let meta = json!({"progressToken": 1, key::LOG_LEVEL: "info"});
        let mut request = self.mcp_request("tools/call", params, meta)?;
        let accept = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(header::ACCEPT, accept);
        let mut streamed = None;
        let whole = self.send_for_events(request, async |event| {
            let message = parse_json(event.data.as_bytes())?;
            if message.get("id").is_some() {
                streamed = Some(message);
            } else {
                on_notification(&message);
            }
            Ok(())
        });
        let whole = whole.await?;
        let response = whole.or(streamed);
        let response = response.context("the hub ended the response without a result")?;
        Ok(match rpc_outcome(&response) {
            Ok(result) => CliCallOutcome::Result(result.into()),
            Err(reason) => CliCallOutcome::Refused(reason),
        })
    }

    /// An MCP request of 2026-07-28, which needs no handshake; `meta` has further members of
    /// its `_meta`.
    fn mcp_request(
        &self,
        method: &str,
        mut params: Value,
        mut meta: Value,
    ) -> Result<Request<Full<Bytes>>> {
        meta[key::PROTOCOL_VERSION] = ProtocolVersion::V2026_07_28.as_str().into();
        meta[key::CLIENT_CAPABILITIES] = json!({});
        params["_meta"] = meta;
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
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }
}

/// The result of a JSON-RPC response, or the message of its error.
fn rpc_outcome(response: &Value) -> Result<Value, String> {
    match response.get("error") {
        Some(_) => Err(error_message(response).to_owned()),
        None => Ok(response["result"].clone()),
    }
}

/// The filters that are given as the rest of a query: `&name=value` for each.
pub(super) fn query_text(filters: &[(&str, Option<&str>)]) -> String {
    let given = filters
        .iter()
        .filter_map(|(name, value)| Some((name, (*value)?)));
    given
        .map(|(name, value)| format!("&{name}={}", percent_encode(value)))
        .collect()
}

/// The endpoint of a hub: the socket of the own hub if it exists, otherwise TCP or TLS as in
/// the settings.
fn endpoint(config: &Config, address: &str, is_own: bool) -> HubEndpoint {
    let socket = config.data_dir.join(HTTP_SOCKET);
    if is_own && socket.exists() {
        return HubEndpoint::LocalSocket(socket);
    }
    let address = address.to_owned();
    match config.tls.certificate.clone() {
        None => HubEndpoint::Tcp { address },
        certificate => HubEndpoint::Tls {
            address,
            certificate,
        },
    }
}

/// An HTTP connection to the hub, which must be polled while requests are in progress.
type HubConnection = http1::Connection<TokioIo<Box<dyn HubStream>>, Full<Bytes>>;

fn is_event_stream(response: &Response<Incoming>) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    content_type.is_some_and(|it| it == "text/event-stream")
}

async fn read_whole(response: Response<Incoming>) -> Result<(u16, Bytes)> {
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    let body = body.collect().await.map_err(|error| anyhow!(error));
    let body = body.context("the hub's response is incomplete or too large")?;
    Ok((status, body.to_bytes()))
}

fn parse_json(text: &[u8]) -> Result<Value> {
    serde_json::from_slice(text).context("the hub's response is not JSON")
}
