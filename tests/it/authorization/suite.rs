//! The official conformance suite, as the client of maru's authorization server.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use super::*;
use crate::{
    clients::{client_tools_dir, node_program},
    faults::free_port,
};

#[tokio::test(flavor = "multi_thread")]
async fn suite_passes_every_scenario_of_an_authorization_server() {
    let hub = hub_that_reads_documents().await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let port = free_port();
    let redirect = format!("http://127.0.0.1:{port}/callback");
    let body = json!({"redirect_uris": [redirect], "token_endpoint_auth_method": "none"});
    let registered = TestRequest::post(&hub.address, "/oauth/register", &body)
        .send()
        .await;
    let client = registered.json().await["client_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let out = tempfile::tempdir().unwrap();
    let suite =
        client_tools_dir().join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
    let base = format!("http://{}", hub.address);
    let mut child = Command::new(node_program())
        .arg(suite)
        .args(["authorization", "--url", &base, "--client-id", &client])
        .args([
            "--resource",
            &format!("{base}/mcp"),
            "--port",
            &port.to_string(),
            "-o",
        ])
        .arg(out.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut shown = String::new();
    let run = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            shown += &format!("{line}\n");
            // The suite asks a person to open this link.
            if let Some(at) = line
                .find("http")
                .filter(|_| line.contains("/oauth/authorize?"))
            {
                let link = line[at..].trim();
                let (_, query) = link.split_once('?').unwrap();
                let choice = [("role", "agent"), ("servers", "all")];
                let location = browser.allow(query, &choice).await;
                let back = location
                    .strip_prefix(&format!("http://127.0.0.1:{port}"))
                    .unwrap();
                let address = format!("127.0.0.1:{port}");
                let answered = TestRequest::new(&address, "GET", back).send().await;
                assert_eq!(answered.status, 200);
            }
        }
        child.wait().await.unwrap()
    };
    let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
    let ended = ended.expect("the suite ends");
    assert!(ended.success(), "{shown}");
    assert!(
        !shown.contains("FAILURE") && !shown.contains("WARNING"),
        "{shown}"
    );
}
