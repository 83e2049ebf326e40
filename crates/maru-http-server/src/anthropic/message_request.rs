//! Parses requests: what models behind maru understand is checked and kept, the rest is
//! left out.

use serde_json::{Map, Value, json};

use super::super::model_api::{
    ApiError, ParsedRequest, check_members, check_numbers, parse_model, parse_stream,
};
use super::{
    content_blocks::parse_messages, message_writer::MessageWriter, offered_tools::parse_tools,
    token_count::estimate_request_tokens,
};
use maru_llm::ChatRequest;

/// Members that backends of the same API understand.
const ANTHROPIC_MEMBERS: [&str; 4] = ["thinking", "output_config", "metadata", "service_tier"];

/// Parses the body of `/v1/messages`.
pub(super) fn parse(body: Value) -> Result<ParsedRequest<MessageWriter>, ApiError> {
    let mut body = check_members(body)?;
    let model = parse_model(body.remove("model"))?;
    let stream = parse_stream(body.remove("stream").as_ref())?;
    check_numbers(&body)?;
    let parsed = parse_messages(body.remove("system"), body.remove("messages"))?;
    let mut tools = parse_tools(body.remove("tools"), &parsed.loaded_tools)?;
    let choice = body.remove("tool_choice");
    let tool_choice = tools.choose(choice.as_ref())?;
    let mut other = parse_options(&mut body)?;
    let is_single = choice.is_some_and(|it| it["disable_parallel_tool_use"] == true);
    if is_single {
        other.insert("parallel_tool_calls".to_owned(), false.into());
    }
    let anthropic_members: Map<String, Value> = ANTHROPIC_MEMBERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), body.remove(*name)?)))
        .collect();
    let request = ChatRequest {
        model,
        messages: parsed.messages,
        text_prompt: None,
        tools: tools.offered,
        described_tools: tools.withheld,
        tool_choice,
        other,
        anthropic_members,
    };
    let estimated_input = estimate_request_tokens(&request);
    let shows_thinking = shows_thinking(request.anthropic_members.get("thinking"));
    Ok(ParsedRequest {
        api: MessageWriter::new(&request.model, shows_thinking, estimated_input),
        request,
        stream,
    })
}

/// A client that does not ask for thinking expects the answer in the first block.
fn shows_thinking(thinking: Option<&Value>) -> bool {
    let thinking = thinking.unwrap_or(&Value::Null);
    matches!(thinking["type"].as_str(), Some("enabled" | "adaptive"))
        && thinking["display"] != "omitted"
}

/// The members that have an equivalent in the chat API.
fn parse_options(body: &mut Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    let mut other = Map::new();
    for name in ["max_tokens", "temperature", "top_p", "top_k"] {
        match body.remove(name) {
            None | Some(Value::Null) => (),
            Some(value) => {
                other.insert(name.to_owned(), value);
            }
        }
    }
    match body.remove("stop_sequences") {
        None | Some(Value::Null) => (),
        Some(Value::Array(texts)) if texts.iter().all(Value::is_string) => {
            if !texts.is_empty() {
                other.insert("stop".to_owned(), texts.into());
            }
        }
        Some(_) => {
            let reason = "stop_sequences must be a list of texts";
            return Err(ApiError::invalid("stop_sequences", reason));
        }
    }
    let format = body.get("output_config").map(|it| &it["format"]);
    let format = format
        .filter(|it| !it.is_null())
        .or(body.get("output_format"));
    if let Some(schema @ Value::Object(_)) = format.map(|it| &it["schema"]) {
        let format = json!({"name": "reply", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": format});
        other.insert("response_format".to_owned(), format);
    }
    Ok(other)
}
