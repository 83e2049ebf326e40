//! Tokens, codes and client secrets come out nowhere.

use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use super::{
    SERVER,
    browser::{follow, path_and_query},
    fake_remote::{CANARY, FakeRemote},
};
use crate::{
    faults::free_port,
    http_client::{TestRequest, wait_until},
    signals::maru_command,
};

struct HubProcess(Child);

impl Drop for HubProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_output_and_no_file_holds_a_secret_of_a_sign_in() {
    let remote = FakeRemote::start().await;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let address = format!("127.0.0.1:{}", free_port());
    let log = fs::File::create(at.join("log")).unwrap();
    let child = maru_command(at, &["serve", "--listen", &address])
        .env("MARU_LOG_LEVEL", "trace")
        .stdout(Stdio::from(log.try_clone().unwrap()))
        .stderr(Stdio::from(log))
        .spawn()
        .unwrap();
    let _hub = HubProcess(child);
    let token = at.join("data/admin-token");
    wait_until(async || tokio::net::TcpStream::connect(&address).await.is_ok() && token.exists())
        .await;
    let token = fs::read_to_string(token).unwrap().trim().to_owned();
    let admin = async |method: &'static str, path: &str, body: Value| {
        let request = TestRequest::new(&address, method, path)
            .header("content-type", "application/json")
            .header("authorization", &format!("Bearer {token}"));
        request.body(&body.to_string()).send().await.text().await
    };
    let config = json!({"url": remote.url(), "auth": {"client_id": "mine", "client_secret": format!("{CANARY}-configured")}});
    let body =
        json!({"name": "remote", "transportType": "HTTP", "config": config, "autoConnect": true});
    let mut shown = admin("POST", "/api/mcp/servers", body).await;
    let link = admin("POST", &format!("{SERVER}/login"), json!({})).await;
    shown += &link;
    let link: Value = serde_json::from_str(&link).unwrap();
    let redirect = follow(link["authorization_url"].as_str().unwrap(), &address).await;
    assert!(redirect.contains(CANARY));
    // Completed twice: pasted, and by the browser.
    let body = json!({"redirect_url": redirect});
    shown += &admin("POST", &format!("{SERVER}/login/complete"), body).await;
    let page = TestRequest::new(&address, "GET", path_and_query(&redirect))
        .send()
        .await;
    shown += &page.text().await;
    let call = json!({"name": "remote__whoami", "arguments": {}});
    let call = crate::test_hub::request_message(1, "tools/call", call);
    let called = TestRequest::post(&address, "/sse", &call)
        .send()
        .await
        .text()
        .await;
    assert!(called.contains("account 1"), "{called}");
    // The tokens are taken back, so that refreshing them fails.
    remote.revoke_all();
    shown += &called;
    shown += &TestRequest::post(&address, "/sse", &call)
        .send()
        .await
        .text()
        .await;
    for path in [
        "/api/mcp/servers",
        SERVER,
        "/api/mcp/servers/remote/log",
        "/api/mcp/servers/remote/messages",
        "/api/config",
        "/api/audit",
        "/api/calls",
        "/mcp/list",
        "/metrics",
        "/readyz",
        "/oauth/client.json",
    ] {
        shown += &admin("GET", path, Value::Null).await;
    }
    assert!(!shown.contains(CANARY), "{shown}");
    assert_files_without(at);
}

/// The store is searched too: what is in it is sealed.
fn assert_files_without(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_files_without(&path);
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let found = bytes
                .windows(CANARY.len())
                .any(|it| it == CANARY.as_bytes());
            assert!(!found, "{} holds a secret", path.display());
        }
    }
}
