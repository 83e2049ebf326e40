//! What happens to others when something fails.

use std::time::Duration;

use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use crate::hub::{TestHub, call};

/// A store that cannot be written: calls go on, changes are refused in time, and
/// nothing that was acknowledged or called is missing afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn store_that_fails_stops_changes_and_nothing_else() {
    let hub = TestHub::start().await;
    let session = hub.session("2025-11-25", json!({})).await;
    let ask = async || {
        let body = call(1, "get_employee_info", json!({"employee_id": "EMP001"}));
        let asked = Instant::now();
        let answer = hub.ask(&session, &body).send().await.answer().await;
        assert_ne!(answer["result"]["isError"], true, "{answer}");
        assert!(asked.elapsed() < Duration::from_secs(3));
    };
    let other = Connection::open(hub.directory.path().join("maru.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    ask().await;
    let asked = Instant::now();
    let body = json!({"name": "late", "role": "agent"});
    let refused = hub.admin("POST", "/api/tokens", body.clone()).await;
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
    let made = hub.admin("POST", "/api/tokens", body).await;
    assert_eq!(made.status, 201);
    // The calls were kept until they could be written.
    let began = Instant::now();
    loop {
        let path = "/api/audit?action=tools/call";
        let found = hub.admin("GET", path, Value::Null).await.json().await;
        if found.as_array().unwrap().len() == 2 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(15), "{found}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// The short form of `make soak`.
#[tokio::test(flavor = "multi_thread")]
async fn short_soak_holds() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/soak");
    let output = Command::new("python3")
        .args([script, "--maru", env!("CARGO_BIN_EXE_maru")])
        .args(["--kills", "3", "--sse", "60", "--streamable", "30"])
        .args(["--abandoned", "1000", "--terms", "2", "--calls", "1600"])
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}{complaint}");
    assert_eq!(shown.lines().count(), 5, "{shown}");
}
