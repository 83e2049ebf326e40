//! `mcp.json` as people and programs leave it.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};

use crate::http_client::{TestRequest, wait_for, within_test_timeout};

const REGISTRY_FILES_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/security/mcp");

/// Files of the kit that are to be treated as `expect` says.
fn files_expected_as(expect: &str) -> Vec<PathBuf> {
    let manifest = fs::read_to_string(format!("{REGISTRY_FILES_DIR}/manifest.jsonl")).unwrap();
    let records = manifest
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let wanted = records.filter(|it| it["expect"] == expect);
    let path = |it: Value| Path::new(REGISTRY_FILES_DIR).join(it["file"].as_str().unwrap());
    wanted.map(path).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn hub_command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(directory)
        .current_dir(directory)
        .env_remove("MARU_CONFIG")
        .stdout(Stdio::piped())
        .stderr(Stdio::from(File::create(directory.join("log")).unwrap()))
        .kill_on_drop(true);
    command
}

/// A hub as a process of its own.
struct HubProcess {
    child: Child,
    address: String,
    token: String,
    log: PathBuf,
}

impl HubProcess {
    async fn start(directory: &Path) -> Self {
        Self::spawn(hub_command(directory), directory).await
    }

    async fn spawn(mut command: Command, directory: &Path) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        within_test_timeout(async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.starts_with("Stop with") {
                    return;
                }
            }
            let log = fs::read_to_string(directory.join("log")).unwrap();
            panic!("it did not start: {log}");
        })
        .await;
        Self {
            child,
            address: fs::read_to_string(directory.join("hub")).unwrap(),
            token: fs::read_to_string(directory.join("admin-token")).unwrap(),
            log: directory.join("log"),
        }
    }

    async fn send_as_admin(&self, method: &'static str, path: &str, body: Value) -> Value {
        let reply = TestRequest::new(&self.address, method, path)
            .header("authorization", &format!("Bearer {}", self.token.trim()))
            .header("content-type", "application/json")
            .body(&body.to_string())
            .send()
            .await;
        assert_eq!(reply.status, 200, "{method} {path}");
        reply.json().await
    }

    /// Names of the servers, sorted.
    async fn server_names(&self) -> Vec<String> {
        let listed = self.send_as_admin("GET", "/mcp/list", json!({})).await;
        let servers = listed["servers"].as_array().unwrap();
        servers
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Ends it; what it logged.
    async fn stop(mut self) -> String {
        let id = self.child.id().unwrap().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(told.unwrap().success());
        assert!(
            within_test_timeout(self.child.wait())
                .await
                .unwrap()
                .success()
        );
        fs::read_to_string(&self.log).unwrap()
    }
}

fn read_registry(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("mcp.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn version_that_a_server_is_held_to_is_written() {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let hub = HubProcess::start(directory.path()).await;
    let url = "http://127.0.0.1:9/mcp";
    let server = json!({"name": "old", "url": url});
    hub.send_as_admin("POST", "/mcp/add", server.clone()).await;
    assert_eq!(read_registry(directory.path())[0], server);
    let hold = |version: Value| {
        let body = json!({"requiredProtocolVersion": version});
        hub.send_as_admin("PUT", "/api/mcp/servers/old", body)
    };
    hold("2025-06-18".into()).await;
    let held = json!({"name": "old", "url": url, "protocolVersion": "2025-06-18"});
    assert_eq!(read_registry(directory.path()), [held]);
    hold(Value::Null).await;
    assert_eq!(read_registry(directory.path())[0], server);
}

#[tokio::test]
async fn invalid_file_is_refused_and_not_overwritten() {
    let files = files_expected_as("refuse-keep");
    assert_eq!(files.len(), 6);
    for file in files {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("mcp.json");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        fs::copy(&file, &place).unwrap();
        let output = within_test_timeout(hub_command(directory.path()).output())
            .await
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{}: {complaint}",
            file_name(&file)
        );
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(
            complaint.contains(&place.display().to_string()),
            "{complaint}"
        );
        assert_eq!(fs::read(&place).unwrap(), fs::read(&file).unwrap());
    }
}

#[tokio::test]
async fn invalid_entry_is_skipped_but_not_deleted() {
    let files = files_expected_as("refuse-entry");
    assert_eq!(files.len(), 13);
    for file in files.iter().filter(|it| !it.ends_with("mcp_many.json")) {
        let directory = tempfile::tempdir().unwrap();
        let good = json!({"name": "good", "url": "http://127.0.0.1:9/sse"});
        let mut entries: Vec<Value> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let bad = entries[0].clone();
        entries.push(good.clone());
        fs::write(
            directory.path().join("mcp.json"),
            Value::from(entries).to_string(),
        )
        .unwrap();

        let hub = HubProcess::start(directory.path()).await;
        assert_eq!(hub.server_names().await, ["good"], "{}", file_name(file));
        let other = json!({"name": "other", "url": "http://127.0.0.1:9/mcp"});
        hub.send_as_admin("POST", "/mcp/add", other.clone()).await;
        assert_eq!(
            read_registry(directory.path()),
            [good, other.clone(), bad.clone()]
        );
        hub.send_as_admin("DELETE", "/mcp/remove", json!({"name": "good"}))
            .await;
        assert_eq!(
            read_registry(directory.path()),
            [other.clone(), bad.clone()]
        );
        let log = hub.stop().await;
        let warned = |line: &&str| line.contains("WARN") && line.contains("is not used");
        assert_eq!(
            log.lines().filter(warned).count(),
            1,
            "{}: {log}",
            file_name(file)
        );

        let hub = HubProcess::start(directory.path()).await;
        assert_eq!(hub.server_names().await, ["other"], "{}", file_name(file));
        assert_eq!(
            read_registry(directory.path()),
            [other, bad],
            "{}",
            file_name(file)
        );
    }
}

#[tokio::test]
async fn too_many_entries_are_kept_but_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = Path::new(REGISTRY_FILES_DIR).join("mcp_many.json");
    fs::copy(&file, directory.path().join("mcp.json")).unwrap();
    let mut before: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let began = Instant::now();
    let hub = HubProcess::start(directory.path()).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(hub.server_names().await.len(), 256);
    let mut after = read_registry(directory.path());
    for entries in [&mut before, &mut after] {
        entries.sort_by_key(|it| it["name"].to_string());
    }
    assert_eq!(after, before);
}

#[tokio::test]
async fn valid_file_is_imported() {
    let files = files_expected_as("accept");
    assert_eq!(files.len(), 2);
    for file in files {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(&file, directory.path().join("mcp.json")).unwrap();
        let hub = HubProcess::start(directory.path()).await;
        let names = hub.server_names().await;
        match file_name(&file).as_str() {
            "mcp_bom.json" => assert_eq!(names, [""; 0]),
            _ => assert_eq!(names, ["search", "tts"]),
        }
        assert_eq!(read_registry(directory.path()).len(), names.len());
    }
}

fn write_file(directory: &Path, file: &str, text: &str) {
    fs::write(directory.join(file), text).unwrap();
}

/// What a hub that does not start says.
async fn startup_error(directory: &Path) -> String {
    let output = within_test_timeout(hub_command(directory).stderr(Stdio::piped()).output()).await;
    let output = output.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[tokio::test]
async fn two_entries_of_one_name_are_an_error_that_names_both() {
    let url = "http://127.0.0.1:9/mcp";
    let list = json!([{"name": "one", "url": url}, {"name": "two", "url": url}, {"name": "one", "url": url}]);
    let clients = json!({"mcpServers": {"My Server": {"url": url}, "my-server": {"url": url}}});
    for (file, first, second) in [
        (list.to_string(), "entry 1", "entry 3"),
        (clients.to_string(), "My Server", "my-server"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write_file(directory.path(), "mcp.json", &file);
        let said = startup_error(directory.path()).await;
        assert!(said.contains(&format!("{first} and {second}")), "{said}");
        let kept = fs::read_to_string(directory.path().join("mcp.json"));
        assert_eq!(kept.unwrap(), file);
    }
    let directory = tempfile::tempdir().unwrap();
    let yaml = format!(
        "mcp: {{servers: [{{name: x, url: '{url}'}}, {{name: y, url: '{url}'}}, {{name: x, url: '{url}'}}]}}"
    );
    write_file(directory.path(), "maru.yaml", &yaml);
    let said = startup_error(directory.path()).await;
    assert!(said.contains("mcp.servers.0 and mcp.servers.2"), "{said}");

    let directory = tempfile::tempdir().unwrap();
    let hub = HubProcess::start(directory.path()).await;
    let imported = hub.send_as_admin("POST", "/api/mcp/import", clients).await;
    let all = imported["servers"].as_array().unwrap();
    assert_eq!(all.len(), 2);
    for it in all {
        let why = it["error"].as_str().unwrap();
        assert!(
            why.contains("My Server") && why.contains("my-server"),
            "{why}"
        );
    }
    assert_eq!(hub.server_names().await, [""; 0]);
}

#[tokio::test]
async fn file_of_a_desktop_client_is_read_and_keeps_its_form() {
    let directory = tempfile::tempdir().unwrap();
    let remote = json!({"type": "sse", "url": "http://127.0.0.1:9/events", "disabled": true});
    let bad = json!({"url": "http://127.0.0.1:9/", "command": "x"});
    let file = json!({"theme": "dark", "mcpServers": {"My Remote": remote, "bad": bad}});
    write_file(directory.path(), "mcp.json", &file.to_string());
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["my-remote"]);
    let other = json!({"name": "other", "url": "http://127.0.0.1:9/mcp"});
    hub.send_as_admin("POST", "/mcp/add", other).await;
    let text = fs::read_to_string(directory.path().join("mcp.json")).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    let other = json!({"url": "http://127.0.0.1:9/mcp"});
    let expected =
        json!({"theme": "dark", "mcpServers": {"My Remote": remote, "bad": bad, "other": other}});
    assert_eq!(now, expected);
    hub.send_as_admin("DELETE", "/mcp/remove", json!({"name": "my-remote"}))
        .await;
    let text = fs::read_to_string(directory.path().join("mcp.json")).unwrap();
    let now: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({"theme": "dark", "mcpServers": {"bad": bad, "other": other}});
    assert_eq!(now, expected);
}

#[tokio::test]
async fn removed_server_does_not_come_back_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:9/mcp";
    write_file(
        directory.path(),
        "maru.yaml",
        &format!(
            "mcp: {{servers: [{{name: seeded, transport: http, url: '{url}', auto-connect: false}}]}}"
        ),
    );
    let listed = json!([{"name": "listed", "url": url}]).to_string();
    write_file(directory.path(), "mcp.json", &listed);
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["listed", "seeded"]);
    for name in ["listed", "seeded"] {
        hub.send_as_admin("DELETE", "/mcp/remove", json!({"name": name}))
            .await;
    }
    hub.stop().await;

    write_file(directory.path(), "mcp.json", &listed);
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, [""; 0]);
    // The file is not ours to empty.
    assert_eq!(
        read_registry(directory.path()),
        [json!({"name": "listed", "url": url})]
    );
    for name in ["listed", "seeded"] {
        hub.send_as_admin("POST", "/mcp/add", json!({"name": name, "url": url}))
            .await;
    }
    let log = hub.stop().await;
    for name in ["listed", "seeded"] {
        assert!(log.contains(&format!("server {name} was removed")), "{log}");
    }

    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["listed", "seeded"]);
}

#[tokio::test]
async fn entry_deleted_by_hand_is_gone_after_the_start_and_may_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:9/mcp";
    let yaml = format!("mcp: {{servers: [{{name: seeded, transport: http, url: '{url}'}}]}}");
    write_file(directory.path(), "maru.yaml", &yaml);
    let hub = HubProcess::start(directory.path()).await;
    for name in ["one", "two"] {
        hub.send_as_admin("POST", "/mcp/add", json!({"name": name, "url": url}))
            .await;
    }
    hub.stop().await;
    let without = |name: &str| -> Value {
        let entries = read_registry(directory.path()).into_iter();
        entries.filter(|it| it["name"] != name).collect()
    };

    write_file(directory.path(), "mcp.json", &without("one").to_string());
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded", "two"]);
    let log = hub.stop().await;
    let told = "server one is removed, because its entry was deleted from mcp.json";
    assert!(log.contains(told), "{log}");

    // What maru.yaml names is not removed by the other file.
    write_file(directory.path(), "mcp.json", &without("seeded").to_string());
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded", "two"]);
    hub.stop().await;

    // An entry with a mistake is still an entry, and a file that is gone says nothing.
    let broken = json!([{"name": "two", "url": url, "urll": url}]).to_string();
    write_file(directory.path(), "mcp.json", &broken);
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded", "two"]);
    hub.stop().await;
    fs::remove_file(directory.path().join("mcp.json")).unwrap();
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded", "two"]);
    hub.stop().await;
    // A damaged file deletes nothing.
    let damaged = json!([null, 1, {"name": 5}]).to_string();
    write_file(directory.path(), "mcp.json", &damaged);
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded", "two"]);
    hub.stop().await;

    // Nobody removed it with maru, so the file may bring it back.
    let mut entries = read_registry(directory.path());
    entries.push(json!({"name": "one", "url": url}));
    write_file(
        directory.path(),
        "mcp.json",
        &Value::from(entries).to_string(),
    );
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["one", "seeded", "two"]);
}

/// Without the names that maru wrote, a deleted entry would return.
#[tokio::test]
async fn damaged_record_of_written_names_is_an_error_and_nothing_changes() {
    let directory = tempfile::tempdir().unwrap();
    let hub = HubProcess::start(directory.path()).await;
    let server = json!({"name": "one", "url": "http://127.0.0.1:9/mcp"});
    hub.send_as_admin("POST", "/mcp/add", server).await;
    hub.stop().await;
    write_file(directory.path(), "mcp.json", "[]");
    for damaged in [
        "",
        "{\"file\": ",
        "{}",
        "{\"file\": \"/x\", \"names\": [1]}",
    ] {
        write_file(directory.path(), "mcp-listed.json", damaged);
        let said = startup_error(directory.path()).await;
        assert!(said.contains("mcp-listed.json"), "{said}");
        assert!(said.contains("or delete it"), "{said}");
        assert_eq!(read_registry(directory.path()), Vec::<Value>::new());
    }
    fs::remove_file(directory.path().join("mcp-listed.json")).unwrap();
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["one"]);
}

#[tokio::test]
async fn file_behind_a_symbolic_link_is_used_and_the_link_stays() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:9/mcp";
    let listed = json!([{"name": "one", "url": url}]).to_string();
    write_file(elsewhere.path(), "servers.json", &listed);
    let (file, link) = (
        elsewhere.path().join("servers.json"),
        directory.path().join("mcp.json"),
    );
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["one"]);
    let server = json!({"name": "two", "url": url});
    hub.send_as_admin("POST", "/mcp/add", server).await;
    hub.stop().await;
    assert_eq!(fs::read_link(&link).unwrap(), file);
    assert!(fs::read_to_string(&file).unwrap().contains("two"));
}

/// Opening a FIFO would wait for a writer.
#[tokio::test]
async fn file_that_is_not_regular_is_refused() {
    let files = [
        ("mcp.json", "mcp.json"),
        ("mcp-listed.json", "mcp-listed.json"),
        ("maru.yaml", "maru.yaml"),
        ("admin-token", "the admin token"),
    ];
    for (name, shown) in files {
        for is_fifo in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(name);
            if is_fifo {
                let made = Command::new("mkfifo").arg(&path).status().await.unwrap();
                assert!(made.success());
            } else {
                fs::create_dir(&path).unwrap();
            }
            let said = startup_error(directory.path()).await;
            assert!(said.contains(shown), "{name}: {said}");
            assert!(said.contains("it is not a regular file"), "{name}: {said}");
        }
    }
}

#[tokio::test]
async fn program_deleted_from_the_file_of_a_desktop_client_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    write_file(directory.path(), "maru.yaml", "sample_data: false\n");
    let program = json!({"command": "sleep", "args": ["100"], "disabled": true});
    let remote = json!({"url": "http://127.0.0.1:9/mcp", "disabled": true});
    let both = json!({"mcpServers": {"My Program": program, "remote": remote}});
    write_file(directory.path(), "mcp.json", &both.to_string());
    let registered = async |hub: &HubProcess| -> Vec<String> {
        let servers = hub
            .send_as_admin("GET", "/api/mcp/servers", Value::Null)
            .await;
        let names = servers.as_array().unwrap().iter();
        names
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(registered(&hub).await, ["my-program", "remote"]);
    hub.stop().await;
    let one = json!({"mcpServers": {"remote": remote}});
    write_file(directory.path(), "mcp.json", &one.to_string());
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(registered(&hub).await, ["remote"]);
    hub.stop().await;
    let text = fs::read_to_string(directory.path().join("mcp.json")).unwrap();
    assert_eq!(text, one.to_string(), "an unchanged file is not rewritten");
}

/// Settings may lie in a directory that maru cannot write to.
#[tokio::test]
async fn file_beside_the_settings_is_read_where_it_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let settings = directory.path().join("settings");
    fs::create_dir(&settings).unwrap();
    let yaml = format!("data_dir: {}\n", directory.path().join("data").display());
    write_file(&settings, "maru.yaml", &yaml);
    let url = "http://127.0.0.1:9/mcp";
    let file = json!({"mcpServers": {"remote": {"url": url, "disabled": true}}}).to_string();
    write_file(&settings, "mcp.json", &file);
    // Root may write anywhere, but not over a directory.
    fs::create_dir(settings.join("mcp.json.new")).unwrap();
    let mut command = hub_command(directory.path());
    command.arg("--config").arg(settings.join("maru.yaml"));
    let hub = HubProcess::spawn(command, directory.path()).await;
    assert_eq!(hub.server_names().await, ["remote"]);
    // The change is made, and the log says that the file does not show it.
    let other = json!({"name": "other", "url": url});
    hub.send_as_admin("POST", "/mcp/add", other).await;
    assert_eq!(hub.server_names().await, ["other", "remote"]);
    let log = hub.stop().await;
    assert!(log.contains("mcp.json does not list the servers"), "{log}");
    let kept = fs::read_to_string(settings.join("mcp.json")).unwrap();
    assert_eq!(kept, file);
}

#[tokio::test]
async fn settings_under_the_prefix_of_the_document_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let yaml = "
arc:
  reactor:
    mcp:
      servers:
        - {name: '', url: 'http://127.0.0.1:9/sse'}
        - {name: seeded, url: 'http://127.0.0.1:9/mcp', transport: http}
      reconnection: {initial-delay-ms: 10, multiplier: 1.0}
arc.reactor.mcp.reconnection.max-attempts: 2
";
    write_file(directory.path(), "maru.yaml", yaml);
    let hub = HubProcess::start(directory.path()).await;
    assert_eq!(hub.server_names().await, ["seeded"]);
    let path = "/api/mcp/servers/seeded";
    let seen = wait_for(
        async || hub.send_as_admin("GET", path, Value::Null).await,
        |it| it["attempts"] == 2 && it["status"] == "FAILED",
    )
    .await;
    assert_eq!(seen["nextAttemptAt"], Value::Null);
    let log = hub.stop().await;
    for line in [
        "mcp.servers.0 is skipped: it has no name",
        "server seeded: attempt 1 of 2 follows in",
        "server seeded: attempt 2 of 2 follows in",
        "gave up on server seeded after 2 attempts",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }

    for (yaml, expected) in [
        ("arc: {reaktor: {mcp: {}}}", "arc.reactor"),
        (
            "arc: {reactor: {mcp: {connect-timeout-ms: 500}}}\nmcp: {connect-timeout-ms: 600}",
            "set twice",
        ),
        (
            "listen: 127.0.0.1:0\narc:\n  reactor:\n    mcp:\n      servars: []",
            "maru.yaml:5: mcp.servars",
        ),
    ] {
        write_file(directory.path(), "maru.yaml", yaml);
        let said = startup_error(directory.path()).await;
        assert!(said.contains(expected), "{said}");
    }
}
