//! Serving more than this machine: encrypted, with tokens, and no programs.

use std::{fs, path::Path, process::Command, sync::Arc};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use maru::{config::Tls, tasks::Tasks};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

use crate::hub::TestHub;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tls");

fn tls() -> Tls {
    Tls {
        certificate: Some(format!("{FOLDER}/certificate.pem").into()),
        key: Some(format!("{FOLDER}/key.pem").into()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_hub_answers_over_tls_only() {
    let hub = TestHub::with(|config| config.tls = tls()).await;
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(format!("{FOLDER}/certificate.pem")).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(&hub.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    Tasks::default().spawn(async move {
        let _ = connection.await;
    });
    let request = Request::get("/healthz").header("host", "localhost");
    let reply = sender
        .send_request(request.body(Full::<Bytes>::default()).unwrap())
        .await
        .unwrap();
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
    let listed = tokio::task::spawn_blocking(move || maru(&directory, &["token", "list"]));
    let (code, shown) = listed.await.unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("admin"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn proxied_hub_wants_tokens_and_starts_no_program_for_strangers() {
    let hub = TestHub::with(|config| config.behind_tls_proxy = true).await;
    let anonymous = hub.modern("tools/list", json!({})).send().await;
    assert_eq!(anonymous.status, 401);
    let program = json!({"name": "fx", "transportType": "STDIO", "config": {"command": "python3"}});
    let refused = hub.admin("POST", "/api/mcp/servers", program.clone()).await;
    assert_eq!(refused.status, 403);
    let entry = json!({"mcpServers": {"fx": {"command": "python3"}}});
    let imported = hub
        .admin("POST", "/api/mcp/import", entry)
        .await
        .text()
        .await;
    assert!(imported.contains("not registered over HTTP"), "{imported}");
    let open = TestHub::with(|config| {
        config.behind_tls_proxy = true;
        config.allow_stdio_over_http = true;
    })
    .await;
    let mut program = program;
    program["autoConnect"] = false.into();
    let allowed = open.admin("POST", "/api/mcp/servers", program).await;
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
        let (code, shown) = maru(directory.path(), &["serve"]);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains(expected), "{shown}");
    }
}

fn maru(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
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
