//! Hostile requests: each gets the status and code it deserves, and the hub
//! is alive after each.

use std::fs;

use serde_json::json;
use tokio::process::Command;

use crate::test_hub::TestHub;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_get_the_listed_responses() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    let mut all = json!({"admin": hub.running.admin_token.reveal()});
    for (name, role) in [
        ("reader", "reader"),
        ("agent", "agent"),
        ("agent2", "agent"),
    ] {
        all[name] = hub
            .create_token(json!({"name": name, "role": role}))
            .await
            .into();
    }
    let tokens = hub.directory.path().join("tokens.json");
    fs::write(&tokens, all.to_string()).unwrap();
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
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}{complaints}");
    let cases = fs::read_to_string(format!("{kit}/hostile_rpc.jsonl")).unwrap();
    let cases = cases.lines().filter(|line| line.starts_with('{')).count();
    let counted = shown.lines().next();
    let expected = format!("{cases} passed, 0 failed");
    assert_eq!(counted, Some(&*expected), "{shown}{complaints}");
}
