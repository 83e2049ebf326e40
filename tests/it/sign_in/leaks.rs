//! Tokens, codes and client secrets come out nowhere.

use std::{
    fs,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use super::{
    SERVER,
    browser::{follow, path_and_query},
    fake_remote::{CANARY, FakeRemote},
    private_key,
};
use crate::{
    faults::free_port,
    http_client::{TestRequest, wait_until},
    secret_search::{READ_PATHS, SecretSearch},
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
    let hub = HubProcess(child);
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
    // A client that registered itself, a key and a fixed token.
    let key = private_key();
    let key_line = key.lines().nth(1).unwrap().to_owned();
    let fixed = format!("{CANARY}-fixed-robot");
    remote.accept_token(&fixed);
    for (name, auth) in [
        ("registered", json!({})),
        (
            "keyed",
            json!({"type": "client_credentials", "client_id": "mine", "private_key": key}),
        ),
        ("fixed", json!({"type": "bearer", "token": fixed})),
    ] {
        let config = json!({"url": remote.url(), "auth": auth});
        let body =
            json!({"name": name, "transportType": "HTTP", "config": config, "autoConnect": true});
        shown += &admin("POST", "/api/mcp/servers", body).await;
    }
    let login = "/api/mcp/servers/registered/login";
    let link = admin("POST", login, json!({})).await;
    shown += &link;
    let link: Value = serde_json::from_str(&link).unwrap();
    let redirect = follow(link["authorization_url"].as_str().unwrap(), &address).await;
    let body = json!({"redirect_url": redirect});
    shown += &admin("POST", &format!("{login}/complete"), body).await;
    assert_eq!(remote.count("/register"), 1);
    let listed = admin("GET", "/api/tools", Value::Null).await;
    for server in ["registered", "keyed", "fixed"] {
        assert!(listed.contains(&format!("{server}__whoami")), "{listed}");
    }
    for path in READ_PATHS {
        shown += &admin("GET", path, Value::Null).await;
    }
    let secrets = SecretSearch::new([CANARY.to_owned(), key_line]);
    secrets.assert_absent("a response", shown);
    secrets.assert_absent_in_files(at);
    secrets.assert_absent_in_process(hub.0.id());
}
