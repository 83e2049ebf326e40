//! What happens to others when something fails.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};

use crate::{
    http_client::{TestRequest, wait_for},
    test_hub::{TestHub, call_message},
};

/// A store that cannot be written: calls go on, changes are refused in time, and
/// nothing that was acknowledged or called is missing afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn store_that_fails_stops_changes_and_nothing_else() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let ask = async || {
        let body = call_message(1, "get_employee_info", json!({"employee_id": "EMP001"}));
        let asked = Instant::now();
        let answer = hub
            .session_request(&session, &body)
            .send()
            .await
            .rpc_response()
            .await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        assert!(asked.elapsed() < Duration::from_secs(3));
    };
    let other = Connection::open(hub.directory.path().join("maru.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    ask().await;
    let asked = Instant::now();
    let body = json!({"name": "late", "role": "agent"});
    let refused = hub.send_as_admin("POST", "/api/tokens", body.clone()).await;
    assert_eq!(refused.status, 503);
    assert!(
        asked.elapsed() < Duration::from_secs(20),
        "{:?}",
        asked.elapsed()
    );
    let told = refused.text().await;
    assert!(!told.contains("locked"), "{told}");
    ask().await;
    other.execute_batch("ROLLBACK").unwrap();
    let made = hub.send_as_admin("POST", "/api/tokens", body).await;
    assert_eq!(made.status, 201);
    // The calls were kept until they could be written.
    let path = "/api/audit?action=tools/call";
    let found = async || {
        let found = hub.send_as_admin("GET", path, Value::Null).await;
        found.json().await
    };
    wait_for(found, |it| it.as_array().unwrap().len() == 2).await;
}

/// A disk that is full: calls go on, changes are refused in words, and what was
/// acknowledged before, between and after is there.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_stops_changes_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mut hub = start_on_small_disk(directory.path());
    let pid = hub.id().unwrap();
    // Its disk is seen by nobody else.
    let disk = PathBuf::from(format!("/proc/{pid}/root{}", directory.path().display()));
    let address = printed_address(&mut hub).await;
    let admin = fs::read_to_string(disk.join("data/admin-token")).unwrap();
    let admin = format!("Bearer {}", admin.trim());
    let make = async |name: String| {
        let body = json!({"name": name, "role": "agent"});
        let ask = TestRequest::post(&address, "/api/tokens", &body).header("authorization", &admin);
        let reply = ask.send().await;
        (reply.status.as_u16(), reply.text().await)
    };
    let call = async || {
        let body = json!({"arguments": {"employee_id": "EMP001"}});
        let ask = TestRequest::post(&address, "/api/tools/get_employee_info/call", &body);
        let answer = ask.send().await.json().await.to_string();
        assert!(
            answer.contains("EMP001") && !answer.contains("\"isError\":true"),
            "{answer}"
        );
    };
    assert_eq!(make("before".to_owned()).await.0, 201);
    let mut filling = File::create(disk.join("filling")).unwrap();
    while filling.write_all(&[0; 4096]).is_ok() {}

    let mut made = vec!["before".to_owned()];
    let refused = loop {
        call().await;
        let name = format!("t{}", made.len());
        match make(name.clone()).await {
            (201, _) => made.push(name),
            refused => break refused,
        }
        assert!(made.len() < 5000, "the disk is never full");
    };
    assert_eq!(refused.0, 503, "{}", refused.1);
    assert!(refused.1.contains("store"), "{}", refused.1);
    call().await;
    drop(filling);
    fs::remove_file(disk.join("filling")).unwrap();
    assert_eq!(make("after".to_owned()).await.0, 201);
    made.push("after".to_owned());
    let ask = TestRequest::new(&address, "GET", "/api/tokens").header("authorization", &admin);
    let listed = ask.send().await.json().await.to_string();
    for name in made {
        assert!(listed.contains(&format!("\"{name}\"")), "{name}: {listed}");
    }
    hub.kill().await.unwrap();
}

/// Where a hub says that it listens.
async fn printed_address(hub: &mut Child) -> String {
    let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        if let Some((_, rest)) = line.split_once("http://")
            && let Some(address) = rest.strip_suffix("/mcp")
        {
            return address.to_owned();
        }
    }
    panic!("the hub did not start");
}

/// A hub whose data is on a disk of 2 MiB, in a mount namespace of its own.
fn start_on_small_disk(directory: &Path) -> Child {
    const MOUNT_SCRIPT: &str = "mount -t tmpfs -o size=2m small \"$0\" && exec \"$1\" \
        --listen 127.0.0.1:0 --data-dir \"$0/data\"";
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--mount", "sh", "-c", MOUNT_SCRIPT])
        .arg(directory)
        .arg(env!("CARGO_BIN_EXE_maru"))
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// The short form of `make soak`; floods have tests of their own (`faults::floods`).
#[tokio::test(flavor = "multi_thread")]
async fn short_soak_test_passes() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/soak");
    let output = Command::new("python3")
        .args([script, "--maru", env!("CARGO_BIN_EXE_maru")])
        .args(["--kills", "3", "--sse", "60", "--streamable", "30"])
        .args(["--abandoned", "1000", "--terms", "2", "--calls", "1600"])
        .args(["--flood", "0"])
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}{complaint}");
    assert_eq!(shown.lines().count(), 5, "{shown}");
}
