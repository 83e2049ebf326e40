//! The tools of a request. Deferred ones are offered once they are loaded, to models that
//! know nothing of `defer_loading`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::super::model_api::{ApiError, MAX_TOOLS};
use maru_llm::{ChatTool, ToolChoice};

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct OfferedTools {
    pub(super) offered: Vec<ChatTool>,
    /// Deferred tools that are not loaded: a call of one is understood all the same.
    pub(super) withheld: Vec<ChatTool>,
    /// Whether there were tools that only Anthropic's own models have.
    has_unknown: bool,
}

/// A tool of a client.
struct ClientTool {
    tool: ChatTool,
    is_deferred: bool,
}

/// Parses `tools`. Types that only Anthropic's own models have are skipped.
pub(super) fn parse_tools(
    given: Option<Value>,
    loaded: &HashSet<String>,
) -> Result<OfferedTools, ApiError> {
    let given = match given {
        None | Some(Value::Null) => return Ok(OfferedTools::default()),
        Some(Value::Array(given)) => given,
        Some(_) => return Err(ApiError::invalid("tools", "tools must be a list")),
    };
    if given.len() > MAX_TOOLS {
        let reason = format!("tools may have {MAX_TOOLS} entries at most");
        return Err(ApiError::invalid("tools", reason));
    }
    let mut all = OfferedTools::default();
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(given.len());
    for (at, tool) in given.into_iter().enumerate() {
        let invalid = |reason| ApiError::invalid(&format!("tools[{at}]"), reason);
        match parse_tool(tool).map_err(invalid)? {
            Some(tool) if !names.insert(tool.tool.name.clone()) => {
                return Err(invalid("two tools have the same name"));
            }
            Some(tool) => tools.push(tool),
            None => all.has_unknown = true,
        }
    }
    // Without a tool that searches, nothing would ever load the deferred ones.
    let can_load = tools
        .iter()
        .any(|it| !it.is_deferred && is_search_tool(&it.tool.name));
    for ClientTool { tool, is_deferred } in tools {
        if is_deferred && can_load && !loaded.contains(&tool.name) {
            all.withheld.push(tool);
        } else {
            all.offered.push(tool);
        }
    }
    Ok(all)
}

/// Whether a tool of the client loads others, as `ToolSearch` of Claude Code does.
fn is_search_tool(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['_', '-'], "");
    name.contains("toolsearch") || name.contains("searchtool")
}

fn parse_tool(given: Value) -> Result<Option<ClientTool>, &'static str> {
    let Value::Object(mut given) = given else {
        return Err("a tool must be an object");
    };
    match given.get("type").unwrap_or(&Value::Null) {
        Value::Null => (),
        Value::String(kind) if kind == "custom" => (),
        Value::String(_) => return Ok(None),
        _ => return Err("the type of a tool must be text"),
    }
    let name = match given.remove("name") {
        Some(Value::String(name)) if (1..=128).contains(&name.len()) => name,
        _ => return Err("a tool needs a name of 1 to 128 characters"),
    };
    let description = match given.remove("description") {
        Some(Value::String(text)) => text,
        None | Some(Value::Null) => String::new(),
        Some(_) => return Err("the description of a tool must be text"),
    };
    let Some(parameters @ Value::Object(_)) = given.remove("input_schema") else {
        return Err("the input_schema of a tool must be a JSON Schema");
    };
    let tool = ChatTool {
        name,
        prompt_name: None,
        description,
        parameters,
        other: Map::new(),
    };
    Ok(Some(ClientTool {
        tool,
        is_deferred: given.get("defer_loading") == Some(&Value::Bool(true)),
    }))
}

impl OfferedTools {
    /// Parses `tool_choice`. A tool that it names is offered.
    pub(super) fn choose(&mut self, given: Option<&Value>) -> Result<ToolChoice, ApiError> {
        let invalid = |reason: &str| Err(ApiError::invalid("tool_choice", reason));
        let given = match given {
            None | Some(Value::Null) => return Ok(ToolChoice::Auto),
            Some(given) => given,
        };
        match (given["type"].as_str(), given["name"].as_str()) {
            (Some("auto"), _) => Ok(ToolChoice::Auto),
            (Some("none"), _) => Ok(ToolChoice::None),
            (Some("any"), _) if !self.offered.is_empty() => Ok(ToolChoice::Required),
            (Some("any"), _) if self.has_unknown => Ok(ToolChoice::Auto),
            (Some("any"), _) => invalid("there are no tools to choose from"),
            (Some("tool"), Some(name)) => {
                if let Some(at) = self.withheld.iter().position(|it| it.name == name) {
                    self.offered.push(self.withheld.remove(at));
                }
                if self.offered.iter().any(|it| it.name == name) {
                    Ok(ToolChoice::Named(name.to_owned()))
                } else {
                    invalid("tool_choice names a tool that is not in tools")
                }
            }
            _ => invalid("the type of tool_choice must be auto, any, none, or tool with a name"),
        }
    }
}
