//! The hub is killed in the middle of its work, again and again.

use std::fs;

use tokio::process::Command;

use crate::faults::free_port;

const TOKEN: &str = "kill9-test-token-0123456789";

/// What was acknowledged is there after the next start, and what was removed is not.
#[tokio::test]
async fn no_acknowledged_change_is_lost_when_the_hub_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("admin-token"), TOKEN).unwrap();
    let port = free_port().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/security/kill9.py");
    let output = Command::new("python3")
        .args([script, "20", &port, TOKEN, "--"])
        .args([env!("CARGO_BIN_EXE_maru"), "serve"])
        .args(["--listen", &format!("127.0.0.1:{port}"), "--data-dir"])
        .arg(directory.path())
        .current_dir(directory.path())
        .env_remove("MARU_CONFIG")
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("\"kills\": 20"), "{shown}");
}
