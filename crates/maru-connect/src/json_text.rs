//! Changes JSON with comments, and keeps every other byte.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstRootNode},
};
use serde_json::Value;

use super::Error;

/// Sets the value under `path`, whose objects are made where they are missing.
pub(crate) fn set_member(text: &str, path: &[&str], value: &Value) -> Result<String, Error> {
    let root = parse(text)?;
    let Some((name, parents)) = path.split_last() else {
        return Ok(text.to_owned());
    };
    let shape = |name: &str| Error::Shape(name.to_owned());
    let mut object = root
        .object_value_or_create()
        .ok_or_else(|| shape("the whole file"))?;
    for parent in parents {
        let child = object.object_value_or_create(parent);
        object = child.ok_or_else(|| shape(parent))?;
    }
    match object.get(name) {
        Some(member)
            if member.value().and_then(|it| it.to_serde_value()).as_ref() == Some(value) => {}
        Some(member) => member.set_value(input_value(value)),
        None => {
            object.append(name, input_value(value));
        }
    }
    Ok(with_final_line_end(root.to_string()))
}

/// Replaces the element of the list whose `name` is the same, or appends `value`.
pub(crate) fn set_element(text: &str, value: &Value) -> Result<String, Error> {
    let root = parse(text)?;
    let list = root.array_value_or_create();
    let list = list.ok_or_else(|| Error::Shape("the whole file".to_owned()))?;
    list.ensure_multiline();
    let values = |it: &jsonc_parser::cst::CstNode| it.to_serde_value().unwrap_or_default();
    let same_name = |it: &jsonc_parser::cst::CstNode| values(it)["name"] == value["name"];
    match list.elements().into_iter().find(same_name) {
        Some(element) if values(&element) == *value => {}
        Some(element) => {
            let index = element.element_index().unwrap_or_default();
            element.remove();
            list.insert(index, input_value(value));
        }
        None => {
            list.append(input_value(value));
        }
    }
    Ok(with_final_line_end(root.to_string()))
}

fn parse(text: &str) -> Result<CstRootNode, Error> {
    let options = ParseOptions {
        allow_missing_commas: false,
        ..ParseOptions::default()
    };
    CstRootNode::parse(text, &options).map_err(|error| Error::Syntax {
        format: "JSON",
        message: error.to_string(),
    })
}

fn input_value(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(input_value).collect()),
        Value::Object(members) => {
            let members = members.iter();
            CstInputValue::Object(
                members
                    .map(|(name, it)| (name.clone(), input_value(it)))
                    .collect(),
            )
        }
    }
}

fn with_final_line_end(text: String) -> String {
    if text.ends_with('\n') {
        text
    } else {
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_order_and_other_members_stay() {
        let text = "{\n  // mine\n  \"theme\": \"dark\", /* why */\n  \"mcpServers\": {\n    \"git\": { \"command\": \"git-mcp\" }, // keep\n  },\n}\n";
        let merged = set_member(text, &["mcpServers", "maru"], &json!({"url": "u"})).unwrap();
        for kept in [
            "// mine",
            "/* why */",
            "// keep",
            "\"git\": { \"command\": \"git-mcp\" }",
        ] {
            assert!(merged.contains(kept), "{merged}");
        }
        let value = parse(&merged).unwrap().to_serde_value().unwrap();
        assert_eq!(value["mcpServers"]["maru"], json!({"url": "u"}));
        let again = set_member(&merged, &["mcpServers", "maru"], &json!({"url": "u"})).unwrap();
        assert_eq!(again, merged);
        let changed = set_member(&merged, &["mcpServers", "maru"], &json!({"url": "v"})).unwrap();
        let value = parse(&changed).unwrap().to_serde_value().unwrap();
        assert_eq!(value["mcpServers"]["maru"], json!({"url": "v"}));
        assert_eq!(value["mcpServers"]["git"], json!({"command": "git-mcp"}));
    }

    #[test]
    fn element_of_a_list_is_replaced_by_name() {
        let text = "[\n  // other\n  {\"name\": \"other\"},\n  {\"name\": \"maru\", \"x\": 1}\n]\n";
        let merged = set_element(text, &json!({"name": "maru", "x": 2})).unwrap();
        let value = parse(&merged).unwrap().to_serde_value().unwrap();
        assert_eq!(
            value,
            json!([{"name": "other"}, {"name": "maru", "x": 2}]),
            "{merged}"
        );
        assert!(merged.contains("// other"));
        let first = set_element("", &json!({"name": "maru"})).unwrap();
        assert_eq!(
            parse(&first).unwrap().to_serde_value().unwrap(),
            json!([{"name": "maru"}])
        );
    }

    #[test]
    fn file_of_another_shape_is_left_alone() {
        for text in [
            "[1]",
            "{\"mcpServers\": 5}",
            "{\"a\": 1 \"b\": 2}",
            "{\"a\"",
        ] {
            assert!(
                set_member(text, &["mcpServers", "maru"], &json!({})).is_err(),
                "{text}"
            );
        }
    }
}
