//! Secrets go in and come out nowhere but where they belong.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    faults::{PYTHON, free_port},
    wire::Ask,
};

const MARU: &str = env!("CARGO_BIN_EXE_maru");
/// Each stands in another place of the settings or of a request.
const CANARIES: [&str; 7] = [
    "canary-env-5ecret",
    "canary-header-5ecret",
    "canary-file-5ecret",
    "canary-api-header-5ecret",
    "canary-api-env-5ecret",
    "canary-embedding-5ecret",
    "canary-argument-5ecret",
];

/// Says its secrets to everyone, then ends.
const TELLTALE: &str = "import os, sys\nsys.exit('bad key ' + os.environ.get('API_KEY', '') + os.environ.get('FILE_KEY', ''))\n";

struct Hub {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
    token: String,
}

impl Hub {
    async fn start(yaml: impl Fn(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("telltale.py"), TELLTALE).unwrap();
        fs::write(at.join("key"), format!("{}\n", CANARIES[2])).unwrap();
        fs::write(at.join("maru.yaml"), yaml(at)).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = fs::File::create(at.join("log")).unwrap();
        let child = Command::new(MARU)
            .args(["serve", "--listen", &address, "--data-dir"])
            .arg(at.join("data"))
            .current_dir(at)
            .env_remove("MARU_CONFIG")
            .env("MARU_LOG_LEVEL", "trace")
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let token = at.join("data/admin-token");
        let began = Instant::now();
        while tokio::net::TcpStream::connect(&address).await.is_err() || !token.exists() {
            assert!(began.elapsed() < Duration::from_secs(20));
            sleep(Duration::from_millis(20)).await;
        }
        Self {
            child,
            address,
            token: fs::read_to_string(token).unwrap().trim().to_owned(),
            folder,
        }
    }

    async fn admin(&self, method: &'static str, path: &str, body: Option<Value>) -> String {
        let ask = Ask::new(&self.address, method, path)
            .header("content-type", "application/json")
            .header("authorization", &format!("Bearer {}", self.token));
        let body = body.map_or(String::new(), |it| it.to_string());
        ask.body(&body).send().await.text().await
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn clean(place: &str, bytes: &[u8]) {
    for canary in CANARIES {
        let found = bytes
            .windows(canary.len())
            .any(|it| it == canary.as_bytes());
        let shown = String::from_utf8_lossy(bytes);
        assert!(!found, "{canary} is in {place}: {shown:.2000}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_output_holds_a_secret() {
    let hub = Hub::start(|at| {
        let (python, at) = (&*PYTHON, at.display());
        format!(
            "embedding: {{url: 'http://127.0.0.1:9/v1/embeddings', api_key: {}}}
mcp:
  reconnection: {{initial-delay-ms: 100, max-attempts: 2}}
  servers:
    - {{name: program, transport: stdio, command: {python}, args: ['{at}/telltale.py'], env: {{API_KEY: {}, FILE_KEY: '${{file:{at}/key}}'}}}}
    - {{name: remote, transport: http, url: 'http://127.0.0.1:9/mcp', headers: {{Authorization: 'Bearer {}'}}}}
",
            CANARIES[5], CANARIES[0], CANARIES[1]
        )
    })
    .await;
    let route = "/api/mcp/servers";
    let http = json!({"name": "http", "transportType": "HTTP", "config": {"url": "http://127.0.0.1:9/", "headers": {"X-Key": CANARIES[3]}}});
    let script = hub.folder.path().join("telltale.py").display().to_string();
    let stdio = json!({"name": "stdio", "transportType": "STDIO", "config": {"command": *PYTHON, "args": [script], "env": {"API_KEY": CANARIES[4]}}});
    let mut shown = String::new();
    for body in [http, stdio] {
        shown += &hub.admin("POST", route, Some(body)).await;
    }
    let argument = json!({"password": CANARIES[6]});
    let params = json!({"name": "no_such_tool", "arguments": argument});
    shown += &hub
        .admin(
            "POST",
            "/mcp",
            Some(crate::hub::request(1, "tools/call", params)),
        )
        .await;
    for path in [
        route,
        "/api/mcp/servers/program",
        "/api/mcp/servers/remote",
        "/api/mcp/servers/http",
        "/api/mcp/servers/stdio",
        "/mcp/list",
        "/api/tokens",
        "/api/audit",
        "/metrics",
        "/readyz",
        "/healthz",
    ] {
        shown += &hub.admin("GET", path, None).await;
    }
    // What the program said is shown, but not what it was told.
    assert!(shown.contains("bad key ***"), "{shown}");
    clean("answers", shown.as_bytes());
    let settings = Command::new(MARU)
        .args(["config", "--json"])
        .current_dir(hub.folder.path())
        .output()
        .unwrap();
    clean("maru config", &settings.stdout);
    for id in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(id.path().join("cmdline")).unwrap_or_default();
        clean("a command line", &line);
    }
    clean("the log", &fs::read(hub.folder.path().join("log")).unwrap());
    for entry in fs::read_dir(hub.folder.path().join("data"))
        .unwrap()
        .flatten()
    {
        if entry.file_type().unwrap().is_file() {
            let place = entry.path().display().to_string();
            clean(&place, &fs::read(entry.path()).unwrap());
        }
    }
}

/// A file that an older maru wrote is sealed at start, and works as before.
#[tokio::test(flavor = "multi_thread")]
async fn plain_configurations_are_sealed_at_start() {
    use maru::store::{Seal, ServerRow, Store};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maru.db");
    let row = ServerRow {
        id: "1".to_owned(),
        name: "old".to_owned(),
        description: None,
        transport_type: "HTTP".to_owned(),
        config: format!("{{\"headers\":{{\"X\":\"{}\"}}}}", CANARIES[1]),
        version: None,
        auto_connect: false,
        enabled: true,
        origin: "api".to_owned(),
        trust: "pin".to_owned(),
        created_at: 1,
        updated_at: 1,
    };
    let plain = Store::open(&path).await.unwrap();
    assert!(plain.insert_server(&row).await.unwrap());
    drop(plain);
    let sealed = Store::open(&path).await.unwrap();
    let sealed = sealed.sealed(Seal::new(&[1; 32])).await.unwrap();
    assert_eq!(sealed.servers().await.unwrap(), std::slice::from_ref(&row));
    for entry in fs::read_dir(folder.path()).unwrap().flatten() {
        clean(
            &entry.path().display().to_string(),
            &fs::read(entry.path()).unwrap(),
        );
    }
    // Another key opens nothing, and loses nothing.
    drop(sealed);
    let other = Store::open(&path)
        .await
        .unwrap()
        .sealed(Seal::new(&[2; 32]))
        .await
        .unwrap();
    let found = other.servers().await.unwrap();
    assert!(maru::store::is_sealed(&found[0].config));
    drop(other);
    let again = Store::open(&path)
        .await
        .unwrap()
        .sealed(Seal::new(&[1; 32]))
        .await
        .unwrap();
    assert_eq!(again.servers().await.unwrap(), [row]);
}
