//! Parses requests: what models behind maru understand is checked and kept, the rest is
//! left out.

use serde_json::{Map, Value, json};

use super::super::model_api::{
    ApiError, ParsedRequest, check_members, check_numbers, parse_model, parse_stream,
};
use super::{
    client_tools::ClientTools, input_items::parse_input, response_writer::ResponseWriter,
    settings_echo::SettingsEcho,
};
use maru_llm::ChatRequest;

/// Members that need a service with a memory.
const STATEFUL_MEMBERS: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// Parses the body of `/v1/responses`.
pub(super) fn parse(body: Value) -> Result<ParsedRequest<ResponseWriter>, ApiError> {
    let mut body = check_members(body)?;
    let model = parse_model(body.remove("model"))?;
    let stream = parse_stream(body.remove("stream").as_ref())?;
    refuse_state(&body)?;
    check_numbers(&body)?;
    let input = body.remove("input");
    let messages = parse_input(body.get("instructions"), input)?;
    let mut tools = ClientTools::parse(body.remove("tools"))?;
    let tool_choice = tools.choose(body.get("tool_choice"))?;
    let include = body.get("include").and_then(Value::as_array);
    let seals_reasoning =
        include.is_some_and(|it| it.iter().any(|it| it == "reasoning.encrypted_content"));
    let api = ResponseWriter::new(
        &model,
        SettingsEcho::new(&body),
        tools.take_origins(),
        seals_reasoning,
    );
    Ok(ParsedRequest {
        api,
        request: ChatRequest {
            model,
            messages,
            text_prompt: None,
            tools: tools.offered,
            described_tools: Vec::new(),
            tool_choice,
            other: parse_options(body)?,
            anthropic_members: Map::new(),
        },
        stream,
    })
}

fn refuse_state(body: &Map<String, Value>) -> Result<(), ApiError> {
    let given = |name: &&&str| body.get(**name).is_some_and(|it| !it.is_null());
    if let Some(name) = STATEFUL_MEMBERS.iter().find(given) {
        let reason = format!(
            "{name} is not supported: maru keeps no responses; send the whole conversation as input"
        );
        return Err(ApiError::invalid(name, reason));
    }
    if body.get("background") == Some(&Value::Bool(true)) {
        let reason = "background is not supported: maru keeps no responses";
        return Err(ApiError::invalid("background", reason));
    }
    Ok(())
}

/// The members that have an equivalent in the chat API.
fn parse_options(mut body: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    const NAMES: [(&str, &str); 6] = [
        ("max_output_tokens", "max_tokens"),
        ("temperature", "temperature"),
        ("top_p", "top_p"),
        ("presence_penalty", "presence_penalty"),
        ("frequency_penalty", "frequency_penalty"),
        ("parallel_tool_calls", "parallel_tool_calls"),
    ];
    let mut other = Map::new();
    for (given, ours) in NAMES {
        match body.remove(given) {
            None | Some(Value::Null) => (),
            Some(value) => {
                other.insert(ours.to_owned(), value);
            }
        }
    }
    let parallel = other.get("parallel_tool_calls");
    if parallel.is_some_and(|it| !it.is_boolean()) {
        let reason = "parallel_tool_calls must be true or false";
        return Err(ApiError::invalid("parallel_tool_calls", reason));
    }
    if let Some(effort @ Value::String(_)) = body.get("reasoning").map(|it| &it["effort"]) {
        other.insert("reasoning_effort".to_owned(), effort.clone());
    }
    let format = body.remove("text").unwrap_or(Value::Null)["format"].take();
    match format["type"].as_str() {
        Some("json_schema") => {
            if !format["schema"].is_object() {
                let reason = "text.format needs a schema";
                return Err(ApiError::invalid("text.format", reason));
            }
            let name = format["name"].as_str().unwrap_or("reply");
            let mut schema = json!({"name": name, "schema": format["schema"]});
            if format["strict"].is_boolean() {
                schema["strict"] = format["strict"].clone();
            }
            let format = json!({"type": "json_schema", "json_schema": schema});
            other.insert("response_format".to_owned(), format);
        }
        Some("json_object") => {
            other.insert("response_format".to_owned(), format);
        }
        Some("text") => (),
        None if format.is_null() => (),
        _ => {
            let reason = "the type of text.format must be text, json_schema or json_object";
            return Err(ApiError::invalid("text.format", reason));
        }
    }
    Ok(other)
}
