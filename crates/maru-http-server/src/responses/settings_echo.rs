//! The settings of a request, which each response repeats. Instructions and tools are not
//! repeated: they would be most of a stream.

use serde_json::{Map, Value, json};

/// The members of a response that repeat the request, as JSON without braces.
#[derive(Debug)]
pub(super) struct SettingsEcho(pub(super) String);

impl SettingsEcho {
    pub(super) fn new(body: &Map<String, Value>) -> Self {
        let given = |name: &str, default: Value| match body.get(name) {
            None | Some(Value::Null) => default,
            Some(value) => value.clone(),
        };
        let text = given("text", json!({"format": {"type": "text"}}));
        let members = json!({
            "background": false,
            "instructions": null,
            "max_output_tokens": given("max_output_tokens", Value::Null),
            "max_tool_calls": given("max_tool_calls", Value::Null),
            "parallel_tool_calls": given("parallel_tool_calls", true.into()),
            "previous_response_id": null,
            "reasoning": given("reasoning", json!({"effort": null, "summary": null})),
            "service_tier": "default",
            "store": false,
            "temperature": given("temperature", 1.0.into()),
            "text": text,
            "tool_choice": given("tool_choice", "auto".into()),
            "tools": [],
            "top_logprobs": 0,
            "top_p": given("top_p", 1.0.into()),
            "truncation": "disabled",
            "user": given("user", Value::Null),
            "metadata": given("metadata", json!({})),
        });
        let text = members.to_string();
        Self(text[1..text.len() - 1].to_owned())
    }
}
