//! The official conformance suite as the server, the hub's side towards other
//! servers as the client.
//!
//! What is required and missing here is `auth/*`: 14 of 18 scenarios with
//! sessions and 25 of 32 without, all of signing in at a server.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::clients::{client_tools_dir, node_program};

#[tokio::test]
async fn every_required_scenario_with_sessions_but_signing_in() {
    let required = [
        "elicitation-sep1034-client-defaults",
        "initialize",
        "sse-retry",
        "tools_call",
    ];
    check_version("2025-11-25", &required).await;
}

#[tokio::test]
async fn every_required_scenario_without_sessions_but_signing_in() {
    let required = [
        "http-custom-headers",
        "http-invalid-tool-headers",
        "http-standard-headers",
        "json-schema-ref-no-deref",
        "request-metadata",
        "sep-2322-client-request-state",
        "tools_call",
    ];
    check_version("2026-07-28", &required).await;
}

/// Newer than both versions: run, but not required.
const UNSCORED_SCENARIO: &str = "json-schema-2020-12-preservation";

/// Runs every scenario of `version`; exactly those of `required`, and the one
/// that is not scored, are to pass.
async fn check_version(version: &str, required: &[&str]) {
    let out = tempfile::tempdir().unwrap();
    let shown = run_suite(version, out.path()).await;
    let mut expected: BTreeSet<String> = required.iter().map(|it| (*it).to_owned()).collect();
    expected.insert(UNSCORED_SCENARIO.to_owned());
    assert_eq!(passed_scenarios(out.path()), expected, "{version}\n{shown}");
}

/// The suite fails as a whole as long as a scenario does; what it says is only
/// shown, and what it wrote down counts.
async fn run_suite(version: &str, out: &Path) -> String {
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node_program());
    command
        .arg(suite)
        .args(["client", "--requirements", version, "--command"])
        .arg(client_program())
        .arg("-o")
        .arg(out);
    let output = timeout(
        Duration::from_secs(120),
        command.kill_on_drop(true).output(),
    );
    let output = output.await.expect("in time").unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Names of the scenarios that passed, from the directory each has in `out`.
fn passed_scenarios(out: &Path) -> BTreeSet<String> {
    let groups = [(out.to_owned(), ""), (out.join("auth"), "auth/")];
    let mut passed = BTreeSet::new();
    for (group, prefix) in groups {
        for entry in fs::read_dir(group).unwrap() {
            let place = entry.unwrap().path();
            if place.join("checks.json").exists() && has_passed(&place) {
                passed.insert(format!("{prefix}{}", scenario_name(&place)));
            }
        }
    }
    passed
}

/// The directory's name without the time at its end.
fn scenario_name(place: &Path) -> String {
    let name = place.file_name().unwrap().to_str().unwrap();
    let time = "-2026-07-28T00-00-00-000Z".len();
    name[..name.len() - time].to_owned()
}

/// Stricter than the suite: no warning, and no complaint of the client either.
fn has_passed(place: &Path) -> bool {
    let read = |file: &str| fs::read_to_string(place.join(file)).unwrap();
    let checks: Vec<Value> = serde_json::from_str(&read("checks.json")).unwrap();
    let has = |status: &str| checks.iter().any(|it| it["status"] == status);
    has("SUCCESS") && !has("FAILURE") && !has("WARNING") && read("stderr.txt").is_empty()
}

/// Where the client's program is.
#[expect(
    clippy::disallowed_methods,
    reason = "the test command says where it built the client"
)]
fn client_program() -> PathBuf {
    let path =
        std::env::var("CONFORMANCE_CLIENT").expect("CONFORMANCE_CLIENT is set by `make test`");
    fs::canonicalize(path).expect("`make test` builds the conformance client")
}
