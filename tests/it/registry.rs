//! `mcp.json` as people and programs leave it.

use std::{
    fs::{self, File},
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

use crate::wire::{Ask, within};

const KIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/security/mcp");

/// Files of the kit that are to be treated as `expect` says.
fn files(expect: &str) -> Vec<PathBuf> {
    let manifest = fs::read_to_string(format!("{KIT}/manifest.jsonl")).unwrap();
    let records = manifest
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let wanted = records.filter(|it| it["expect"] == expect);
    let path = |it: Value| Path::new(KIT).join(it["file"].as_str().unwrap());
    wanted.map(path).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn hub(directory: &Path) -> Command {
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
struct Served {
    child: Child,
    address: String,
    token: String,
    log: PathBuf,
}

impl Served {
    async fn start(directory: &Path) -> Self {
        let mut child = hub(directory).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        within(async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.starts_with("Stop with") {
                    return;
                }
            }
            panic!("it did not start");
        })
        .await;
        Self {
            child,
            address: fs::read_to_string(directory.join("hub")).unwrap(),
            token: fs::read_to_string(directory.join("admin-token")).unwrap(),
            log: directory.join("log"),
        }
    }

    async fn ask(&self, method: &'static str, path: &str, body: Value) -> Value {
        let reply = Ask::new(&self.address, method, path)
            .header("authorization", &format!("Bearer {}", self.token.trim()))
            .header("content-type", "application/json")
            .body(&body.to_string())
            .send()
            .await;
        assert_eq!(reply.status, 200, "{method} {path}");
        reply.json().await
    }

    /// Names of the servers, sorted.
    async fn names(&self) -> Vec<String> {
        let listed = self.ask("GET", "/mcp/list", json!({})).await;
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
        assert!(within(self.child.wait()).await.unwrap().success());
        fs::read_to_string(&self.log).unwrap()
    }
}

fn read(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("mcp.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn unreadable_file_is_refused_and_kept() {
    let files = files("refuse-keep");
    assert_eq!(files.len(), 6);
    for file in files {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("mcp.json");
        fs::copy(&file, &place).unwrap();
        let output = within(hub(directory.path()).output()).await.unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            output.status.code(),
            Some(2),
            "{}: {complaint}",
            name(&file)
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
async fn bad_entry_is_skipped_and_kept() {
    let files = files("refuse-entry");
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

        let hub = Served::start(directory.path()).await;
        assert_eq!(hub.names().await, ["good"], "{}", name(file));
        let other = json!({"name": "other", "url": "http://127.0.0.1:9/mcp"});
        hub.ask("POST", "/mcp/add", other.clone()).await;
        assert_eq!(read(directory.path()), [good, other.clone(), bad.clone()]);
        hub.ask("DELETE", "/mcp/remove", json!({"name": "good"}))
            .await;
        assert_eq!(read(directory.path()), [other.clone(), bad.clone()]);
        let log = hub.stop().await;
        let warned = |line: &&str| line.contains("WARN") && line.contains("is not used");
        assert_eq!(
            log.lines().filter(warned).count(),
            1,
            "{}: {log}",
            name(file)
        );

        let hub = Served::start(directory.path()).await;
        assert_eq!(hub.names().await, ["other"], "{}", name(file));
        assert_eq!(read(directory.path()), [other, bad], "{}", name(file));
    }
}

#[tokio::test]
async fn too_many_entries_are_kept_but_not_used() {
    let directory = tempfile::tempdir().unwrap();
    let file = Path::new(KIT).join("mcp_many.json");
    fs::copy(&file, directory.path().join("mcp.json")).unwrap();
    let mut before: Vec<Value> = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let began = Instant::now();
    let hub = Served::start(directory.path()).await;
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(hub.names().await.len(), 256);
    let mut after = read(directory.path());
    for entries in [&mut before, &mut after] {
        entries.sort_by_key(|it| it["name"].to_string());
    }
    assert_eq!(after, before);
}

#[tokio::test]
async fn good_file_is_taken() {
    let files = files("accept");
    assert_eq!(files.len(), 2);
    for file in files {
        let directory = tempfile::tempdir().unwrap();
        fs::copy(&file, directory.path().join("mcp.json")).unwrap();
        let hub = Served::start(directory.path()).await;
        let names = hub.names().await;
        match name(&file).as_str() {
            "mcp_bom.json" => assert_eq!(names, [""; 0]),
            _ => assert_eq!(names, ["search", "tts"]),
        }
        assert_eq!(read(directory.path()).len(), names.len());
    }
}
