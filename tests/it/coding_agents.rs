//! Real coding agents, each in a network of its own, work on files with scripted models
//! that write their calls in five dialects (`tests/clients/coding_agent.py`).

use futures_util::future::join_all;
use serde_json::Value;
use tokio::process::Command;

use crate::clients::{client_tools_dir, run_successfully};

/// Lists a folder, reads a file, edits it, runs a command and ends, in every dialect.
async fn check_agent(agent: &str) {
    let dialects = ["hermes", "glm", "qwen-coder", "gemma", "bare-json"];
    let runs = dialects.map(|dialect| async move {
        let printed = run_successfully(
            Command::new("python3")
                .arg(client_tools_dir().join("coding_agent.py"))
                .args([agent, dialect, env!("CARGO_BIN_EXE_maru")])
                .arg(client_tools_dir().join("node_modules")),
        )
        .await;
        let seen: Value = serde_json::from_str(&printed).unwrap();
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
