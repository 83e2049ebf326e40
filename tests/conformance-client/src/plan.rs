//! Arguments for tools that nobody has seen before.

use serde_json::{Map, Value, json};

/// A call of every tool. One that asks for a schema gets that of its neighbour.
pub(crate) fn calls(tools: &[Value]) -> Vec<(String, Value)> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let call = |tool: &Value| {
        let mut arguments = example(&tool["inputSchema"]);
        if let Some(schema) = arguments.get_mut("schema") {
            let neighbour = tools.iter().find(|it| it["name"] != tool["name"]);
            *schema = neighbour.map_or(Value::Null, |it| it["inputSchema"].clone());
        }
        (name(tool), arguments)
    };
    tools.iter().map(call).collect()
}

/// A value that fits `schema`: its default, or the plainest there is.
pub(crate) fn example(schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    match schema["type"].as_str() {
        Some("object") => {
            let members = schema["properties"].as_object().into_iter().flatten();
            let members = members.map(|(name, it)| (name.clone(), example(it)));
            members.collect::<Map<_, _>>().into()
        }
        Some("number" | "integer") => json!(1),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        _ => json!("example"),
    }
}
