//! Real clients sign in to maru, while nobody sits at the machine: what they would open in
//! a browser is opened by the test.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::Command,
    sync::mpsc,
};

use super::*;
use crate::{
    clients::{client_tools_dir, node_program},
    faults::free_port,
};

/// How long a client may take with everything.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(90);

/// Runs a client to its end and allows what it asks for; returns all that it wrote.
async fn run(hub: &TestHub, mut command: Command) -> String {
    let mut browser = Browser::of_new_account(hub, account(&unused_name(), "agent")).await;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (sender, mut lines) = mpsc::channel(1000);
    forward(child.stdout.take().unwrap(), sender.clone());
    forward(child.stderr.take().unwrap(), sender);
    let mut shown = String::new();
    let to_the_end = async {
        let mut has_opened = false;
        while let Some(line) = lines.recv().await {
            shown += &format!("{line}\n");
            if let Some(at) = line
                .find("http://")
                .filter(|_| line.contains("/oauth/authorize?"))
                && !has_opened
            {
                has_opened = true;
                let link = line[at..].split_whitespace().next().unwrap();
                let link: String = link.chars().filter(|it| !it.is_control()).collect();
                let (_, query) = link.split_once('?').unwrap();
                let choice = [("role", "agent"), ("servers", "all")];
                let location = browser.allow(query, &choice).await;
                let (_, rest) = location.split_once("://").unwrap();
                let (address, path) = rest.split_at(rest.find('/').unwrap());
                let answered = TestRequest::new(address, "GET", path).send().await;
                assert!(answered.status.as_u16() < 400, "{}", answered.status);
            }
        }
        child.wait().await.unwrap()
    };
    let ended = tokio::time::timeout(CLIENT_TIMEOUT, to_the_end).await;
    match ended {
        Ok(status) => assert!(status.success(), "{shown}"),
        Err(_) => panic!("the client does not end: {shown}"),
    }
    shown
}

#[expect(clippy::disallowed_methods, reason = "it ends with the test")]
fn forward(pipe: impl AsyncRead + Send + Unpin + 'static, sender: mpsc::Sender<String>) {
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).await.is_err() {
                return;
            }
        }
    });
}

async fn grant_of(hub: &TestHub) -> Value {
    let grants = hub
        .send_as_admin("GET", "/api/oauth/grants", Value::Null)
        .await;
    let grants = grants.json().await;
    assert_eq!(grants.as_array().unwrap().len(), 1, "{grants}");
    grants[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn typescript_clients_of_both_versions_sign_in() {
    for version in ["1", "2"] {
        let hub = start().await;
        let mut command = Command::new(node_program());
        command.arg(client_tools_dir().join("sign_in_client.mjs"));
        command.args([&hub.url(), &free_port().to_string(), version]);
        let shown = run(&hub, command).await;
        assert!(shown.contains("search_docs"), "{shown}");
        assert_eq!(grant_of(&hub).await["clientName"], "TypeScript client");
    }
}

/// The bridge of clients that only start programs: it signs in for them.
#[tokio::test(flavor = "multi_thread")]
async fn mcp_remote_signs_in_for_a_client_of_programs() {
    let hub = start().await;
    let home = tempfile::tempdir().unwrap();
    let tools = client_tools_dir();
    let mut command = Command::new(node_program());
    command.arg(tools.join("ts_sdk1.mjs")).arg("stdio");
    command.arg(node_program());
    command.arg(tools.join("node_modules/mcp-remote/dist/proxy.js"));
    command.args([hub.url(), free_port().to_string()]);
    command.env("HOME", home.path());
    let shown = run(&hub, command).await;
    assert!(shown.contains("search_docs"), "{shown}");
    assert_eq!(grant_of(&hub).await["role"], "agent");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_client_signs_in_and_renews_by_itself() {
    let hub = TestHub::with_config(|config| {
        serve(config);
        config.oauth.access_token_ms = 2000;
    })
    .await;
    for environment in ["mcp1", "mcp2"] {
        let tools = client_tools_dir();
        let mut command = Command::new(tools.join(environment).join("bin/python"));
        command.arg(tools.join("sign_in_client.py"));
        command.args([hub.url(), free_port().to_string()]);
        let shown = run(&hub, command).await;
        assert!(shown.contains("search_docs"), "{shown}");
        assert!(shown.contains("renewed"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_signs_in() {
    let hub = start().await;
    let home = tempfile::tempdir().unwrap();
    let config = format!("[mcp_servers.maru]\nurl = \"{}\"\n", hub.url());
    std::fs::write(home.path().join("config.toml"), config).unwrap();
    let codex = client_tools_dir().join("node_modules/.bin/codex");
    let mut command = Command::new(node_program());
    command.arg(std::fs::canonicalize(codex).unwrap());
    command.args(["mcp", "login", "maru"]);
    command
        .env("CODEX_HOME", home.path())
        .env("HOME", home.path())
        .env("BROWSER", "true");
    let shown = run(&hub, command).await;
    assert!(shown.contains("Successfully logged in"), "{shown}");
    assert_eq!(grant_of(&hub).await["role"], "agent");
}
