//! Parses requests of clients: what maru must understand is checked, the rest is passed
//! on.

use serde_json::{Map, Value};

use super::{
    super::model_api::{
        ApiError, MAX_MESSAGES, MAX_TOOLS, ParsedRequest, check_members, check_numbers,
        parse_model, parse_stream,
    },
    ChatCompletionWriter,
};
use maru_llm::{ChatMessage, ChatRequest, ChatRole, ChatTool, ToolChoice};

/// Parses the body of `/v1/chat/completions`.
pub(super) fn parse(body: Value) -> Result<ParsedRequest<ChatCompletionWriter>, ApiError> {
    let mut body = check_members(body)?;
    let model = parse_model(body.remove("model"))?;
    let messages = parse_messages(body.remove("messages"))?;
    let tools = parse_tools(body.remove("tools"))?;
    let choice = parse_tool_choice(body.remove("tool_choice"), &tools)?;
    let stream = parse_stream(body.remove("stream").as_ref())?;
    check_numbers(&body)?;
    let parallel = body.get("parallel_tool_calls").unwrap_or(&Value::Null);
    if !parallel.is_null() && !parallel.is_boolean() {
        let name = "parallel_tool_calls";
        return Err(ApiError::invalid(
            name,
            format!("{name} must be true or false"),
        ));
    }
    let usage = body
        .get("stream_options")
        .is_some_and(|it| it["include_usage"] == true);
    Ok(ParsedRequest {
        api: ChatCompletionWriter::new(&model, usage),
        request: ChatRequest {
            model,
            messages,
            text_prompt: None,
            tools,
            described_tools: Vec::new(),
            tool_choice: choice,
            other: body,
            anthropic_members: Map::new(),
        },
        stream,
    })
}

/// The messages of a conversation, or what is wrong with them.
pub(in super::super) fn parse_conversation(given: Value) -> Result<Vec<ChatMessage>, String> {
    parse_messages(Some(given)).map_err(|invalid| invalid.message)
}

fn parse_messages(given: Option<Value>) -> Result<Vec<ChatMessage>, ApiError> {
    let Some(Value::Array(given)) = given else {
        return Err(ApiError::invalid("messages", "messages must be a list"));
    };
    if given.is_empty() || given.len() > MAX_MESSAGES {
        let reason = format!("messages must have 1 to {MAX_MESSAGES} entries");
        return Err(ApiError::invalid("messages", reason));
    }
    let read = given.into_iter().enumerate().map(|(at, it)| {
        parse_message(it).map_err(|reason| ApiError::invalid(&format!("messages[{at}]"), reason))
    });
    read.collect()
}

fn parse_message(given: Value) -> Result<ChatMessage, &'static str> {
    let Value::Object(mut members) = given else {
        return Err("a message must be an object");
    };
    let role = match members.remove("role").as_ref().and_then(Value::as_str) {
        Some("system") => ChatRole::System,
        Some("developer") => ChatRole::Developer,
        Some("user") => ChatRole::User,
        Some("assistant") => ChatRole::Assistant,
        Some("tool") => ChatRole::Tool,
        _ => return Err("role must be system, developer, user, assistant or tool"),
    };
    let content = members.get("content").unwrap_or(&Value::Null);
    match (role, content) {
        (_, Value::String(_)) => (),
        (_, Value::Array(parts)) if parts.iter().all(Value::is_object) => (),
        (ChatRole::Assistant, Value::Null) => (),
        // Results of other kinds are written out as JSON later.
        (ChatRole::Tool, _) => (),
        _ => return Err("content must be text or a list of parts"),
    }
    if role == ChatRole::Tool && !members.get("tool_call_id").is_some_and(Value::is_string) {
        return Err("a message of the role tool needs tool_call_id");
    }
    let calls = members.get("tool_calls").unwrap_or(&Value::Null);
    if calls.is_null() || calls.is_array() {
        Ok(ChatMessage {
            role,
            extra_members: members,
            written: None,
        })
    } else {
        Err("tool_calls must be a list")
    }
}

fn parse_tools(given: Option<Value>) -> Result<Vec<ChatTool>, ApiError> {
    let given = match given {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(given)) => given,
        Some(_) => return Err(ApiError::invalid("tools", "tools must be a list")),
    };
    if given.len() > MAX_TOOLS {
        let reason = format!("tools may have {MAX_TOOLS} entries at most");
        return Err(ApiError::invalid("tools", reason));
    }
    let mut tools: Vec<ChatTool> = Vec::with_capacity(given.len());
    for (at, it) in given.into_iter().enumerate() {
        let param = format!("tools[{at}]");
        let tool = parse_tool(it).map_err(|reason| ApiError::invalid(&param, reason))?;
        if tools.iter().any(|it| it.name == tool.name) {
            return Err(ApiError::invalid(&param, "two tools have the same name"));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn parse_tool(given: Value) -> Result<ChatTool, &'static str> {
    let Value::Object(mut given) = given else {
        return Err("a tool must be an object");
    };
    let Some(Value::Object(mut function)) = given.remove("function") else {
        return Err("only tools of the type function are known");
    };
    let name = match function.remove("name") {
        Some(Value::String(name)) if (1..=128).contains(&name.len()) => name,
        _ => return Err("a function needs a name of 1 to 128 characters"),
    };
    let description = match function.remove("description") {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => String::new(),
        Some(_) => return Err("the description of a function must be text"),
    };
    let parameters = match function.remove("parameters") {
        Some(schema @ Value::Object(_)) => schema,
        None | Some(Value::Null) => serde_json::json!({"type": "object", "properties": {}}),
        Some(_) => return Err("the parameters of a function must be a JSON Schema"),
    };
    Ok(ChatTool {
        name,
        prompt_name: None,
        description,
        parameters,
        other: function,
    })
}

fn parse_tool_choice(given: Option<Value>, tools: &[ChatTool]) -> Result<ToolChoice, ApiError> {
    let invalid = |reason: &str| Err(ApiError::invalid("tool_choice", reason));
    let given = match given {
        None | Some(Value::Null) => return Ok(ToolChoice::Auto),
        Some(given) => given,
    };
    match (given.as_str(), given["function"]["name"].as_str()) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required" | "any"), _) if tools.is_empty() => {
            invalid("there are no tools to choose from")
        }
        (Some("required" | "any"), _) => Ok(ToolChoice::Required),
        (None, Some(name)) if tools.iter().any(|it| it.name == name) => {
            Ok(ToolChoice::Named(name.to_owned()))
        }
        (None, Some(_)) => invalid("tool_choice names a tool that is not in tools"),
        _ => invalid("tool_choice must be auto, none, required or a function of tools"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(change: impl Into<Value>, expected: Option<&str>) {
        let change: Value = change.into();
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        let found = parse(body).err().and_then(|it| it.param);
        assert_eq!(found.as_deref(), expected, "{change}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        check(json!({}), None);
        check(json!({"model": 5}), Some("model"));
        check(json!({"messages": []}), Some("messages"));
        check(
            json!({"messages": [{"role": "root", "content": "x"}]}),
            Some("messages[0]"),
        );
        check(
            json!({"messages": [{"role": "tool", "content": "x"}]}),
            Some("messages[0]"),
        );
        check(json!({"messages": [{"role": "user"}]}), Some("messages[0]"));
        check(
            json!({"messages": [{"role": "assistant", "content": null}]}),
            None,
        );
        check(json!({"stream": "yes"}), Some("stream"));
        check(json!({"max_tokens": -1}), Some("max_tokens"));
        check(json!({"temperature": "hot"}), Some("temperature"));
        check(json!({"n": 2}), Some("n"));
        check(
            json!({"api_base": "http://169.254.169.254/"}),
            Some("api_base"),
        );
        check(
            json!({"tools": [{"type": "function", "function": {"name": "a"}}]}),
            None,
        );
        check(json!({"tools": [{"type": "custom"}]}), Some("tools[0]"));
        check(json!({"tool_choice": "required"}), Some("tool_choice"));
        check(json!({"guided_choice": ["a"], "top_k": 3}), None);
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "x", "name": "n"}],
            "stream": true, "stream_options": {"include_usage": true}, "min_p": 0.1});
        let parsed = parse(body).unwrap();
        assert!(parsed.stream && parsed.api.wants_usage());
        assert_eq!(parsed.request.other["min_p"], 0.1);
        assert_eq!(parsed.request.messages[0].extra_members["name"], "n");
    }
}
