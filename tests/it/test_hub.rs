//! A hub in the test's process, on a free port and in a temporary data directory.

use std::sync::Arc;

use maru::{
    app::{self, RunningHub},
    config::Config,
    tools::{CatalogEntry, OWN_SERVER_NAME},
};
use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse},
    suite_fixture,
};

pub(crate) struct TestHub {
    pub(crate) address: String,
    pub(crate) running: RunningHub,
    pub(crate) directory: tempfile::TempDir,
}

impl TestHub {
    /// Starts a hub with the sample tools.
    pub(crate) async fn start() -> Self {
        Self::with_config(|_| ()).await
    }

    pub(crate) async fn with_config(change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: directory.path().to_owned(),
            ..Config::default()
        };
        // A busy machine starts programs slowly.
        config.mcp.connect_wait_ms = 20_000;
        change(&mut config);
        let running = Box::pin(app::start(config)).await.unwrap();
        Self {
            address: running.address.to_string(),
            running,
            directory,
        }
    }

    /// Starts a hub whose data directory belongs to the test and outlives the hub.
    pub(crate) async fn with_directory(config: Config) -> Self {
        let running = Box::pin(app::start(config)).await.unwrap();
        Self {
            address: running.address.to_string(),
            running,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// Stops the hub and starts another one on its data directory.
    pub(crate) async fn restart(self) -> Self {
        self.running.stop().await;
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: self.directory.path().to_owned(),
            ..Config::default()
        };
        let running = Box::pin(app::start(config)).await.unwrap();
        Self {
            address: running.address.to_string(),
            running,
            directory: self.directory,
        }
    }

    /// Starts a hub with the tools of the conformance suite.
    pub(crate) async fn with_suite_tools() -> Self {
        let hub = Self::start().await;
        hub.publish(&suite_fixture::suite_entries(hub.running.catalog()));
        hub
    }

    /// Starts a hub with the tools of the conformance suite and a slow tool.
    pub(crate) async fn with_suite_and_slow_tool() -> Self {
        let hub = Self::start().await;
        hub.publish_fixture();
        hub
    }

    pub(crate) fn publish_fixture(&self) {
        let entries = suite_fixture::suite_entries(self.running.catalog());
        self.publish(&[entries, vec![suite_fixture::slow_tool()]].concat());
    }

    pub(crate) fn publish(&self, entries: &[Arc<CatalogEntry>]) {
        self.running.catalog().publish(OWN_SERVER_NAME, entries);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(crate) fn post(&self, body: &Value) -> TestRequest {
        TestRequest::post(&self.address, "/mcp", body)
    }

    /// Sends `initialize` and returns the session id.
    pub(crate) async fn initialize_session(&self, version: &str, capabilities: Value) -> String {
        let reply = self
            .post(&initialize_message(version, &capabilities))
            .send()
            .await;
        assert_eq!(reply.status, 200);
        reply.headers["mcp-session-id"].clone()
    }

    /// Builds a request within a session.
    pub(crate) fn session_request(&self, session: &str, body: &Value) -> TestRequest {
        self.post(body).header("mcp-session-id", session)
    }

    /// Builds a stateless request (2026-07-28).
    pub(crate) fn stateless_request(&self, method: &str, params: Value) -> TestRequest {
        let body = stateless_message(method, params);
        let name = body["params"]["name"]
            .as_str()
            .or(body["params"]["uri"].as_str())
            .map(str::to_owned);
        let request = self
            .post(&body)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        match name {
            Some(name) => request.header("mcp-name", &name),
            None => request,
        }
    }

    /// Sends a request with the admin token.
    pub(crate) async fn send_as_admin(
        &self,
        method: &'static str,
        path: &str,
        body: Value,
    ) -> TestResponse {
        let request = TestRequest::new(&self.address, method, path)
            .header("content-type", "application/json")
            .header(
                "authorization",
                &format!("Bearer {}", self.running.admin_token.reveal()),
            );
        match body {
            Value::Null => request.send().await,
            body => request.body(&body.to_string()).send().await,
        }
    }

    /// Creates a token and returns its secret.
    pub(crate) async fn create_token(&self, body: Value) -> String {
        let response = self.send_as_admin("POST", "/api/tokens", body).await;
        assert_eq!(response.status, 201);
        response.json().await["token"].as_str().unwrap().to_owned()
    }

    /// Returns the names of all tools, each followed by a space.
    pub(crate) async fn tool_names(&self) -> String {
        let response = self
            .stateless_request("tools/list", json!({}))
            .send()
            .await
            .rpc_response()
            .await;
        let tools = response["result"]["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|it| format!("{} ", it["name"].as_str().unwrap()))
            .collect()
    }
}

pub(crate) fn initialize_message(version: &str, capabilities: &Value) -> Value {
    request_message(
        0,
        "initialize",
        json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "test", "version": "1"},
        }),
    )
}

pub(crate) fn request_message(id: i64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// A stateless request message, with version and capabilities in `_meta`.
pub(crate) fn stateless_message(method: &str, mut params: Value) -> Value {
    if params["_meta"].is_null() {
        params["_meta"] = json!({});
    }
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    if params["_meta"]["io.modelcontextprotocol/clientCapabilities"].is_null() {
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    }
    request_message(1, method, params)
}

pub(crate) fn call_message(id: i64, name: &str, arguments: Value) -> Value {
    request_message(
        id,
        "tools/call",
        json!({"name": name, "arguments": arguments}),
    )
}
