//! Tests that need addresses beyond loopback run in a network namespace of their own, which
//! has a loopback interface and nothing else.

use std::{env, fs, process::Stdio};

use tokio::process::Command;

/// Set for the copy of this process that runs inside the namespace.
const INSIDE_VARIABLE: &str = "MARU_TEST_NAMESPACE";
/// An address inside the namespace beside those of loopback; a document names it.
pub(crate) const NAMESPACE_ADDRESS: &str = "192.168.0.18";
const SET_UP_LOOPBACK: &str =
    "ip link set lo up && ip address add 192.168.0.18/32 dev lo && exec \"$0\" \"$@\"";

/// Runs a test of this binary again in a network namespace without a way out, and says so
/// where namespaces cannot be made and nothing is tested.
#[expect(
    clippy::print_stdout,
    reason = "whoever runs the tests learns that this one was not"
)]
pub(crate) async fn run_in_namespace(test: &str) {
    for flags in [&["--user", "--map-root-user", "--net"][..], &["--net"][..]] {
        let mut probe = Command::new("unshare");
        let probe = probe
            .args(flags)
            .args(["sh", "-c", SET_UP_LOOPBACK, "true"]);
        let probed = probe.stderr(Stdio::null()).status().await;
        if !probed.is_ok_and(|it| it.success()) {
            continue;
        }
        let output = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", SET_UP_LOOPBACK])
            .arg(env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(INSIDE_VARIABLE, "1")
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}\n{errors}");
        assert!(printed.contains("1 passed"), "{printed}\n{errors}");
        return;
    }
    println!(
        "SKIPPED {test}: this system makes no network namespace with `unshare --net` and `ip`"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "the outer process says that this one is inside the namespace"
)]
pub(crate) fn is_in_namespace() -> bool {
    let is_inside = env::var(INSIDE_VARIABLE).is_ok();
    if is_inside {
        let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
        let devices: Vec<&str> = devices.lines().skip(2).map(str::trim).collect();
        assert!(devices.len() == 1 && devices[0].starts_with("lo:"));
    }
    is_inside
}
