//! Reads the input of a request: text, or items. Items of unknown types are skipped.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::super::model_api::{
    ApiError, AssistantItems, ConversationBuilder, MAX_MESSAGES, ResultContent, call_json,
    image_part, text_part,
};
use super::client_tools::{custom_arguments, function_name};
use maru_llm::ChatMessage;

/// Parses `instructions` and `input`.
pub(super) fn parse_input(
    instructions: Option<&Value>,
    given: Option<Value>,
) -> Result<Vec<ChatMessage>, ApiError> {
    let mut conversation = ConversationBuilder::default();
    match instructions {
        None | Some(Value::Null) => (),
        Some(Value::String(text)) => conversation.push_system(text),
        Some(_) => {
            return Err(ApiError::invalid(
                "instructions",
                "instructions must be text",
            ));
        }
    }
    match given {
        Some(Value::String(text)) => conversation.push_user(vec![text_part(text)]),
        Some(Value::Array(items)) if (1..=MAX_MESSAGES).contains(&items.len()) => {
            for (at, item) in items.into_iter().enumerate() {
                read_item(item, &mut conversation)
                    .map_err(|reason| ApiError::invalid(&format!("input[{at}]"), reason))?;
            }
        }
        Some(Value::Array(_)) => {
            let reason = format!("input must have 1 to {MAX_MESSAGES} items");
            return Err(ApiError::invalid("input", reason));
        }
        _ => {
            return Err(ApiError::invalid(
                "input",
                "input must be text or a list of items",
            ));
        }
    }
    Ok(conversation.finish())
}

fn read_item(item: Value, conversation: &mut ConversationBuilder) -> Result<(), &'static str> {
    let Value::Object(item) = item else {
        return Err("an item must be an object");
    };
    match text_member(&item, "type") {
        Some("message") => read_message(&item, conversation),
        None if item.contains_key("role") => read_message(&item, conversation),
        Some("function_call") => {
            let arguments = text_member(&item, "arguments").ok_or("arguments must be text")?;
            push_call(&item, arguments, conversation)
        }
        Some("custom_tool_call") => {
            let input = text_member(&item, "input").ok_or("input must be text")?;
            push_call(&item, &custom_arguments(input), conversation)
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let id = text_member(&item, "call_id").ok_or("call_id is missing")?;
            let output = item.get("output").unwrap_or(&Value::Null);
            conversation.push_result(id, read_output(output)?);
            Ok(())
        }
        Some("reasoning") => {
            conversation.push_assistant(read_reasoning(&item));
            Ok(())
        }
        Some("item_reference") => Err(
            "maru keeps no responses, so there is nothing to refer to; send the items themselves (store: false)",
        ),
        Some(_) => Ok(()),
        None => Err("an item needs a type"),
    }
}

fn read_message(
    item: &Map<String, Value>,
    conversation: &mut ConversationBuilder,
) -> Result<(), &'static str> {
    let parts = content_parts(item.get("content").unwrap_or(&Value::Null))?;
    match text_member(item, "role") {
        Some("user") => conversation.push_user(parts),
        Some("system" | "developer") => conversation.push_system(&joined_text(&parts, "\n\n")),
        Some("assistant") => conversation.push_assistant(AssistantItems {
            text: joined_text(&parts, ""),
            ..AssistantItems::default()
        }),
        _ => return Err("role must be user, assistant, system or developer"),
    }
    Ok(())
}

fn push_call(
    item: &Map<String, Value>,
    arguments: &str,
    conversation: &mut ConversationBuilder,
) -> Result<(), &'static str> {
    let (Some(id), Some(name)) = (text_member(item, "call_id"), text_member(item, "name")) else {
        return Err("a call needs call_id and name");
    };
    let name = function_name(text_member(item, "namespace"), name);
    conversation.push_assistant(AssistantItems {
        calls: vec![call_json(id, &name, arguments)],
        ..AssistantItems::default()
    });
    Ok(())
}

/// What a tool returned: text or parts. Other JSON is text.
fn read_output(output: &Value) -> Result<ResultContent, &'static str> {
    let mut content = ResultContent::default();
    match output {
        Value::String(_) | Value::Array(_) => {
            for part in content_parts(output)? {
                match part["text"].as_str() {
                    Some(text) => content.push_text(text),
                    None => content.images.push(part),
                }
            }
        }
        Value::Null => (),
        other => content.push_text(&other.to_string()),
    }
    Ok(content)
}

/// Reasoning that maru gave out, with the signatures of the backend.
fn read_reasoning(item: &Map<String, Value>) -> AssistantItems {
    let sealed = text_member(item, "encrypted_content").and_then(unpack_reasoning);
    if let Some((reasoning, reasoning_blocks)) = sealed {
        return AssistantItems {
            reasoning,
            reasoning_blocks,
            ..AssistantItems::default()
        };
    }
    let texts = |name: &str| -> Vec<&str> {
        let parts = item.get(name).and_then(Value::as_array);
        let parts = parts.map_or(&[][..], Vec::as_slice);
        parts.iter().filter_map(|it| it["text"].as_str()).collect()
    };
    let content = texts("content");
    let shown = if content.is_empty() {
        texts("summary")
    } else {
        content
    };
    AssistantItems {
        reasoning: shown.join("\n"),
        ..AssistantItems::default()
    }
}

const SEALED_REASONING_PREFIX: &str = "maru_";

/// Reasoning as the opaque text that clients send back.
pub(super) fn pack_reasoning(reasoning: &str, blocks: &[Value]) -> String {
    let content = serde_json::json!([reasoning, blocks]).to_string();
    format!("{SEALED_REASONING_PREFIX}{}", STANDARD.encode(content))
}

fn unpack_reasoning(packed: &str) -> Option<(String, Vec<Value>)> {
    let content = STANDARD
        .decode(packed.strip_prefix(SEALED_REASONING_PREFIX)?)
        .ok()?;
    // It comes from the client: strict JSON, and only what we write.
    let text = maru_protocol::validate_json(&content).ok()?;
    serde_json::from_str(text).ok()
}

/// Content as parts of a message.
fn content_parts(content: &Value) -> Result<Vec<Value>, &'static str> {
    match content {
        Value::String(text) => Ok(vec![text_part(text.as_str())]),
        Value::Array(parts) => {
            let mut read = Vec::with_capacity(parts.len());
            for part in parts {
                read.extend(content_part(part)?);
            }
            Ok(read)
        }
        _ => Err("content must be text or a list of parts"),
    }
}

fn content_part(part: &Value) -> Result<Option<Value>, &'static str> {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text") => {
            let text = part["text"].as_str().ok_or("a text part needs text")?;
            Ok(Some(text_part(text)))
        }
        Some("refusal") => Ok(part["refusal"].as_str().map(text_part)),
        Some("input_image") => match part["image_url"].as_str() {
            Some(url) => Ok(Some(image_part(url))),
            None => Err("an image needs image_url; maru keeps no files"),
        },
        Some("input_file") => {
            let name = part["filename"].as_str().unwrap_or("file");
            let note = format!("[{name} is left out: only text and images are read]");
            Ok(Some(text_part(note)))
        }
        Some(_) => Ok(None),
        None => Err("a part needs a type"),
    }
}

fn joined_text(parts: &[Value], gap: &str) -> String {
    let texts = parts.iter().filter_map(|it| it["text"].as_str());
    texts.collect::<Vec<_>>().join(gap)
}

fn text_member<'a>(item: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    item.get(name).and_then(Value::as_str)
}
