//! The hub as a process: what signals do, and what it prints where.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use maru::app::running_hub;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::http_client::{TestRequest, wait_for, wait_until};

const MARU_PROGRAM: &str = env!("CARGO_BIN_EXE_maru");

/// `maru serve` with its own directory, whose log and output are files there.
pub(crate) struct ServeProcess {
    child: Child,
    directory: tempfile::TempDir,
    pub(crate) address: String,
}

impl ServeProcess {
    pub(crate) async fn start(yaml: &str) -> Self {
        Self::start_with_variables(yaml, "").await
    }

    /// Starts with a `.env` of these lines.
    pub(crate) async fn start_with_variables(yaml: &str, variables: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        fs::write(directory.path().join(".env"), variables).unwrap();
        let file = |name: &str| File::create(directory.path().join(name)).unwrap();
        let child = maru_command(directory.path(), &["serve", "--listen", "127.0.0.1:0"])
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        let address = wait_for_address(directory.path()).await;
        let process = Self {
            child,
            directory,
            address,
        };
        process.wait_for("stdout", "Stop with Ctrl-C").await;
        process
    }

    /// The directory with its `maru.yaml`, where the commands of a test run.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The file of this name, `stdout` or `stderr`, once it has the text.
    pub(crate) async fn wait_for(&self, file: &str, text: &str) -> String {
        wait_for(async || self.read(file), |it| it.contains(text)).await
    }

    fn send(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(id, signal).unwrap();
    }

    /// Asks the hub to stop, and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.send(Signal::TERM);
        wait_until(async || self.child.try_wait().unwrap().is_some()).await;
    }

    /// Reloads, and gives what was logged since.
    async fn reload(&self, yaml: &str, expected: &str) -> String {
        let before = self.read("stderr").len();
        fs::write(self.path("maru.yaml"), yaml).unwrap();
        self.send(Signal::HUP);
        let written = async || self.read("stderr")[before..].to_owned();
        wait_for(written, |it| it.contains(expected)).await
    }

    async fn status(&self, token: Option<&str>) -> u16 {
        let mut ask = TestRequest::new(&self.address, "GET", "/readyz");
        if let Some(token) = token {
            ask = ask.header("authorization", &format!("Bearer {token}"));
        }
        ask.send().await.status.as_u16()
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `maru` in `directory`, with its data in `data` there.
pub(crate) fn maru_command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(MARU_PROGRAM);
    command
        .args(arguments)
        .arg("--data-dir")
        .arg(directory.join("data"))
        .current_dir(directory)
        .env_remove("MARU_CONFIG")
        .stdin(Stdio::null());
    command
}

/// Where the hub of this directory listens, once it does.
async fn wait_for_address(directory: &Path) -> String {
    let address = async || running_hub(&directory.join("data")).unwrap_or_default();
    wait_for(address, |it| !it.is_empty()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_applies_reloadable_settings_and_names_the_others() {
    let hub = ServeProcess::start("sample_data: false\n").await;
    assert_eq!(hub.status(None).await, 200);
    let yaml = "sample_data: true\nrequire_token: true\nlimits: {max_body_bytes: 2048}\n\
                postgresql: {password: changed}\n";
    let log = hub.reload(yaml, "need a restart").await;
    let applied = "changed: require_token, limits.max_body_bytes\n";
    assert!(log.contains(applied), "{log}");
    let named = "need a restart: sample_data, postgresql.password\n";
    assert!(log.contains(named), "{log}");
    assert_eq!(hub.status(None).await, 401);
    let admin = hub.read("data/admin-token");
    let large = TestRequest::post(&hub.address, "/mcp", &json!({"x": "x".repeat(4096)}))
        .header("authorization", &format!("Bearer {}", admin.trim()));
    assert_eq!(large.send().await.status, 413);
    // The page of the settings shows what is in force.
    let shown = TestRequest::new(&hub.address, "GET", "/api/config")
        .header("authorization", &format!("Bearer {}", admin.trim()))
        .send()
        .await
        .json()
        .await;
    let row = |key: &str| {
        let rows = shown["settings"].as_array().unwrap();
        rows.iter().find(|it| it["key"] == key).unwrap()["value"].clone()
    };
    assert_eq!(row("sample_data"), false);
    assert_eq!(row("require_token"), true);
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_with_invalid_settings_changes_nothing() {
    let hub = ServeProcess::start("require_token: true\n").await;
    let admin = hub.read("data/admin-token").trim().to_owned();
    let other = "maru_another-admin-token-that-is-long-enough-0123456789";
    fs::write(hub.path("data/admin-token"), other).unwrap();
    let toolset = "toolsets: [{name: added, include: ['*']}]\n";
    let twice = "{name: twice, period: day, tokens: 1}";
    let budgets = format!("{toolset}usage: {{budgets: [{twice}, {twice}]}}\n");
    let toolsets = "toolsets: [{name: a, include: ['*']}, {name: a, include: ['*']}]\n";
    for (yaml, why) in [
        (&*budgets, "has two budgets"),
        (toolsets, "is defined twice"),
        (
            "require_token: false\nlimits: {max_sesions: 3}\n",
            "max_sesions",
        ),
        (
            "require_token: false\nmodels: [{name: x, base_url: 'ftp://127.0.0.1'}]\n",
            "models.0",
        ),
        (
            "require_token: false\noauth: {issuer: 'https://x'}\n",
            "oauth.resource",
        ),
    ] {
        let log = hub.reload(yaml, "were not reloaded").await;
        assert!(log.contains(why), "{log}");
        assert_eq!(hub.status(None).await, 401, "{yaml}");
        assert_eq!(hub.status(Some(&admin)).await, 200, "{yaml}");
        assert_eq!(hub.status(Some(other)).await, 401, "{yaml}");
        let toolsets = TestRequest::new(&hub.address, "GET", "/api/toolsets")
            .header("authorization", &format!("Bearer {admin}"));
        let toolsets = toolsets.send().await.json().await;
        assert_eq!(toolsets, json!([]), "{yaml}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_reloads_the_admin_token() {
    let hub = ServeProcess::start("require_token: true\n").await;
    let old = hub.read("data/admin-token").trim().to_owned();
    assert_eq!(hub.status(Some(&old)).await, 200);
    let new = "maru_another-admin-token-that-is-long-enough-0123456789";
    fs::write(hub.path("data/admin-token"), new).unwrap();
    hub.reload("require_token: true\n", "reloaded").await;
    assert_eq!(hub.status(Some(&old)).await, 401);
    assert_eq!(hub.status(Some(new)).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_level_changes_while_the_hub_runs() {
    let hub = ServeProcess::start("log: {level: error}\n").await;
    assert_eq!(hub.read("stderr"), "");
    hub.reload("log: {level: info}\n", "changed: log.level")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn user_signals_are_ignored() {
    let hub = ServeProcess::start("").await;
    for signal in [Signal::USR1, Signal::USR2] {
        hub.send(signal);
    }
    // Signals of one process are handled in turn: those before were ignored.
    hub.reload("", "reloaded").await;
    assert_eq!(hub.status(None).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_code_is_not_printed_into_a_file() {
    let hub = ServeProcess::start("").await;
    let (printed, log) = (hub.read("stdout"), hub.read("stderr"));
    assert!(
        !printed.contains("code=") && !log.contains("code="),
        "{printed}"
    );
    assert!(printed.contains("console"), "{printed}");
    // Who may read the data directory gets a link, and it signs in.
    let output = maru_command(hub.directory.path(), &["console"])
        .output()
        .unwrap();
    let link = String::from_utf8(output.stdout).unwrap();
    let (start, code) = link.trim().split_once("/#code=").unwrap();
    assert_eq!(start, format!("http://{}", hub.address));
    let body = json!({"code": code});
    let signed_in = TestRequest::post(&hub.address, "/api/session", &body);
    assert_eq!(signed_in.send().await.status, 200);
}

/// `script` gives the hub a terminal of its own; when it is killed, the terminal is
/// gone, and so is whoever could end the hub with Ctrl-C.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_the_code_is_printed_and_closing_it_ends_the_hub() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let line = format!(
        "exec {MARU_PROGRAM} serve --listen 127.0.0.1:0 --data-dir {}",
        data.display()
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &line])
        .arg(directory.path().join("screen"))
        .current_dir(directory.path())
        .env_remove("MARU_CONFIG")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let address = wait_for_address(directory.path()).await;
    let printed_code = async || {
        let screen = fs::read(directory.path().join("screen")).unwrap_or_default();
        let screen = String::from_utf8_lossy(&screen);
        let (_, rest) = screen.split_once("/#code=")?;
        let (code, _) = rest.split_once(char::is_whitespace)?;
        Some(code.to_owned())
    };
    let code = wait_for(printed_code, Option::is_some).await;
    let body = json!({"code": code});
    let signed_in = TestRequest::post(&address, "/api/session", &body);
    assert_eq!(signed_in.send().await.status, 200);
    script.kill().unwrap();
    script.wait().unwrap();
    wait_until(async || running_hub(&data).is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logged_value_is_one_line() {
    let hub = ServeProcess::start("").await;
    let yaml = r#""x\n2026-01-01T00:00:00Z  INFO forged: line\r\e[2J": 1"#;
    let log = hub.reload(yaml, "were not reloaded").await;
    assert!(
        log.contains(r"x\n2026-01-01T00:00:00Z  INFO forged"),
        "{log}"
    );
    assert!(!log.contains('\u{1b}') && !log.contains('\r'), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
}
