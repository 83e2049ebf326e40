//! Results of tools: how large they may be, and how they are read.

use std::sync::Arc;

use maru::tools::{CatalogEntry, EntryResponse, EntryResult};
use serde_json::{Value, json};

use crate::{
    suite_fixture,
    test_hub::{TestHub, call_message},
};

const MAX_OUTPUT_CHARS: usize = 1000;

fn sized_results() -> [(&'static str, Value); 5] {
    let text = |length| json!([{"type": "text", "text": "가".repeat(length)}]);
    let image =
        json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(2 * MAX_OUTPUT_CHARS)});
    let [small, large] =
        [10, 2 * MAX_OUTPUT_CHARS].map(|length| json!({"rows": "x".repeat(length)}));
    [
        ("short", json!({"content": text(MAX_OUTPUT_CHARS)})),
        ("long", json!({"content": text(2 * MAX_OUTPUT_CHARS)})),
        (
            "image",
            json!({"content": [{"type": "text", "text": "a plot"}, image]}),
        ),
        (
            "small",
            json!({"content": text(2 * MAX_OUTPUT_CHARS), "structuredContent": small}),
        ),
        (
            "large",
            json!({"content": text(2 * MAX_OUTPUT_CHARS), "structuredContent": large}),
        ),
    ]
}

/// A hub with a tool for each of the results.
async fn hub_with_limit(limit: Option<usize>) -> TestHub {
    let hub =
        TestHub::with_config(|config| config.mcp.security.max_tool_output_length = limit).await;
    let offers = sized_results().map(|(name, result)| fixed_tool(name, result.to_string()));
    hub.publish(&offers);
    hub
}

/// A tool that always returns this JSON text.
fn fixed_tool(name: &str, json: String) -> Arc<CatalogEntry> {
    suite_fixture::tool(name, json!({}), move |_| {
        let result = EntryResult::parse(json.clone());
        async move { Ok(EntryResponse::Complete(result)) }
    })
}

#[tokio::test]
async fn limit_of_the_settings_holds_for_every_caller() {
    let hub = hub_with_limit(Some(MAX_OUTPUT_CHARS)).await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    for (name, whole) in sized_results() {
        let answer = hub
            .session_request(&session, &call_message(1, name, json!({})))
            .send()
            .await;
        let over_session = answer.rpc_response().await["result"].clone();
        let params = json!({"name": name, "arguments": {}});
        let modern = hub.stateless_request("tools/call", params).send().await;
        let mut modern = modern.rpc_response().await["result"].clone();
        assert_eq!(modern["resultType"].take(), "complete");
        let path = format!("/api/tools/{name}/call");
        let over_rest = hub
            .send_as_admin("POST", &path, json!({"arguments": {}}))
            .await;
        let over_rest = over_rest.json().await["result"].clone();
        for result in [&over_session, &modern, &over_rest] {
            let text = result["content"][0]["text"].as_str().unwrap();
            assert!(text.chars().count() <= MAX_OUTPUT_CHARS, "{name}");
            let structure = whole.get("structuredContent").filter(|_| name == "small");
            assert_eq!(result.get("structuredContent"), structure, "{name}");
            match name {
                "short" => assert_eq!(result["content"], whole["content"]),
                "image" => {
                    assert_eq!((text, &result["isError"]), ("a plot", &json!(true)));
                    let note = result["content"][1]["text"].as_str().unwrap();
                    assert!(note.contains("left out: image of 20"), "{note}");
                }
                "large" => {
                    assert_eq!(result["isError"], true);
                    let note = result["content"][1]["text"].as_str().unwrap();
                    assert!(note.contains("left out: structure of 20"), "{note}");
                }
                _ => {
                    assert!(text.contains("of 2000 characters shown; ask for less]"));
                    assert_ne!(result["isError"], true);
                }
            }
        }
    }
}

#[tokio::test]
async fn result_is_complete_by_default() {
    let hub = hub_with_limit(None).await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    for (name, whole) in sized_results() {
        let answer = hub
            .session_request(&session, &call_message(1, name, json!({})))
            .send()
            .await;
        let result = answer.rpc_response().await["result"].clone();
        assert_eq!(result["content"], whole["content"], "{name}");
        assert_eq!(
            result.get("structuredContent"),
            whole.get("structuredContent")
        );
    }
}

/// A result is what its own members say, however they are written and whatever is inside.
#[tokio::test]
async fn tool_error_is_read_from_the_results_own_members() {
    let results = [
        (
            "nested",
            r#"{"content": [], "structuredContent": {"step": {"isError": true}}}"#,
            "ok",
        ),
        (
            "quoted",
            r#"{"content":[{"type":"text","text":"server quoted did not answer: x"}],"isError" : true}"#,
            "failed",
        ),
        (
            "spaced",
            r#"{"content": [], "structuredContent" : {"rows": [1]}, "isError" : false}"#,
            "ok",
        ),
    ];
    let hub = TestHub::start().await;
    hub.publish(&results.map(|(name, json, _)| fixed_tool(name, json.to_owned())));
    // Clients of this version take structure that is an object only.
    let session = hub.initialize_session("2025-06-18", json!({})).await;
    for (name, json, outcome) in results {
        let message = call_message(1, name, json!({}));
        let answer = hub.session_request(&session, &message).send().await;
        let answer = answer.rpc_response().await;
        let expected: Value = serde_json::from_str(json).unwrap();
        assert_eq!(answer["result"], expected, "{name}");
        let path = format!("/api/calls?tool={name}");
        let calls = hub
            .send_as_admin("GET", &path, Value::Null)
            .await
            .json()
            .await;
        assert_eq!(calls["calls"][0]["outcome"], outcome, "{name}: {calls}");
    }
}

/// Clients check structured content against the output schema, also of a failed call:
/// what maru itself says of a failure must not be refused by them.
#[tokio::test]
async fn failure_of_a_tool_with_an_output_schema_fits_the_schema() {
    let hub = TestHub::start().await;
    let listed = hub.stateless_request("tools/list", json!({})).send().await;
    let listed = listed.rpc_response().await["result"]["tools"].clone();
    for tool in listed.as_array().unwrap() {
        let schema = jsonschema::validator_for(&tool["outputSchema"]).unwrap();
        assert!(!schema.is_valid(&json!([])), "{tool}");
        let params = json!({"name": tool["name"], "arguments": {"no such argument": 1}});
        let answer = hub.stateless_request("tools/call", params).send().await;
        let result = answer.rpc_response().await["result"].clone();
        assert_eq!(result["isError"], true, "{result}");
        if let Some(structure) = result.get("structuredContent") {
            assert!(schema.is_valid(structure), "{tool}: {structure}");
        }
    }
}

/// Versions before 2025-06-18 know neither output schemas nor structured content. What a
/// tool returns as structure alone they get as text.
#[tokio::test]
async fn version_without_structured_output_gets_text_alone() {
    for (version, is_known) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-06-18", true),
        ("2025-11-25", true),
    ] {
        let hub = TestHub::start().await;
        let session = hub.initialize_session(version, json!({})).await;
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let listed = hub.session_request(&session, &list).send().await;
        let listed = listed.rpc_response().await["result"]["tools"].clone();
        for tool in listed.as_array().unwrap() {
            assert_eq!(tool.get("outputSchema").is_some(), is_known, "{version}");
        }
        let message = call_message(2, "serialize_for_cell", json!({"data": "a\u{a0}b"}));
        let answer = hub.session_request(&session, &message).send().await;
        let result = answer.rpc_response().await["result"].clone();
        assert_eq!(result["content"][0]["text"], "a b", "{version}");
        assert_eq!(result.get("structuredContent").is_some(), is_known);
        let only = json!({"content": [], "structuredContent": {"rows": [1]}});
        hub.publish(&[fixed_tool("only", only.to_string())]);
        let message = call_message(3, "only", json!({}));
        let answer = hub.session_request(&session, &message).send().await;
        let result = answer.rpc_response().await["result"].clone();
        let text = (!is_known).then_some("{\"rows\":[1]}");
        assert_eq!(result["content"][0]["text"].as_str(), text, "{version}");
    }
}
