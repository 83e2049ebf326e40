//! Output held to a form of our own, so that even a very small model writes a
//! call that can be read.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{ChatTool, ToolChoice};

/// What output in our form means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConstrainedOutput {
    Answer(String),
    /// A call; the arguments are JSON text.
    Call {
        name: String,
        arguments: String,
    },
}

/// JSON Schema of the output: one object per tool, and one for an answer unless
/// the model must call.
pub(super) fn output_schema(tools: &[ChatTool], choice: &ToolChoice) -> Value {
    let wanted = tools.iter().filter(|it| match choice {
        ToolChoice::Named(name) => *name == it.name,
        _ => true,
    });
    let mut forms: Vec<Value> = wanted.map(call).collect();
    if *choice == ToolChoice::Auto {
        forms.push(object(&[("answer", json!({"type": "string"}))]));
    }
    match forms.len() {
        1 => forms.swap_remove(0),
        _ => json!({"anyOf": forms}),
    }
}

fn call(tool: &ChatTool) -> Value {
    let mut arguments = tool.parameters.clone();
    if arguments.get("type").is_none() {
        arguments = json!({"type": "object"});
    }
    let name = json!({"type": "string", "enum": [tool.name]});
    object(&[("name", name), ("arguments", arguments)])
}

fn object(members: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let members: serde_json::Map<String, Value> = members
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    json!({"type": "object", "properties": members, "required": names, "additionalProperties": false})
}

/// Reads output in our form; `None` if it is not.
pub(super) fn parse_output(text: &str) -> Option<ConstrainedOutput> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OutputForm<'a> {
        answer: Option<String>,
        name: Option<String>,
        #[serde(borrow)]
        arguments: Option<&'a RawValue>,
    }
    let form: OutputForm<'_> = serde_json::from_str(text.trim()).ok()?;
    match (form.answer, form.name, form.arguments) {
        (Some(answer), None, None) => Some(ConstrainedOutput::Answer(answer)),
        (None, Some(name), Some(arguments)) => Some(ConstrainedOutput::Call {
            name,
            arguments: arguments.get().to_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ChatTool {
        ChatTool {
            name: name.to_owned(),
            prompt_name: None,
            description: String::new(),
            parameters: json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
            other: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_model_that_must_call_cannot_answer() {
        let tools = [tool("one"), tool("two")];
        let free = output_schema(&tools, &ToolChoice::Auto);
        assert_eq!(free["anyOf"].as_array().unwrap().len(), 3);
        assert_eq!(free["anyOf"][2]["required"], json!(["answer"]));
        let must = output_schema(&tools, &ToolChoice::Required);
        assert_eq!(must["anyOf"].as_array().unwrap().len(), 2);
        let named = output_schema(&tools, &ToolChoice::Named("two".to_owned()));
        assert_eq!(named["properties"]["name"]["enum"], json!(["two"]));
    }

    #[test]
    fn only_our_own_form_is_read() {
        assert_eq!(
            parse_output(r#" {"answer":"hi\n"} "#),
            Some(ConstrainedOutput::Answer("hi\n".to_owned()))
        );
        assert_eq!(
            parse_output(r#"{"name":"one","arguments":{"a":1}}"#),
            Some(ConstrainedOutput::Call {
                name: "one".to_owned(),
                arguments: r#"{"a":1}"#.to_owned()
            })
        );
        for other in [
            "",
            "hi",
            "{}",
            r#"{"answer":1}"#,
            r#"{"name":"x"}"#,
            r#"{"answer":"a"#,
        ] {
            assert_eq!(parse_output(other), None, "{other}");
        }
    }
}
