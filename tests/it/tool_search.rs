//! How well `find_tools` finds, on the wire: with questions of a third party and of our own,
//! with and without an embedding model.

use std::{fs, sync::Arc};

use maru::tools::{CatalogEntry, CatalogEntryKind};
use serde_json::{Value, json};

use crate::{
    retrieval::services::EmbeddingServer, suite_fixture::text_tool, test_hub::TestHub,
    toolsets::call,
};

fn read_data(name: &str) -> String {
    let path = format!(
        "{}/tests/data/toolsearch/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::read_to_string(path).unwrap()
}

/// Adds described tools to the hub, as if they were its own.
fn publish(hub: &TestHub, tools: &Value) {
    let entries = tools.as_array().unwrap().iter().map(|tool| {
        let parameters = tool["parameters"].as_array().into_iter().flatten();
        let properties = parameters.map(|it| (it.as_str().unwrap().to_owned(), json!({})));
        let described = json!({
            "name": tool["name"], "description": tool["description"],
            "inputSchema": {"type": "object", "properties": Value::from_iter(properties)},
        });
        let unused = Arc::new(|_| unreachable!("tools are only found"));
        CatalogEntry::builtin(CatalogEntryKind::Tool, described, unused)
    });
    hub.publish(&entries.collect::<Vec<_>>());
}

async fn found(hub: &TestHub, question: &str) -> Vec<String> {
    let asked = json!({"query": question});
    let found = call(hub, "/mcp?tools=search", None, "find_tools", asked).await;
    let tools = &found["result"]["structuredContent"]["tools"];
    let names = tools.as_array().expect("found tools").iter();
    names
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The part of the questions whose tool is among the five found.
async fn recall(hub: &TestHub, questions: &[(String, String)]) -> f64 {
    let mut hits = 0_u32;
    for (question, tool) in questions {
        hits += u32::from(found(hub, question).await.contains(tool));
    }
    f64::from(hits) / questions.len() as f64
}

fn questions_of_a_third_party() -> Vec<(String, String)> {
    let questions = read_data("questions.jsonl");
    let pairs = questions.lines().map(|line| {
        let question: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| question[name].as_str().unwrap().to_owned();
        (text("query"), text("tool"))
    });
    pairs.collect()
}

async fn hub_with_model(model: &EmbeddingServer, mode: &str) -> TestHub {
    let endpoint = model.settings(mode);
    TestHub::with_config(|config| {
        config.embedding.url = Some(endpoint.url.clone());
        config.embedding.model = Some(endpoint.model.clone());
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_a_third_party_find_their_tool_without_a_model() {
    let hub = TestHub::start().await;
    publish(
        &hub,
        &serde_json::from_str(&read_data("tools.json")).unwrap(),
    );
    let recall = recall(&hub, &questions_of_a_third_party()).await;
    println!("recall at 5 through find_tools, without a model: {recall:.3}");
    assert!(recall >= 0.62, "{recall}");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_a_third_party_find_their_tool_with_a_model() {
    let model = EmbeddingServer::start_minilm().await;
    let hub = hub_with_model(&model, "embeddings").await;
    publish(
        &hub,
        &serde_json::from_str(&read_data("tools.json")).unwrap(),
    );
    let recall = recall(&hub, &questions_of_a_third_party()).await;
    println!("recall at 5 through find_tools, with MiniLM: {recall:.3}");
    assert!(recall >= 0.78, "{recall}");
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_in_english_and_korean_find_one_of_66_tools() {
    let office: Value = serde_json::from_str(&read_data("office.json")).unwrap();
    let hub = TestHub::start().await;
    publish(&hub, &office["tools"]);
    let mut missed = Vec::new();
    let questions = office["questions"].as_array().unwrap();
    for asked in questions {
        let found = found(&hub, asked["question"].as_str().unwrap()).await;
        if !found.iter().any(|it| *it == asked["tool"]) {
            missed.push(format!("{asked}: {found:?}"));
        }
    }
    // 12 of 13.
    assert!(missed.len() * 13 <= questions.len(), "{missed:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_embedded_once_and_again_when_they_change() {
    let model = EmbeddingServer::start().await;
    let hub = hub_with_model(&model, "embeddings").await;
    let texts = async || model.counts().await["texts"].as_u64().unwrap();
    hub.publish(&[text_tool("one", "1"), text_tool("two", "2")]);
    let before = texts().await;
    found(&hub, "something").await;
    assert_eq!(texts().await, before + 3, "two tools and the question");
    found(&hub, "something else").await;
    assert_eq!(texts().await, before + 4, "the question");
    hub.publish(&[text_tool("one", "1"), text_tool("three", "3")]);
    found(&hub, "something").await;
    assert_eq!(texts().await, before + 6, "a tool and the question");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_found_by_words_while_the_model_fails() {
    let model = EmbeddingServer::start().await;
    let hub = hub_with_model(&model, "broken").await;
    assert_eq!(found(&hub, "remote work rules").await[0], "search_docs");
    let requests = model.counts().await["requests"].clone();
    assert_ne!(requests, 0);
    // It is not asked again at once.
    assert_eq!(found(&hub, "remote work rules").await[0], "search_docs");
    assert_eq!(model.counts().await["requests"], requests);
}
