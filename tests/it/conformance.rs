//! The official conformance suite against the hub's own endpoints.

use tokio::process::Command;

use crate::{
    clients::{client_tools_dir, node_program, run_to_end},
    test_hub::TestHub,
};

/// Runs every required scenario of `version` against `url`; returns how many
/// passed. Those in `except` may fail.
pub(crate) async fn count_passed(url: &str, version: &str, except: &[&str]) -> usize {
    passed_scenarios(url, version, except).await.len()
}

/// The same, by name.
pub(crate) async fn passed_scenarios(url: &str, version: &str, except: &[&str]) -> Vec<String> {
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(node_program());
    command
        .arg(suite)
        .args(["server", "--url", url, "--requirements", version, "-o"])
        .arg(out.path());
    // It fails as a whole as soon as one scenario does.
    let (shown, _, _) = run_to_end(&mut command).await;
    let summary = shown.split("=== SUMMARY ===").nth(1).expect("a summary");
    let scored = summary.split("Not scored").next().unwrap_or(summary);
    let unscored: Vec<&str> = summary
        .split("Not scored")
        .nth(1)
        .unwrap_or_default()
        .lines()
        .collect();
    let is_unscored = |name: &str| {
        unscored
            .iter()
            .any(|line| line.split_whitespace().nth(1) == Some(name))
    };
    let failed: Vec<&str> = scored
        .lines()
        .filter_map(|line| line.strip_prefix("✗ "))
        .filter(|line| {
            let name = line.split(':').next().unwrap();
            !is_unscored(name) && !except.contains(&name)
        })
        .collect();
    assert!(failed.is_empty(), "{version}: {failed:?}\n{shown}");
    let passed = scored.lines().filter_map(|line| line.strip_prefix("✓ "));
    passed
        .map(|line| line.split(':').next().unwrap().to_owned())
        .filter(|name| !is_unscored(name))
        .collect()
}

/// Runs one scenario against `url`; panics with what it printed if it fails.
pub(crate) async fn check_scenario(url: &str, version: &str, name: &str) {
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node_program());
    command.arg(suite).args([
        "server",
        "--url",
        url,
        "--spec-version",
        version,
        "--scenario",
        name,
    ]);
    let (shown, _, succeeded) = run_to_end(&mut command).await;
    assert!(succeeded, "{name}: {shown}");
}

/// Runs a scenario of an extension against `url`; returns what it printed.
pub(crate) async fn run_extension_scenario(url: &str, name: &str) -> String {
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node_program());
    // It is skipped otherwise, because an extension belongs to no version.
    let version = ["--spec-version", "2026-07-28", "--force"];
    command
        .arg(suite)
        .args(["server", "--url", url, "--scenario", name])
        .args(version);
    run_to_end(&mut command).await.0
}

#[tokio::test]
async fn every_required_scenario_with_sessions() {
    let hub = TestHub::with_suite_tools().await;
    assert_eq!(count_passed(&hub.url(), "2025-11-25", &[]).await, 30);
}

#[tokio::test]
async fn every_required_scenario_without_sessions() {
    let hub = TestHub::with_suite_tools().await;
    assert_eq!(count_passed(&hub.url(), "2026-07-28", &[]).await, 37);
}
