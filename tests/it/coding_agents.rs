//! Real coding agents, each in a network of its own, work on files with scripted models
//! that write their calls in five dialects (`tests/clients/coding_agent.py`).

use futures_util::future::join_all;
use serde_json::Value;
use tokio::process::Command;

use crate::clients::{client_tools_dir, run_successfully};

async fn run_agent(agent: &str, dialect: &str) -> Value {
    let printed = run_successfully(
        Command::new("python3")
            .arg(client_tools_dir().join("coding_agent.py"))
            .args([agent, dialect, env!("CARGO_BIN_EXE_maru")])
            .arg(client_tools_dir().join("node_modules")),
    )
    .await;
    serde_json::from_str(&printed).unwrap()
}

/// Lists a folder, reads a file, edits it, runs a command and ends, in every dialect.
async fn check_agent(agent: &str) {
    let dialects = ["hermes", "glm", "qwen-coder", "gemma", "bare-json"];
    let runs = dialects.map(|dialect| async move {
        let seen = run_agent(agent, dialect).await;
        assert_eq!(seen["status"], 0, "{dialect}: {seen}");
        let output = seen["output"].as_str().unwrap();
        assert!(output.contains("ALL DONE"), "{dialect}: {seen}");
        let notes = "The sky is green.\nThe \"door\" is <b>red</b> & old.\n";
        assert_eq!(seen["notes"], notes, "{dialect}: {seen}");
        assert_eq!(seen["checked"], "1\n", "{dialect}: {seen}");
        let results = seen["results"].as_array().unwrap();
        assert_eq!(results.len(), 4, "{dialect}: {seen}");
        for (result, part) in results
            .iter()
            .zip(["notes.txt", "sky is blue", "", "checked"])
        {
            assert!(result.as_str().unwrap().contains(part), "{dialect}: {seen}");
        }
    });
    join_all(runs).await;
}

#[tokio::test]
async fn claude_code_works_with_every_dialect() {
    check_agent("claude").await;
}

#[tokio::test]
async fn codex_works_with_every_dialect() {
    check_agent("codex").await;
}

#[tokio::test]
async fn codex_finds_and_calls_a_tool_of_the_hub() {
    let seen = run_agent("codex-search", "hermes").await;
    assert_eq!(seen["status"], 0, "{seen}");
    let results = seen["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{seen}");
    for (result, part) in results.iter().zip(["inputSchema", "연차 휴가 규정"]) {
        assert!(result.as_str().unwrap().contains(part), "{seen}");
    }
}
