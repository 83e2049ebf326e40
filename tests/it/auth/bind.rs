//! Serving more than this machine: encrypted, with tokens, and no programs.

use std::{fs, path::Path, process::Command, sync::Arc};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use maru::config::TlsSettings;
use maru_runtime::tasks::Tasks;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::{
    http_client::{TestRequest, wait_until, within_test_timeout},
    test_hub::TestHub,
};

const TLS_FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

pub(crate) fn tls_settings() -> TlsSettings {
    TlsSettings {
        certificate: Some(format!("{TLS_FIXTURES}/certificate.pem").into()),
        key: Some(format!("{TLS_FIXTURES}/key.pem").into()),
    }
}

/// A connection to a hub that shows this certificate.
async fn connect(hub: &TestHub, certificate: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let certificate =
        CertificateDer::from_pem_file(format!("{TLS_FIXTURES}/{certificate}")).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(&hub.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    within_test_timeout(connector.connect(name, stream)).await
}

async fn send(hub: &TestHub, request: Request<Full<Bytes>>) -> Response<Incoming> {
    let stream = connect(hub, "certificate.pem").await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    Tasks::default().spawn(async move {
        let _ = connection.await;
    });
    within_test_timeout(sender.send_request(request))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_with_tls_refuses_plain_http() {
    let hub = TestHub::with_config(|config| config.tls = tls_settings()).await;
    let request = Request::get("/healthz").header("host", "localhost");
    let reply = send(&hub, request.body(Full::default()).unwrap()).await;
    assert_eq!(reply.status(), 200);
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, r#"{"status":"ok"}"#);
    // Without encryption there is no answer.
    let stream = TcpStream::connect(&hub.address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    Tasks::default().spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get("/healthz").header("host", "localhost");
    let plain = sender
        .send_request(request.body(Full::<Bytes>::default()).unwrap())
        .await;
    assert!(plain.is_err());
    // The command line still finds its way.
    let directory = hub.directory.path().to_owned();
    let listed = tokio::task::spawn_blocking(move || run_maru(&directory, &["token", "list"]));
    let (code, shown) = listed.await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("admin"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_get_hsts_and_secure_cookies_over_tls() {
    let hub = TestHub::with_config(|config| {
        config.tls = tls_settings();
        config.http.allowed_hosts = vec!["maru.example".to_owned()];
    })
    .await;
    let token = json!({"token": hub.running.admin_token.reveal()}).to_string();
    let sign_in = |host: &str| {
        let request = Request::post("/api/session")
            .header("host", host)
            .header("content-type", "application/json");
        request.body(Full::from(token.clone())).unwrap()
    };
    let reply = send(&hub, sign_in("maru.example")).await;
    assert_eq!(reply.status(), 200);
    let cookie = reply.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let hsts = "strict-transport-security";
    assert_eq!(reply.headers()[hsts], "max-age=31536000");
    // Refusals carry it as well; localhost belongs to other programs, too.
    let request = Request::get("/api/tokens").header("host", "maru.example:443");
    let refused = send(&hub, request.body(Full::default()).unwrap()).await;
    assert_eq!(refused.status(), 401);
    assert!(refused.headers().contains_key(hsts));
    let reply = send(&hub, sign_in("localhost:20006")).await;
    assert!(!reply.headers().contains_key(hsts));

    // A proxy that encrypts says the second itself.
    let hub = TestHub::with_config(|config| config.behind_tls_proxy = true).await;
    let body = json!({"token": hub.running.admin_token.reveal()});
    let reply = TestRequest::post(&hub.address, "/api/session", &body)
        .send()
        .await;
    assert!(reply.headers["set-cookie"].ends_with("; Secure"));
    assert!(!reply.headers.contains_key(hsts));
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_certificate_is_shown_to_new_connections() {
    let directory = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        // As certbot does: the file is replaced, never half written.
        let (new, path) = (directory.path().join("new"), directory.path().join(to));
        fs::copy(format!("{TLS_FIXTURES}/{from}"), &new).unwrap();
        fs::rename(new, path).unwrap();
    };
    copy("certificate.pem", "c.pem");
    copy("key.pem", "k.pem");
    let hub = TestHub::with_config(|config| {
        config.tls = TlsSettings {
            certificate: Some(directory.path().join("c.pem")),
            key: Some(directory.path().join("k.pem")),
        };
    })
    .await;
    let old = connect(&hub, "certificate.pem").await.unwrap();
    // The certificate comes first; with the old key it cannot be used, and is not.
    copy("renewed.pem", "c.pem");
    assert!(connect(&hub, "certificate.pem").await.is_ok());
    copy("renewed_key.pem", "k.pem");
    wait_until(async || connect(&hub, "renewed.pem").await.is_ok()).await;
    assert!(connect(&hub, "certificate.pem").await.is_err());
    // Connections that are open go on.
    let (mut sender, connection) = http1::handshake(TokioIo::new(old)).await.unwrap();
    Tasks::default().spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get("/healthz").header("host", "localhost");
    let request = request.body(Full::<Bytes>::default()).unwrap();
    let reply = within_test_timeout(sender.send_request(request))
        .await
        .unwrap();
    assert_eq!(reply.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxied_hub_requires_tokens_and_starts_no_program_without_one() {
    let hub = TestHub::with_config(|config| config.behind_tls_proxy = true).await;
    let anonymous = hub.stateless_request("tools/list", json!({})).send().await;
    assert_eq!(anonymous.status, 401);
    let program = json!({"name": "fx", "transportType": "STDIO", "config": {"command": "python3"}});
    let refused = hub
        .send_as_admin("POST", "/api/mcp/servers", program.clone())
        .await;
    assert_eq!(refused.status, 403);
    let entry = json!({"mcpServers": {"fx": {"command": "python3"}}});
    let imported = hub
        .send_as_admin("POST", "/api/mcp/import", entry)
        .await
        .text()
        .await;
    assert!(imported.contains("not registered over HTTP"), "{imported}");
    let open = TestHub::with_config(|config| {
        config.behind_tls_proxy = true;
        config.allow_stdio_over_http = true;
        config.mcp.security.allowed_commands = vec!["python3 server.py".to_owned()];
    })
    .await;
    let mut program = program;
    program["autoConnect"] = false.into();
    let unlisted = open.send_as_admin("POST", "/api/mcp/servers", program.clone());
    assert_eq!(unlisted.await.status, 400);
    program["config"]["args"] = json!(["server.py"]);
    let allowed = open
        .send_as_admin("POST", "/api/mcp/servers", program)
        .await;
    assert_eq!(allowed.status, 201);
}

#[test]
fn open_bind_without_encryption_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    for (yaml, expected) in [
        (
            "listen: 0.0.0.0:0\n",
            "listen: 0.0.0.0 is not a loopback address",
        ),
        ("listen: '[::]:0'\ntls: {certificate: c.pem}\n", "tls.key"),
        ("oauth: {resource: 'https://x/mcp'}\n", "oauth.issuer"),
        (
            "oauth: {issuer: 'https://x', resource: 'https://x/mcp'}\n",
            "oauth.jwks_url",
        ),
        (
            "listen: 0.0.0.0:0\ntls: {certificate: none.pem, key: none.pem}\n",
            "none.pem",
        ),
    ] {
        fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        let (code, shown) = run_maru(directory.path(), &["serve"]);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}

pub(super) fn run_maru(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(arguments)
        .arg("--data-dir")
        .arg(directory)
        .current_dir(directory)
        .env_remove("MARU_CONFIG")
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}
