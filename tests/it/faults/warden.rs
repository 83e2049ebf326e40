//! Programs behind their warden: confined, and gone when the hub is.

use std::{fs, process::Stdio, time::Duration};

use tokio::time::Instant;

use super::harness::{FaultHarness, PYTHON, processes_with_mark};
use crate::{faults::free_port, http_client::wait_until, signals::maru_command};

const MARU_PROGRAM: &str = env!("CARGO_BIN_EXE_maru");
const WARDEN_MODES: [&str; 5] = [
    "good",
    "ignore-term",
    "orphan",
    "orphan setsid",
    "stdin-ignore",
];

#[tokio::test(flavor = "multi_thread")]
async fn program_behind_its_warden_works_and_leaves_nothing_behind() {
    let bench = FaultHarness::start_with(|config| config.warden = Some(MARU_PROGRAM.into())).await;
    let one = async |mode: &str| {
        let name = mode.replace(' ', "-");
        bench.add_program(&name, mode).await;
        if mode != "stdin-ignore" {
            assert!(bench.echo(&name, "x").await.is_ok(), "{mode}");
        }
        assert!(!bench.processes(&name).is_empty(), "{mode}");
        let asked = Instant::now();
        bench.remove(&name).await;
        assert!(asked.elapsed() < Duration::from_secs(6), "{mode}");
    };
    futures_util::future::join_all(WARDEN_MODES.map(one)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_has_fewer_rights_than_the_hub() {
    let bench = FaultHarness::start_with(|config| config.warden = Some(MARU_PROGRAM.into())).await;
    bench.add_program("evil", "good").await;
    for id in bench.processes("evil") {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
        let core = limits
            .lines()
            .find(|it| it.starts_with("Max core"))
            .unwrap();
        let words: Vec<&str> = core.split_whitespace().collect();
        assert_eq!(words[4..6], ["0", "0"], "{core}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_is_not_there_is_refused_at_once() {
    let bench = FaultHarness::start_with(|config| config.warden = Some(MARU_PROGRAM.into())).await;
    for command in ["no-such-program", "/no/such/program"] {
        let config = serde_json::json!({"command": command});
        let name = format!("evil{}", command.len());
        let view = bench.add_server(&name, "STDIO", config).await;
        let cause = view.status.cause.unwrap_or_default();
        assert_eq!(cause, format!("cannot start {command}: not found"));
    }
}

/// Not even children that left their group outlive a hub that is killed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_hub_leaves_no_program_behind() {
    let directory = tempfile::tempdir().unwrap();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/security/faults/evil_stdio.py"
    );
    let mark = |name: &str| directory.path().join(name).display().to_string();
    let mut yaml = "mcp:\n  servers:\n".to_owned();
    let names = WARDEN_MODES.map(|mode| mode.replace(' ', "-"));
    for (mode, name) in WARDEN_MODES.iter().zip(&names) {
        let (mode, second) = mode.split_once(' ').unwrap_or((mode, "-"));
        let (python, mark) = (&*PYTHON, mark(name));
        yaml += &format!(
            "    - {{name: {name}, transport: stdio, command: {python}, args: ['{script}', '{mode}', '{second}', '{mark}']}}\n"
        );
    }
    fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let mut hub = maru_command(directory.path(), &["serve", "--listen", &listen])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let count = |name: &String| processes_with_mark(&mark(name)).len();
    // The warden, the program, and the children of some.
    let wanted = |name: &String| count(name) >= if name.starts_with("orphan") { 3 } else { 2 };
    wait_until(async || names.iter().all(wanted)).await;
    hub.kill().unwrap();
    hub.wait().unwrap();
    wait_until(async || names.iter().all(|name| count(name) == 0)).await;
}
