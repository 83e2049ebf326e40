//! A hub between a healthy server and bad ones.

use std::{
    fs,
    path::Path,
    pin::pin,
    process::Command,
    sync::{
        LazyLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use maru::{
    config::Config,
    upstream::{ServerDraft, ServerOrigin, ServerView},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    http_client::wait_for,
    test_hub::{TestHub, call_message},
};

/// How long one call may take.
pub(super) const TOOL_TIMEOUT: Duration = Duration::from_secs(2);
/// How long connecting may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// What a busy machine adds to a deadline.
const DEADLINE_SLACK: Duration = Duration::from_secs(3);

/// What must never be seen: bodies of servers, and what was configured for them.
pub(super) const CANARY_SECRETS: [&str; 3] =
    ["secret-internal-host", "canary-5ecret", "print your system"];

/// What became of a bad server.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExpectedOutcome {
    /// It answers as if nothing were wrong.
    Echo,
    /// The call fails, and says this.
    Fails(&'static str),
    /// It is not connected, and this is why.
    Down(&'static str),
}

/// A call that its server never answers.
pub(super) const CALL_TIMES_OUT: ExpectedOutcome =
    ExpectedOutcome::Fails("did not answer within 2s");

/// The interpreter itself: what is found by its name may be a script.
pub(crate) static PYTHON: LazyLock<String> = LazyLock::new(|| {
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output();
    String::from_utf8(asked.unwrap().stdout)
        .unwrap()
        .trim()
        .to_owned()
});

/// The text of a result, or of why there is none.
pub(super) type CallResult = Result<String, String>;

pub(super) struct FaultHarness {
    pub(super) hub: TestHub,
    session: String,
    next: AtomicI64,
}

impl FaultHarness {
    /// A hub with the healthy server `fx`; lost servers are not tried again soon.
    pub(super) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(super) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let hub = TestHub::with_config(|config| {
            config.limits.tool_timeout_ms = TOOL_TIMEOUT.as_millis().try_into().unwrap();
            config.mcp.connect_timeout_ms = CONNECT_TIMEOUT.as_millis().try_into().unwrap();
            config.mcp.reconnection.initial_delay_ms = 60_000;
            change(config);
        })
        .await;
        let session = hub.initialize_session("2025-11-25", json!({})).await;
        let bench = Self {
            hub,
            session,
            next: AtomicI64::new(1),
        };
        bench.add_program("fx", "good").await;
        bench
    }

    /// Registers a server and waits for how connecting goes.
    pub(super) async fn add_server(&self, name: &str, kind: &str, config: Value) -> ServerView {
        let body =
            json!({"name": name, "autoConnect": true, "transportType": kind, "config": config});
        let draft = ServerDraft::from_api(&body).unwrap();
        let servers = self.hub.running.servers();
        servers.register(&draft, ServerOrigin::Api).await.unwrap()
    }

    /// Registers a program that does as `mode` says.
    pub(super) async fn add_program(&self, name: &str, mode: &str) -> ServerView {
        let config = json!({"command": *PYTHON, "args": self.arguments(name, mode)});
        self.add_server(name, "STDIO", config).await
    }

    /// The command line of the program; its end tells its processes apart.
    pub(super) fn arguments(&self, name: &str, mode: &str) -> Vec<String> {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/security/faults/evil_stdio.py"
        );
        let (mode, second) = mode.split_once(' ').unwrap_or((mode, "-"));
        vec![
            script.to_owned(),
            mode.to_owned(),
            second.to_owned(),
            self.process_mark(name),
        ]
    }

    fn process_mark(&self, name: &str) -> String {
        self.hub.directory.path().join(name).display().to_string()
    }

    /// Ids of the processes of a server, children of its program included.
    pub(super) fn processes(&self, name: &str) -> Vec<u32> {
        processes_with_mark(&self.process_mark(name))
    }

    pub(super) fn view(&self, name: &str) -> ServerView {
        self.hub.running.servers().get(name).unwrap()
    }

    /// Waits until a server is as `wanted` says.
    pub(super) async fn wait_for(
        &self,
        name: &str,
        wanted: impl Fn(&ServerView) -> bool,
    ) -> ServerView {
        wait_for(async || self.view(name), wanted).await
    }

    /// Removes a server; then nothing of it is left.
    pub(super) async fn remove(&self, name: &str) {
        self.hub.running.servers().remove(name).await.unwrap();
        self.wait_until_gone(name).await;
    }

    /// Every process of a server has ended; the killed ones may take a moment.
    pub(super) async fn wait_until_gone(&self, name: &str) {
        wait_for(async || self.processes(name), Vec::is_empty).await;
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> CallResult {
        let body = call_message(self.next.fetch_add(1, Relaxed), tool, arguments);
        let answer = self.hub.session_request(&self.session, &body).send().await;
        let answer = answer.rpc_response().await;
        assert_no_secret(&answer.to_string());
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        match (text, result["isError"] == true) {
            (Some(text), false) => Ok(text.to_owned()),
            (Some(why), true) => Err(why.to_owned()),
            (None, _) => Err(answer["error"]["message"].to_string()),
        }
    }

    pub(super) async fn echo(&self, server: &str, text: &str) -> CallResult {
        let tool = format!("{server}__echo");
        self.call(&tool, json!({"text": text})).await
    }

    /// Does `work` while the healthy server is asked all the time.
    pub(super) async fn while_healthy_server_answers<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let mut asked = 0;
        loop {
            let text = format!("healthy {asked}");
            let asking = async {
                assert_eq!(self.echo("fx", &text).await, Ok(text.clone()));
                sleep(Duration::from_millis(20)).await;
            };
            tokio::select! {
                done = &mut work => {
                    assert_eq!(self.echo("fx", "after").await, Ok("after".to_owned()));
                    return done;
                }
                () = asking => asked += 1,
            }
        }
    }

    /// Calls a server that was just registered, and judges what comes of it.
    pub(super) async fn check_server(&self, name: &str, mode: &str, expected: ExpectedOutcome) {
        let status = self.view(name).status;
        if let ExpectedOutcome::Down(why) = expected {
            let cause = status.cause.unwrap_or_default();
            assert_eq!(status.state.as_str(), "FAILED", "{mode}");
            assert!(cause.contains(why), "{mode}: {cause}");
            return assert_no_secret(&cause);
        }
        let shown = || format!("{mode}: {status:?}");
        assert_eq!(status.state.as_str(), "CONNECTED", "{}", shown());
        let text = format!("text for {name}");
        let asked = Instant::now();
        let outcome = self.echo(name, &text).await;
        assert!(
            asked.elapsed() < TOOL_TIMEOUT + DEADLINE_SLACK,
            "{mode} took too long"
        );
        match (expected, outcome) {
            (ExpectedOutcome::Echo, outcome) => assert_eq!(outcome, Ok(text), "{mode}"),
            (ExpectedOutcome::Fails(why), Err(said)) => {
                assert!(said.contains(why), "{mode}: {said}");
            }
            (_, outcome) => panic!("{mode}: {outcome:?}"),
        }
    }
}

/// Nothing that must stay inside is in what came out.
pub(super) fn assert_no_secret(text: &str) {
    for secret in CANARY_SECRETS {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

/// Processes whose command line ends in `mark`.
pub(super) fn processes_with_mark(mark: &str) -> Vec<u32> {
    let end = format!("{mark}\0");
    let is_marked = |id: &u32| {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line.ends_with(end.as_bytes())
    };
    all_processes().into_iter().filter(is_marked).collect()
}

fn all_processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let names = entries.filter_map(|it| it.file_name().into_string().ok());
    names.filter_map(|it| it.parse().ok()).collect()
}

/// Children of ours that ended and that nobody waited for.
pub(super) fn zombies() -> Vec<u32> {
    let own = std::process::id().to_string();
    let is_zombie = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        let mut parts = rest.split(' ');
        parts.next() == Some("Z") && parts.next() == Some(own.as_str())
    };
    all_processes().into_iter().filter(is_zombie).collect()
}

/// Memory of this process in MiB: the hub is part of it.
pub(super) fn resident_mib() -> usize {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib >> 10
}
