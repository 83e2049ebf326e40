//! `maru servers search`: servers of a registry, which is a file, another hub, or gone.

use std::fs;

use serde_json::{Value, json};

use super::{assert_refused, toolsets::run, utf8};
use crate::test_hub::TestHub;

async fn hub_with_registry(location: &str) -> TestHub {
    TestHub::with_config(|config| config.mcp.registry = Some(location.to_owned())).await
}

fn search(hub: &TestHub, word: &str) -> String {
    let output = run(hub, &["servers", "search", word]);
    assert!(output.status.success(), "{}", utf8(&output.stderr));
    utf8(&output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_a_file_are_shown_as_the_commands_that_add_them() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("registry.json");
    let weather = json!({"server": {
        "name": "io.example/weather", "version": "1.0.0", "description": "Tells the weather",
        "remotes": [{"type": "streamable-http", "url": "https://w.example/mcp?a=1&b=$(id)"}],
        "packages": [{
            "registryType": "npm", "identifier": "weather", "version": "1.0.0",
            "transport": {"type": "stdio"}, "environmentVariables": [{"name": "KEY"}],
            "packageArguments": [{"type": "positional", "value": "it's; rm -rf /"}],
        }],
    }});
    let stocks = json!({"server": {"name": "io.example/stocks", "version": "2.0.0", "description": "Prices"}});
    let registry = json!({"servers": [weather, stocks]});
    fs::write(&file, registry.to_string()).unwrap();
    let hub = hub_with_registry(file.to_str().unwrap()).await;
    let expected = r"io.example/weather 1.0.0
  Tells the weather
  maru servers add weather --url 'https://w.example/mcp?a=1&b=$(id)'
  maru servers add weather --env KEY= -- npx -y weather@1.0.0 'it'\''s; rm -rf /'
";
    assert_eq!(search(&hub, "WEATHER"), expected);
    assert_eq!(search(&hub, "xyzzy"), "no server of the registry fits\n");
    fs::write(&file, "{}").unwrap();
    let refused = run(&hub, &["servers", "search", "weather"]);
    assert_refused(
        &refused,
        &["registry.json is not an answer of an MCP registry"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_another_hub_are_found_and_added() {
    let other = TestHub::start().await;
    let hub = hub_with_registry(&format!("http://{}", other.address)).await;
    let found = search(&hub, "maru");
    let url = format!("http://{}/mcp", other.address);
    assert!(
        found.contains(&format!("maru servers add maru --url {url}\n")),
        "{found}"
    );
    let shown = hub
        .send_as_admin("GET", "/api/mcp/registry?search=maru", Value::Null)
        .await;
    let shown = shown.json().await;
    let installation = &shown["servers"][0]["installations"][0];
    assert_eq!(
        *installation,
        json!({"kind": "streamable-http", "entry": {"type": "http", "url": url}})
    );
    other.running.stop().await;
    let refused = run(&hub, &["servers", "search", "maru"]);
    assert_refused(&refused, &["cannot reach"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_without_a_registry_says_how_to_set_one() {
    let hub = TestHub::start().await;
    assert!(search(&hub, "weather").contains("mcp.registry"));
    let reader = json!({"name": "r", "role": "agent"});
    let token = hub.create_token(reader).await;
    let refused = crate::http_client::TestRequest::new(&hub.address, "GET", "/api/mcp/registry")
        .header("authorization", &format!("Bearer {token}"))
        .send()
        .await;
    assert_eq!(refused.status, 403);
}
