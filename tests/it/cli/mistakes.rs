//! A hundred mistakes: what the command line says, and its exit code.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use serde_json::json;

use super::utf8;
use crate::test_hub::TestHub;

/// Words that are separated by spaces; `'` quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

/// The exit code, the first line of stdout and all of stderr, without what differs from one
/// test to the next.
fn outcome(directory: &Path, address: &str, line: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(words(line))
        .current_dir(directory)
        .env("MARU_DATA_DIR", directory)
        .env("HOME", directory)
        .env_remove("MARU_CONFIG")
        .output()
        .unwrap();
    let mut text = format!("exit {}\n", output.status.code().unwrap());
    let stdout = utf8(&output.stdout);
    for line in stdout.lines().take(1) {
        writeln!(text, "{line}").unwrap();
    }
    text.push_str(&utf8(&output.stderr));
    let text = text.replace(directory.to_str().unwrap(), "DIR");
    text.replace(address, "HUB")
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_are_explained() {
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let server = json!({"name": "files", "transportType": "HTTP", "config": {"url": "http://127.0.0.1:9/mcp"}});
    let tool = json!({"name": "twice", "description_agent": "Doubles.", "tool_type": "PYTHON", "definition": "2", "params": []});
    for (path, body) in [
        ("/api/mcp/servers", server),
        ("/api/custom-tools", tool),
        ("/api/tokens", json!({"name": "laptop", "role": "agent"})),
    ] {
        assert_eq!(hub.send_as_admin("POST", path, body).await.status, 201);
    }
    fs::write(directory.join("broken.json"), "{ \"mcpServers\": ").unwrap();
    fs::write(directory.join("other.json"), "{}").unwrap();
    fs::write(directory.join("broken.yaml"), "a: [").unwrap();
    fs::write(directory.join("empty.yaml"), "").unwrap();
    let lines: Vec<&str> = include_str!("mistakes.txt").lines().collect();
    assert!(lines.len() >= 100, "{}", lines.len());
    let mut all = String::new();
    for line in lines {
        let outcome = outcome(directory, &hub.address, line);
        assert!(
            !outcome.contains("os error") && !outcome.contains("panicked"),
            "{line}: {outcome}"
        );
        writeln!(all, "$ maru {line}\n{outcome}").unwrap();
    }
    insta::assert_snapshot!("mistakes", all);
}
