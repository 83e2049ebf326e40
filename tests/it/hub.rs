//! A hub on a free port with data of its own.

use std::sync::Arc;

use maru::{
    app::{self, Running},
    config::Config,
    tool::{OWN_SERVER, Offer},
};
use serde_json::{Value, json};

use crate::{
    fixture,
    wire::{Ask, Reply},
};

pub(crate) struct TestHub {
    pub(crate) address: String,
    pub(crate) running: Running,
    pub(crate) directory: tempfile::TempDir,
}

impl TestHub {
    /// A hub with its sample tools.
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: directory.path().to_owned(),
            ..Config::default()
        };
        change(&mut config);
        let running = app::start(config).await.unwrap();
        Self {
            address: running.address.to_string(),
            running,
            directory,
        }
    }

    /// A hub on a directory that outlives it.
    pub(crate) async fn open(config: Config) -> Self {
        let running = app::start(config).await.unwrap();
        Self {
            address: running.address.to_string(),
            running,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// A hub whose tools are those of the conformance suite.
    pub(crate) async fn with_suite() -> Self {
        let hub = Self::start().await;
        hub.publish(&fixture::offers(hub.running.catalog()));
        hub
    }

    /// The same, and a slow tool.
    pub(crate) async fn with_fixture() -> Self {
        let hub = Self::start().await;
        hub.publish_fixture();
        hub
    }

    pub(crate) fn publish_fixture(&self) {
        let offers = fixture::offers(self.running.catalog());
        self.publish(&[offers, vec![fixture::slow()]].concat());
    }

    pub(crate) fn publish(&self, offers: &[Arc<Offer>]) {
        self.running.catalog().publish(OWN_SERVER, offers);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn post(&self, body: &Value) -> Ask {
        Ask::post(&self.address, "/mcp", body)
    }

    /// Shakes hands; returns the session's id.
    pub(crate) async fn session(&self, version: &str, capabilities: Value) -> String {
        let reply = self.post(&initialize(version, &capabilities)).send().await;
        assert_eq!(reply.status, 200);
        reply.headers["mcp-session-id"].clone()
    }

    /// A request in a session.
    pub(crate) fn ask(&self, session: &str, body: &Value) -> Ask {
        self.post(body).header("mcp-session-id", session)
    }

    /// A request that stands alone.
    pub(crate) fn modern(&self, method: &str, params: Value) -> Ask {
        let body = modern(method, params);
        let name = body["params"]["name"]
            .as_str()
            .or(body["params"]["uri"].as_str())
            .map(str::to_owned);
        let ask = self
            .post(&body)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        match name {
            Some(name) => ask.header("mcp-name", &name),
            None => ask,
        }
    }

    /// A request of the admin.
    pub(crate) async fn admin(&self, method: &'static str, path: &str, body: Value) -> Reply {
        let ask = Ask::new(&self.address, method, path)
            .header("content-type", "application/json")
            .header(
                "authorization",
                &format!("Bearer {}", self.running.admin.reveal()),
            );
        match body {
            Value::Null => ask.send().await,
            body => ask.body(&body.to_string()).send().await,
        }
    }

    /// The names of all tools, each followed by a space.
    pub(crate) async fn tool_names(&self) -> String {
        let answer = self
            .modern("tools/list", json!({}))
            .send()
            .await
            .answer()
            .await;
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|it| format!("{} ", it["name"].as_str().unwrap()))
            .collect()
    }
}

pub(crate) fn initialize(version: &str, capabilities: &Value) -> Value {
    request(
        0,
        "initialize",
        json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }),
    )
}

pub(crate) fn request(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn modern(method: &str, mut params: Value) -> Value {
    if params["_meta"].is_null() {
        params["_meta"] = json!({});
    }
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    request(1, method, params)
}

pub(crate) fn call(id: i64, name: &str, arguments: Value) -> Value {
    request(
        id,
        "tools/call",
        json!({"name": name, "arguments": arguments}),
    )
}
