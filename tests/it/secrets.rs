//! Secrets go in and come out nowhere but where they belong.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    faults::{PYTHON, free_port},
    http_client::{TestRequest, wait_until},
    signals::maru_command,
};

const MARU_PROGRAM: &str = env!("CARGO_BIN_EXE_maru");
/// Each stands in another place of the settings or of a request.
const CANARIES: [&str; 9] = [
    "canary-env-5ecret",
    "canary-header-5ecret",
    "canary-file-5ecret",
    "canary-api-header-5ecret",
    "canary-api-env-5ecret",
    "canary-embedding-5ecret",
    "canary-argument-5ecret",
    "canary-url-5ecret",
    "canary-option-5ecret",
];

/// Says its secrets to everyone, then ends.
const LEAKING_SCRIPT: &str = "import os, sys\nsys.exit('bad key ' + os.environ.get('API_KEY', '') + os.environ.get('FILE_KEY', ''))\n";

struct SecretsHub {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
    token: String,
}

impl SecretsHub {
    async fn start(yaml: impl Fn(&Path) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join("telltale.py"), LEAKING_SCRIPT).unwrap();
        fs::write(at.join("key"), format!("{}\n", CANARIES[2])).unwrap();
        fs::write(at.join("maru.yaml"), yaml(at)).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let log = fs::File::create(at.join("log")).unwrap();
        let child = maru_command(at, &["serve", "--listen", &address])
            .env("MARU_LOG_LEVEL", "trace")
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let token = at.join("data/admin-token");
        wait_until(async || {
            tokio::net::TcpStream::connect(&address).await.is_ok() && token.exists()
        })
        .await;
        Self {
            child,
            address,
            token: fs::read_to_string(token).unwrap().trim().to_owned(),
            folder,
        }
    }

    async fn admin(&self, method: &'static str, path: &str, body: Option<Value>) -> String {
        let ask = TestRequest::new(&self.address, method, path)
            .header("content-type", "application/json")
            .header("authorization", &format!("Bearer {}", self.token));
        let body = body.map_or(String::new(), |it| it.to_string());
        ask.body(&body).send().await.text().await
    }
}

impl Drop for SecretsHub {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_no_canary(place: &str, bytes: &[u8]) {
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
    let hub = SecretsHub::start(|at| {
        let (python, at) = (&*PYTHON, at.display());
        format!(
            "embedding: {{url: 'http://127.0.0.1:9/v1/embeddings', api_key: {}}}
mcp:
  reconnection: {{initial-delay-ms: 100, max-attempts: 2}}
  servers:
    - {{name: program, transport: stdio, command: {python}, args: ['{at}/telltale.py'], env: {{API_KEY: {}, FILE_KEY: '${{file:{at}/key}}'}}}}
    - {{name: remote, transport: http, url: 'http://127.0.0.1:9/mcp', headers: {{Authorization: 'Bearer {}'}}}}
    - {{name: address, transport: http, auto-connect: false, url: 'http://127.0.0.1:9/?API%5FKEY={}'}}
    - {{name: option, transport: stdio, auto-connect: false, command: {python}, args: [x.py, --api-key, {}]}}
",
            CANARIES[5], CANARIES[0], CANARIES[1], CANARIES[7], CANARIES[8]
        )
    })
    .await;
    let route = "/api/mcp/servers";
    let http = json!({"name": "http", "autoConnect": true, "transportType": "HTTP", "config": {"url": "http://127.0.0.1:9/", "headers": {"X-Key": CANARIES[3]}}});
    let script = hub.folder.path().join("telltale.py").display().to_string();
    let stdio = json!({"name": "stdio", "autoConnect": true, "transportType": "STDIO", "config": {"command": *PYTHON, "args": [script], "env": {"API_KEY": CANARIES[4]}}});
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
            Some(crate::test_hub::request_message(1, "tools/call", params)),
        )
        .await;
    for path in [
        route,
        "/api/mcp/servers/program",
        "/api/mcp/servers/remote",
        "/api/mcp/servers/http",
        "/api/mcp/servers/stdio",
        "/api/mcp/servers/address",
        "/api/mcp/servers/option",
        "/api/config",
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
    assert_no_canary("answers", shown.as_bytes());
    let settings = Command::new(MARU_PROGRAM)
        .args(["config", "--json"])
        .current_dir(hub.folder.path())
        .output()
        .unwrap();
    assert_no_canary("maru config", &settings.stdout);
    for id in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(id.path().join("cmdline")).unwrap_or_default();
        assert_no_canary("a command line", &line);
    }
    assert_no_canary("the log", &fs::read(hub.folder.path().join("log")).unwrap());
    for entry in fs::read_dir(hub.folder.path().join("data"))
        .unwrap()
        .flatten()
    {
        if entry.file_type().unwrap().is_file() {
            let place = entry.path().display().to_string();
            assert_no_canary(&place, &fs::read(entry.path()).unwrap());
        }
    }
}

/// A file that an older maru wrote is sealed at start, and works as before.
#[tokio::test(flavor = "multi_thread")]
async fn plain_configurations_are_sealed_at_start() {
    use maru_store::{SecretSealer, ServerRow, Store};
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
        protocol_version: None,
        created_at: 1,
        updated_at: 1,
    };
    let plain = Store::open(&path).await.unwrap();
    assert!(plain.insert_server(&row).await.unwrap());
    drop(plain);
    let sealed = Store::open(&path).await.unwrap();
    let sealed = sealed
        .with_sealer(SecretSealer::new(&[1; 32]))
        .await
        .unwrap();
    assert_eq!(sealed.servers().await.unwrap(), std::slice::from_ref(&row));
    for entry in fs::read_dir(folder.path()).unwrap().flatten() {
        assert_no_canary(
            &entry.path().display().to_string(),
            &fs::read(entry.path()).unwrap(),
        );
    }
    // Another key opens nothing, and loses nothing.
    drop(sealed);
    let other = Store::open(&path)
        .await
        .unwrap()
        .with_sealer(SecretSealer::new(&[2; 32]))
        .await
        .unwrap();
    let found = other.servers().await.unwrap();
    assert!(maru_store::is_sealed(&found[0].config));
    drop(other);
    let again = Store::open(&path)
        .await
        .unwrap()
        .with_sealer(SecretSealer::new(&[1; 32]))
        .await
        .unwrap();
    assert_eq!(again.servers().await.unwrap(), [row]);
}

/// Each stands where nobody but the people who wrote it there expects a secret.
const MISPLACED_SECRETS: [&str; 8] = [
    "loose-query-5ecret",
    "loose-option-5ecret",
    "loose-equals-5ecret",
    "loose-header-5ecret",
    "loose-userinfo-5ecret",
    "loose-dsn-5ecret",
    "bG9vc2U6NWVjcmV0LXBhc3N3b3Jk",
    "AKIALOOSE5ECRETCLOUD",
];

fn assert_no_misplaced_secret(place: &str, shown: &str) {
    for secret in MISPLACED_SECRETS {
        assert!(
            !shown.contains(secret),
            "{secret} is in {place}: {shown:.4000}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_in_addresses_arguments_and_texts_are_masked() {
    let hub = SecretsHub::start(|_| "mcp: {reconnection: {enabled: false}}".to_owned()).await;
    let at = hub.folder.path();
    fs::write(
        at.join("argv.py"),
        "import sys\nsys.exit('used ' + sys.argv[2])\n",
    )
    .unwrap();
    let script = at.join("argv.py").display().to_string();
    let url = format!(
        "http://127.0.0.1:9/mcp?api_key={}&n=1",
        MISPLACED_SECRETS[0]
    );
    let args = json!([
        script,
        "--api-key",
        MISPLACED_SECRETS[1],
        format!("--token={}", MISPLACED_SECRETS[2]),
        "--header",
        format!("X-Api-Key: {}", MISPLACED_SECRETS[3])
    ]);
    let server = |name: &str, kind: &str, config: Value| {
        Some(json!({"name": name, "autoConnect": true, "transportType": kind, "config": config}))
    };
    let route = "/api/mcp/servers";
    let user_info = format!("http://user:{}@127.0.0.1:9/mcp", MISPLACED_SECRETS[4]);
    let mut shown = String::new();
    for body in [
        server("remote", "HTTP", json!({"url": url})),
        server(
            "program",
            "STDIO",
            json!({"command": *PYTHON, "args": args}),
        ),
        server("refused", "HTTP", json!({"url": user_info})),
    ] {
        shown += &hub.admin("POST", route, body).await;
    }
    let added = json!({"name": "added", "url": url});
    shown += &hub.admin("POST", "/mcp/add", Some(added)).await;
    let text = format!(
        "postgres://u:{}@db/x, Authorization: Basic {}, {}",
        MISPLACED_SECRETS[5], MISPLACED_SECRETS[6], MISPLACED_SECRETS[7]
    );
    let call = json!({"arguments": {"query": text}});
    shown += &hub
        .admin("POST", "/api/tools/search_docs/call", Some(call))
        .await;
    let calls = hub.admin("GET", "/api/calls", None).await;
    let calls: Value = serde_json::from_str(&calls).unwrap();
    let all = calls.as_array().or(calls["calls"].as_array()).unwrap();
    let call = format!("/api/calls/{}", all[0]["id"].to_string().trim_matches('"'));
    for path in [
        route,
        "/api/mcp/servers/remote",
        "/api/mcp/servers/program",
        "/api/mcp/servers/program/log",
        "/api/mcp/servers/remote/log",
        "/mcp/list",
        "/api/calls",
        &call,
        "/api/audit",
        "/metrics",
    ] {
        shown += &hub.admin("GET", path, None).await;
    }
    assert!(
        shown.contains("used --api-key") || shown.contains("used ***"),
        "{shown}"
    );
    assert!(
        shown.contains("api_key=***&n=1") && shown.contains("--token=***"),
        "{shown}"
    );
    assert_no_misplaced_secret("answers", &shown);
    assert_no_misplaced_secret("the log", &fs::read_to_string(at.join("log")).unwrap());
    let listed = Command::new(MARU_PROGRAM)
        .args(["servers", "show", "program", "--data-dir"])
        .arg(at.join("data"))
        .current_dir(at)
        .output()
        .unwrap();
    assert!(listed.status.success());
    assert_no_misplaced_secret(
        "maru servers show",
        &String::from_utf8_lossy(&listed.stdout),
    );

    // What is shown can be given back; the form of the console has it all.
    let form = async |name: &str| -> Value {
        let path = format!("{route}/{name}");
        let ask = TestRequest::new(&hub.address, "GET", &path)
            .header("x-maru-console", "1")
            .header("authorization", &format!("Bearer {}", hub.token));
        ask.send().await.json().await["config"].take()
    };
    for name in ["remote", "program"] {
        let before = form(name).await;
        let path = format!("{route}/{name}");
        let masked: Value = serde_json::from_str(&hub.admin("GET", &path, None).await).unwrap();
        assert_ne!(masked["config"], before);
        let back = json!({"config": masked["config"], "description": "given back"});
        hub.admin("PUT", &path, Some(back)).await;
        assert_eq!(form(name).await, before);
    }
    assert_eq!(form("remote").await["url"], url);
    let half = json!({"config": {"url": "http://127.0.0.1:9/other?api_key=***"}});
    let refused = hub
        .admin("PUT", "/api/mcp/servers/remote", Some(half))
        .await;
    assert!(refused.contains("write the secret itself"), "{refused}");
}

fn file_mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_file_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_others_may_read_are_taken_from_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let config = || maru::config::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: data.clone(),
        ..maru::config::Config::default()
    };
    crate::test_hub::TestHub::with_directory(config())
        .await
        .running
        .stop()
        .await;
    let private = [
        ("", 0o700),
        ("maru.db", 0o600),
        ("index.db", 0o600),
        ("admin-token", 0o600),
    ];
    for (name, expected) in private {
        assert_eq!(file_mode(&data.join(name)), expected, "{name}");
    }
    for (name, wide) in [
        ("maru.db", 0o644),
        ("index.db", 0o664),
        ("admin-token", 0o640),
        ("", 0o755),
    ] {
        set_file_mode(&data.join(name), wide);
    }
    let token = fs::read_to_string(data.join("admin-token")).unwrap();
    crate::test_hub::TestHub::with_directory(config())
        .await
        .running
        .stop()
        .await;
    for (name, expected) in private {
        assert_eq!(file_mode(&data.join(name)), expected, "{name}");
    }
    assert_eq!(fs::read_to_string(data.join("admin-token")).unwrap(), token);

    let serve = || {
        let output = Command::new(MARU_PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    for weak in ["admin", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        fs::write(data.join("admin-token"), weak).unwrap();
        let said = serve();
        assert!(said.contains("could be guessed"), "{said}");
    }
    fs::remove_file(data.join("admin-token")).unwrap();
    set_file_mode(&data, 0o777);
    let said = serve();
    assert!(said.contains("chmod 700"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_in_memory_leaves_nothing_behind() {
    use crate::test_hub::TestHub;
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("new/data");
    let in_memory = |config: &mut maru::config::Config| {
        config.data_dir.clone_from(&data);
        config.store_url = Some(maru::config::SecretString::from("memory".to_owned()));
    };
    let hub = TestHub::with_config(in_memory).await;
    assert!(hub.tool_names().await.contains("search_docs"));
    let added = json!({"name": "tts", "url": "http://127.0.0.1:9/sse"});
    assert_eq!(
        hub.send_as_admin("POST", "/mcp/add", added).await.status,
        200
    );
    hub.running.stop().await;
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    // What was there stays, but not what a hub that was killed had no time to remove.
    fs::create_dir_all(data.join("unkept-999999999-0")).unwrap();
    set_file_mode(&data, 0o700);
    let token = "a token that somebody chose 1234567890";
    fs::write(data.join("admin-token"), token).unwrap();
    let hub = TestHub::with_config(in_memory).await;
    assert_eq!(hub.running.admin_token.reveal(), token);
    hub.running.stop().await;
    let left: Vec<_> = fs::read_dir(&data).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(fs::read_to_string(data.join("admin-token")).unwrap(), token);
}
