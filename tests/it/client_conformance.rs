//! The official conformance suite as the server, the hub's side towards other
//! servers as the client.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::clients::{client_tools_dir, node_program};

/// Extensions that no version requires and maru does not have.
const MISSING_EXTENSIONS: [&str; 4] = [
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
];
/// Scenarios in which the client has to refuse, and says so.
const REFUSING_SCENARIOS: [&str; 7] = [
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
];
/// Beyond the required ones: client credentials in two forms, and one that is newer than
/// both versions.
const FURTHER_SCENARIOS: usize = 3;

#[tokio::test]
async fn every_required_scenario_with_sessions() {
    check_version("2025-11-25", 18).await;
}

#[tokio::test]
async fn every_required_scenario_without_sessions() {
    check_version("2026-07-28", 32).await;
}

/// Servers of 2025-03-26, which publish no metadata of the resource, or none at all.
#[tokio::test]
async fn sign_in_at_servers_of_2025_03_26() {
    for scenario in ["oauth-metadata-backcompat", "oauth-endpoint-fallback"] {
        let scenario = format!("auth/2025-03-26-{scenario}");
        let out = tempfile::tempdir().unwrap();
        let options = ["--scenario", &scenario, "--spec-version", "2025-03-26"];
        let shown = run_suite(&options, out.path()).await;
        let passed = run_scenarios(out.path(), has_passed);
        assert_eq!(passed, BTreeSet::from([scenario]), "{shown}");
    }
}

/// Runs every scenario of `version`; all pass that are required, and the further ones.
async fn check_version(version: &str, required: usize) {
    let out = tempfile::tempdir().unwrap();
    let shown = run_suite(&["--requirements", version], out.path()).await;
    let failed = run_scenarios(out.path(), |place| !has_passed(place));
    let expected = MISSING_EXTENSIONS.map(str::to_owned).into();
    assert_eq!(failed, expected, "{version}\n{shown}");
    let passed = run_scenarios(out.path(), has_passed);
    assert_eq!(passed.len(), required + FURTHER_SCENARIOS, "{passed:?}");
}

/// The suite fails as a whole as long as a scenario does; what it says is only
/// shown, and what it wrote down counts.
async fn run_suite(options: &[&str], out: &Path) -> String {
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let mut command = Command::new(node_program());
    command
        .arg(suite)
        .arg("client")
        .args(options)
        .arg("--command")
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

/// Names of the scenarios for which `wanted` is true, from the directory that each has in
/// `out`.
fn run_scenarios(out: &Path, wanted: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let groups = [(out.to_owned(), ""), (out.join("auth"), "auth/")];
    let mut found = BTreeSet::new();
    for (group, prefix) in groups {
        for entry in fs::read_dir(group).into_iter().flatten() {
            let place = entry.unwrap().path();
            if place.join("checks.json").exists() && wanted(&place) {
                found.insert(format!("{prefix}{}", scenario_name(&place)));
            }
        }
    }
    found
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
    let refuses = REFUSING_SCENARIOS.contains(&&*format!("auth/{}", scenario_name(place)));
    let is_quiet = refuses != read("stderr.txt").is_empty();
    has("SUCCESS") && !has("FAILURE") && !has("WARNING") && is_quiet
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
