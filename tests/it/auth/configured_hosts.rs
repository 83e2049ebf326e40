//! Services that the settings name on the machine of a hub that serves others.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::Request, http::StatusCode};
use maru::{
    app::start_span_export,
    config::{Config, ModelDefinition},
};
use maru_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{http_client::wait_until, test_hub::TestHub};

/// The paths that were asked for.
type SeenPaths = Arc<Mutex<Vec<String>>>;

/// A model, an embedder, ChromaDB, a collector and an issuer at one address.
async fn start_services(address: &str) -> (SocketAddr, SeenPaths) {
    let seen = SeenPaths::default();
    let paths = Arc::clone(&seen);
    let answer = async move |request: Request| {
        let path = request.uri().path().to_owned();
        let body = match path.as_str() {
            "/jwks" => json!({"keys": []}),
            "/v1/models" => json!({"data": [{"id": "local"}]}),
            "/v1/embeddings" => json!({"data": [{"index": 0, "embedding": [1.0, 0.0]}]}),
            _ => json!({}),
        };
        let is_chroma = path.starts_with("/api/v2/");
        paths.lock().unwrap().push(path);
        let status = if is_chroma {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        (status, body.to_string())
    };
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    Tasks::default().spawn(async move {
        let _ = axum::serve(listener, Router::new().fallback(answer)).await;
    });
    (address, seen)
}

fn name_services(config: &mut Config, address: SocketAddr) {
    config.models = vec![ModelDefinition {
        name: "*".to_owned(),
        base_url: Some(format!("http://{address}/v1")),
        ..ModelDefinition::default()
    }];
    config.embedding.url = Some(format!("http://{address}/v1/embeddings"));
    config.embedding.model = Some("local".to_owned());
    config.chromadb.host = Some(address.ip().to_string());
    config.chromadb.port = address.port();
    config.telemetry.otlp_endpoint = Some(format!("http://{address}"));
    config.oauth.issuer = Some("https://login.example".to_owned());
    config.oauth.resource = Some("https://maru.example/mcp".to_owned());
    config.oauth.jwks_url = Some(format!("http://{address}/jwks"));
}

#[tokio::test(flavor = "multi_thread")]
async fn services_of_the_settings_are_reached_on_the_machine_of_an_exposed_hub() {
    for loopback in ["127.0.0.1:0", "[::1]:0"] {
        let (address, seen) = start_services(loopback).await;
        let hub = TestHub::with_config(|config| {
            config.behind_tls_proxy = true;
            name_services(config, address);
            // Spans are exported by the process, not by one hub.
            assert!(start_span_export(config).unwrap().is_some());
        })
        .await;
        let models = hub.send_as_admin("GET", "/v1/models", Value::Null).await;
        assert!(models.text().await.contains("\"local\""));
        let params = json!({"name": "get_sim_search", "arguments": {"query_list": ["x"]}});
        let token = format!("Bearer {}", hub.running.admin_token.reveal());
        let call = hub.stateless_request("tools/call", params);
        let answer = call.header("authorization", &token).send().await;
        assert_eq!(answer.status, 200);
        for expected in ["/jwks", "/v1/models", "/v1/embeddings", "/api/v2/"] {
            let is_expected = |it: &String| it.starts_with(expected);
            wait_until(async || seen.lock().unwrap().iter().any(is_expected)).await;
        }
        // What a user registers at the same address is still refused.
        let url = format!("http://{address}/mcp");
        let server = json!({"name": "s", "transportType": "HTTP", "config": {"url": url}});
        let refused = hub.send_as_admin("POST", "/api/mcp/servers", server).await;
        assert_eq!(refused.status, 400);
        hub.running.stop().await;
    }
}
