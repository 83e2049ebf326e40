//! `local_admin`: programs on this machine are admins, web pages and proxies are not.

use std::{fs, path::Path, process::Stdio};

use maru::config::Config;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use super::bind::run_maru;
use crate::{
    http_client::{TestRequest, within_test_timeout},
    test_hub::TestHub,
};

async fn hub_with_local_admin() -> TestHub {
    TestHub::with_config(|config: &mut Config| {
        config.local_admin = true;
        config.http.allowed_hosts = vec!["maru.example".to_owned()];
        config.http.allowed_origins = vec!["https://chat.example".to_owned()];
    })
    .await
}

fn add_request(hub: &TestHub, content_type: &str) -> TestRequest {
    let body = json!({"name": "added", "url": "http://127.0.0.1:9/mcp"});
    TestRequest::new(&hub.address, "POST", "/mcp/add")
        .header("content-type", content_type)
        .body(&body.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_a_token_changes_maru_and_is_in_the_audit() {
    let hub = hub_with_local_admin().await;
    for content_type in ["application/json", "application/x-www-form-urlencoded"] {
        let added = add_request(&hub, content_type).send().await;
        assert_eq!(added.status, 200, "{content_type}");
    }
    let refused = add_request(&hub, "text/plain").send().await;
    assert_eq!(refused.status, 415);
    let records = TestRequest::new(&hub.address, "GET", "/api/audit")
        .send()
        .await;
    assert_eq!(records.status, 200);
    let records = records.json().await.to_string();
    assert!(
        records.contains("POST /mcp/add") && records.contains("\"local\""),
        "{records}"
    );
    // Without the switch they are not.
    let plain = TestHub::start().await;
    assert_eq!(
        add_request(&plain, "application/json").send().await.status,
        401
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn web_pages_and_proxies_gain_nothing() {
    let hub = hub_with_local_admin().await;
    let own = format!("http://{}", hub.address);
    let rebound = format!("evil.example:{}", hub.address.rsplit_once(':').unwrap().1);
    let refused: [(&[(&str, &str)], u16); 15] = [
        // A form, fetch without preflight or sandboxed frame of another site.
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("origin", "http://localhost:3000")], 403),
        // DNS rebinding: the page's own name leads here.
        (&[("host", &rebound)], 403),
        (
            &[("host", &rebound), ("origin", "http://evil.example")],
            403,
        ),
        // Browsers that send no Origin still say what they are.
        (&[("sec-fetch-site", "cross-site")], 401),
        (&[("sec-fetch-site", "same-site")], 401),
        (&[("sec-fetch-mode", "no-cors")], 401),
        (&[("referer", "https://evil.example/")], 401),
        (&[("cookie", "theme=dark")], 401),
        // Pages that may talk to maru need a token or a session as before.
        (&[("origin", "https://chat.example")], 401),
        (&[("origin", &own)], 401),
        (&[("host", "maru.example")], 401),
        // What a proxy has passed on may come from anywhere.
        (&[("x-forwarded-for", "192.0.2.1")], 401),
        (&[("via", "1.1 proxy")], 401),
    ];
    let with_headers = |mut request: TestRequest, headers: &[(&str, &str)]| {
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send()
    };
    for (headers, status) in refused {
        for content_type in ["application/json", "application/x-www-form-urlencoded"] {
            let reply = with_headers(add_request(&hub, content_type), headers).await;
            assert_eq!(reply.status, status, "{headers:?} {content_type}");
        }
        let request = TestRequest::new(&hub.address, "GET", "/api/tokens");
        let reply = with_headers(request, headers).await;
        assert_eq!(reply.status, status, "{headers:?}");
    }
    // The header of the console does not stand for a session, and a wrong token is no
    // missing one.
    let console = [("origin", &*own), ("x-maru-console", "1")];
    let reply = with_headers(add_request(&hub, "application/json"), &console).await;
    assert_eq!(reply.status, 401);
    let wrong = [("authorization", "Bearer wrong")];
    let reply = with_headers(add_request(&hub, "application/json"), &wrong).await;
    assert_eq!(reply.status, 401);
    // A preflight is not answered with any permission.
    let preflight = TestRequest::new(&hub.address, "OPTIONS", "/mcp/add")
        .header("origin", "https://evil.example")
        .header("access-control-request-method", "POST")
        .send()
        .await;
    assert!(!preflight.status.is_success());
    assert!(
        !preflight
            .headers
            .contains_key("access-control-allow-origin")
    );
    assert!(hub.running.servers().list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn private_addresses_are_registered_only_with_the_switch() {
    for (local_admin, status) in [(true, 201), (false, 400)] {
        let hub = TestHub::with_config(|config| config.local_admin = local_admin).await;
        let body = json!({"name": "tts", "transportType": "SSE",
            "config": {"url": "http://192.168.0.18:23016/sse"}});
        let made = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
        assert_eq!(made.status, status);
        let metadata = json!({"name": "meta", "transportType": "HTTP",
            "config": {"url": "http://169.254.169.254/latest"}});
        let refused = hub
            .send_as_admin("POST", "/api/mcp/servers", metadata)
            .await;
        assert_eq!(refused.status, 400);
    }
}

#[test]
fn exposed_hub_with_local_admin_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    for (yaml, arguments) in [
        ("behind_tls_proxy: true\n", &["--local-admin"][..]),
        (
            "tls: {certificate: c.pem, key: k.pem}\nlisten: 0.0.0.0:0\n",
            &["--local-admin"],
        ),
        ("require_token: true\n", &["--local-admin"]),
        ("behind_tls_proxy: true\nlocal_admin: true\n", &[]),
    ] {
        fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        let (code, shown) = run_maru(directory.path(), arguments);
        assert_eq!(code, Some(2), "{shown}");
        let named = shown.contains("local_admin") || shown.contains("--local-admin");
        assert!(named, "{shown}");
    }
}

#[tokio::test]
async fn switch_of_the_command_line_is_announced() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["--local-admin", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory.path())
        .current_dir(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut printed = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    within_test_timeout(async {
        while let Some(line) = lines.next_line().await.unwrap() {
            printed.push_str(&line);
            if line.starts_with("Stop with") {
                break;
            }
        }
    })
    .await;
    assert!(
        printed.contains("every program on this machine, without a token"),
        "{printed}"
    );
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let warned = within_test_timeout(async {
        while let Some(line) = log.next_line().await.unwrap() {
            if line.contains("WARN") && line.contains("local_admin is on") {
                return true;
            }
        }
        false
    });
    let address = fs::read_to_string(directory.path().join("hub")).unwrap();
    let tokens = TestRequest::new(&address, "GET", "/api/tokens")
        .send()
        .await;
    assert_eq!(tokens.status, 200);
    assert!(warned.await);
    assert!(show_origin(directory.path()).await.contains("false"));
}

/// What `maru config` says of the setting where nobody has set it.
async fn show_origin(directory: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["config", "--data-dir"])
        .arg(directory)
        .current_dir(directory)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let line = lines.find(|it| it.starts_with("local_admin"));
    line.map_or_else(|| Value::Null.to_string(), str::to_owned)
}
