//! What the client answers when a server asks it.

use serde_json::{Value, json};

use crate::plan::example;

pub(crate) fn capabilities() -> Value {
    json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}})
}

/// The answer to one question, by its key.
pub(crate) fn to((key, request): (&String, &Value)) -> (String, Value) {
    let params = &request["params"];
    let answer = match request["method"].as_str() {
        Some("elicitation/create") => {
            json!({"action": "accept", "content": example(&params["requestedSchema"])})
        }
        Some("sampling/createMessage") => json!({
            "role": "assistant",
            "content": {"type": "text", "text": "yes"},
            "model": "example",
            "stopReason": "endTurn",
        }),
        _roots => json!({"roots": [{"uri": "file:///example", "name": "example"}]}),
    };
    (key.clone(), answer)
}
