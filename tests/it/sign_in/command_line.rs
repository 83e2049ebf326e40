//! `maru servers login` and `logout`.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::{
    browser::{follow, open_on_hub, path_and_query},
    fake_remote::{CANARY, FakeRemote},
    own_accounts::Caller,
    register, sign_in, status,
};
use crate::{secret_search::SecretSearch, servers::run_maru, test_hub::TestHub};

/// A command that prints a link and waits.
struct LoginCommand {
    child: Child,
    output: BufReader<ChildStdout>,
    link: String,
}

impl LoginCommand {
    async fn start(hub: &TestHub, flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
            .arg("--data-dir")
            .arg(hub.directory.path())
            .args(["servers", "login", "remote"])
            .args(flags)
            .kill_on_drop(true)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut link = String::new();
        while !link.starts_with("http://") {
            let mut line = String::new();
            assert_ne!(output.read_line(&mut line).await.unwrap(), 0, "no link");
            line.trim().clone_into(&mut link);
        }
        Self {
            child,
            output,
            link,
        }
    }

    async fn paste(&mut self, address: &str) {
        let mut input = self.child.stdin.take().unwrap();
        let line = format!("{address}\n");
        input.write_all(line.as_bytes()).await.unwrap();
    }

    /// The exit code and the rest of the output.
    async fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).await.unwrap();
        (self.child.wait().await.unwrap().code(), rest)
    }
}

async fn logout(hub: &TestHub, flags: &[&str]) -> String {
    let arguments = [&["servers", "logout", "remote"], flags].concat();
    let (code, shown, why) = run_maru(hub.directory.path(), &arguments).await;
    assert_eq!(code, Some(0), "{why}");
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn login_waits_for_the_browser_and_logout_revokes() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    let login = LoginCommand::start(&hub, &[]).await;
    let redirect = follow(&login.link, &hub.address).await;
    let page = open_on_hub(&hub, path_and_query(&redirect)).await;
    assert_eq!(page.status, 200);
    let (code, shown) = login.end().await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("remote is CONNECTED"), "{shown}");
    let shown = logout(&hub, &[]).await;
    assert!(shown.contains("revoked and deleted"), "{shown}");
    assert_eq!(status(&hub).await["status"], "DISCONNECTED");
    assert_eq!(remote.count("/revoke"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn pasted_address_completes_a_login_and_no_process_shows_it() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    let mut login = LoginCommand::start(&hub, &["--paste"]).await;
    let redirect = follow(&login.link, &hub.address).await;
    assert!(redirect.contains(CANARY));
    let secrets = SecretSearch::new([CANARY, hub.running.admin_token.reveal()]);
    secrets.assert_absent_in_process(login.child.id().unwrap());
    login.paste(&redirect).await;
    let (code, shown) = login.end().await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("remote is CONNECTED"), "{shown}");
    secrets.assert_absent("the output", shown);

    let mut login = LoginCommand::start(&hub, &["--paste"]).await;
    login.paste("https://elsewhere.example/").await;
    let (code, shown) = login.end().await;
    assert_eq!(code, Some(2), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_signs_in_and_out_with_the_own_account() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    sign_in(&hub).await;
    let ann = Caller::new(&hub, "ann").await;
    let own = ["--own", "--token", &ann.token];
    let mut login = LoginCommand::start(&hub, &own).await;
    let redirect = follow(&login.link, &hub.address).await;
    login.paste(&redirect).await;
    let (code, shown) = login.end().await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("with your own account"), "{shown}");
    let answer = ann.call(json!({}), Value::Null).await;
    assert_eq!(super::text_of(&answer), "account 2", "{answer}");
    let shown = logout(&hub, &own).await;
    assert!(shown.contains("signed out of remote"), "{shown}");
    let refused = ann.call(json!({}), Value::Null).await;
    let text = super::text_of(&refused);
    assert!(text.contains("needs a sign-in"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_of_the_issuer_is_allowed_by_its_name() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    let elsewhere = |issuer: &str| {
        let path = "/.well-known/oauth-protected-resource/mcp";
        remote.change_document(path, json!({"authorization_servers": [issuer]}));
    };
    elsewhere("https://login.invalid-host.example");
    register(&hub, &remote.url(), Value::Null).await;
    let login = async |flags: &[&str]| {
        let arguments = [&["servers", "login", "remote"], flags].concat();
        let (code, _, why) = run_maru(hub.directory.path(), &arguments).await;
        assert_eq!(code, Some(2), "{why}");
        why
    };
    let flag = "--allow-host login.invalid-host.example";
    let refused = login(&[]).await;
    assert!(refused.contains(flag), "{refused}");
    // It goes on as far as the name, which nobody has.
    let tried = login(&flag.split(' ').collect::<Vec<_>>()).await;
    assert!(!tried.contains("listed host"), "{tried}");
    assert!(tried.contains("login.invalid-host.example"), "{tried}");
    let audit = hub.send_as_admin("GET", "/api/audit", Value::Null);
    let audit = audit.await.text().await;
    assert!(audit.contains("PUT /api/allowed-hosts"), "{audit}");
    // What a server names in a private network needs the settings.
    elsewhere("https://10.0.0.1");
    let refused = login(&["--allow-host", "10.0.0.1"]).await;
    assert!(refused.contains("outbound.allowed_hosts"), "{refused}");
}
