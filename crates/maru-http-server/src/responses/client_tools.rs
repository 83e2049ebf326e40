//! The tools of a request. Models know only functions: those of a namespace are offered
//! one by one, and a custom tool is a function with one text. Calls get their form back.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::super::model_api::{ApiError, MAX_TOOLS};
use maru_llm::{ChatTool, ToolChoice};

/// The parameter of a custom tool.
const CUSTOM_INPUT: &str = "input";
/// The longest name of a function that every backend takes.
const MAX_FUNCTION_NAME: usize = 64;

/// The tools of a request.
#[derive(Debug, Default)]
pub(super) struct ClientTools {
    pub(super) offered: Vec<ChatTool>,
    /// Tools that are not plain functions, by the name that the model uses.
    origins: HashMap<String, ToolOrigin>,
    /// Whether there were tools of unknown types.
    has_unknown: bool,
}

/// What a tool is for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolOrigin {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) is_custom: bool,
}

impl ClientTools {
    /// Parses `tools`. Unknown types are skipped.
    pub(super) fn parse(given: Option<Value>) -> Result<Self, ApiError> {
        let given = match given {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::Array(given)) => given,
            Some(_) => return Err(ApiError::invalid("tools", "tools must be a list")),
        };
        let mut all = Self::default();
        for (at, tool) in given.into_iter().enumerate() {
            all.add(tool, None)
                .map_err(|reason| ApiError::invalid(&format!("tools[{at}]"), reason))?;
        }
        Ok(all)
    }

    fn add(&mut self, given: Value, namespace: Option<&str>) -> Result<(), String> {
        let Value::Object(mut given) = given else {
            return Err("a tool must be an object".to_owned());
        };
        let kind = given.remove("type");
        match kind.as_ref().and_then(Value::as_str) {
            Some("function") => self.add_function(given, namespace),
            Some("custom") => self.add_custom(given, namespace),
            Some("namespace") if namespace.is_none() => self.add_namespace(given),
            Some(_) => {
                self.has_unknown = true;
                Ok(())
            }
            None => Err("a tool needs a type".to_owned()),
        }
    }

    fn add_function(
        &mut self,
        mut given: Map<String, Value>,
        namespace: Option<&str>,
    ) -> Result<(), String> {
        let name = parse_name(&mut given)?;
        let description = parse_description(&mut given)?;
        let parameters = match given.remove("parameters") {
            Some(schema @ Value::Object(_)) => schema,
            None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
            Some(_) => return Err("the parameters of a function must be a JSON Schema".to_owned()),
        };
        let mut other = Map::new();
        if let Some(Value::Bool(strict)) = given.remove("strict") {
            other.insert("strict".to_owned(), strict.into());
        }
        let origin = ToolOrigin {
            name,
            namespace: namespace.map(str::to_owned),
            is_custom: false,
        };
        self.offer(origin, description, parameters, other)
    }

    /// The grammar of the input is told, not enforced.
    fn add_custom(
        &mut self,
        mut given: Map<String, Value>,
        namespace: Option<&str>,
    ) -> Result<(), String> {
        let name = parse_name(&mut given)?;
        let mut description = parse_description(&mut given)?;
        let format = given.remove("format").unwrap_or(Value::Null);
        // The Chat API, which some clients follow, nests it.
        let grammar = if format["grammar"].is_object() {
            &format["grammar"]
        } else {
            &format
        };
        if let Some(definition) = grammar["definition"].as_str() {
            let syntax = grammar["syntax"].as_str().unwrap_or("lark");
            description.push_str(&format!(
                "\n\nThe value of `{CUSTOM_INPUT}` must match this {syntax} grammar:\n{definition}"
            ));
        }
        let about = format!("The whole input of {name}, as plain text");
        let parameters = json!({
            "type": "object",
            "properties": {CUSTOM_INPUT: {"type": "string", "description": about}},
            "required": [CUSTOM_INPUT],
            "additionalProperties": false,
        });
        let origin = ToolOrigin {
            name,
            namespace: namespace.map(str::to_owned),
            is_custom: true,
        };
        self.offer(origin, description, parameters, Map::new())
    }

    fn add_namespace(&mut self, mut given: Map<String, Value>) -> Result<(), String> {
        let name = parse_name(&mut given)?;
        let Some(Value::Array(tools)) = given.remove("tools") else {
            return Err("a namespace needs tools".to_owned());
        };
        for tool in tools {
            self.add(tool, Some(&name))?;
        }
        Ok(())
    }

    fn offer(
        &mut self,
        origin: ToolOrigin,
        description: String,
        parameters: Value,
        other: Map<String, Value>,
    ) -> Result<(), String> {
        if self.offered.len() >= MAX_TOOLS {
            return Err(format!("tools may have {MAX_TOOLS} entries at most"));
        }
        let name = function_name(origin.namespace.as_deref(), &origin.name);
        if self.offered.iter().any(|it| it.name == name) {
            return Err("two tools have the same name".to_owned());
        }
        if origin.is_custom || origin.namespace.is_some() {
            self.origins.insert(name.clone(), origin);
        }
        self.offered.push(ChatTool {
            name,
            prompt_name: None,
            description,
            parameters,
            other,
        });
        Ok(())
    }

    /// Parses `tool_choice`. Of `allowed_tools` only those stay available.
    pub(super) fn choose(&mut self, given: Option<&Value>) -> Result<ToolChoice, ApiError> {
        let invalid = |reason: &str| Err(ApiError::invalid("tool_choice", reason));
        let given = match given {
            None | Some(Value::Null) => return Ok(ToolChoice::Auto),
            Some(given) => given,
        };
        match given["type"].as_str().or(given.as_str()) {
            Some("auto") => Ok(ToolChoice::Auto),
            Some("none") => Ok(ToolChoice::None),
            Some("required") if !self.offered.is_empty() => Ok(ToolChoice::Required),
            Some("required") if self.has_unknown => Ok(ToolChoice::Auto),
            Some("required") => invalid("there are no tools to choose from"),
            Some("function" | "custom") => match self.name_of(given) {
                Some(name) => Ok(ToolChoice::Named(name)),
                None => invalid("tool_choice names a tool that is not in tools"),
            },
            Some("allowed_tools") => {
                let allowed = given["tools"].as_array().map_or(&[][..], Vec::as_slice);
                let allowed: Vec<String> =
                    allowed.iter().filter_map(|it| self.name_of(it)).collect();
                self.offered.retain(|it| allowed.contains(&it.name));
                match given["mode"].as_str() {
                    Some("required") if !self.offered.is_empty() => Ok(ToolChoice::Required),
                    _ => Ok(ToolChoice::Auto),
                }
            }
            // Tools that OpenAI runs itself.
            Some(_) if given.is_object() => Ok(ToolChoice::Auto),
            _ => invalid("tool_choice must be auto, none, required or a tool of tools"),
        }
    }

    /// The offered tool that a choice names.
    fn name_of(&self, choice: &Value) -> Option<String> {
        let name = function_name(choice["namespace"].as_str(), choice["name"].as_str()?);
        self.offered
            .iter()
            .any(|it| it.name == name)
            .then_some(name)
    }

    /// What the tools are for the client, for the writer.
    pub(super) fn take_origins(&mut self) -> HashMap<String, ToolOrigin> {
        std::mem::take(&mut self.origins)
    }
}

impl ToolOrigin {
    /// A plain function.
    pub(super) fn function(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            namespace: None,
            is_custom: false,
        }
    }
}

/// The name that the model uses for a tool.
pub(super) fn function_name(namespace: Option<&str>, name: &str) -> String {
    let Some(namespace) = namespace else {
        return name.to_owned();
    };
    let gap = if namespace.ends_with("__") { "" } else { "__" };
    let full = format!("{namespace}{gap}{name}");
    if full.len() <= MAX_FUNCTION_NAME {
        return full;
    }
    // Names that only differ at their end stay different.
    let digest: String = Sha256::digest(full.as_bytes())
        .iter()
        .take(4)
        .map(|it| format!("{it:02x}"))
        .collect();
    let end = full.floor_char_boundary(MAX_FUNCTION_NAME - 1 - digest.len());
    format!("{}_{digest}", &full[..end])
}

/// The arguments of a call of a custom tool.
pub(super) fn custom_arguments(input: &str) -> String {
    json!({CUSTOM_INPUT: input}).to_string()
}

/// The input of a custom tool in the arguments that the model wrote.
pub(super) fn custom_input(arguments: &str) -> String {
    let Ok(Value::Object(members)) = serde_json::from_str(arguments) else {
        return arguments.to_owned();
    };
    let input = members.get(CUSTOM_INPUT).and_then(Value::as_str);
    // Some models name the parameter after the tool.
    let only = members.values().next().filter(|_| members.len() == 1);
    let input = input.or(only.and_then(Value::as_str));
    input.unwrap_or(arguments).to_owned()
}

fn parse_name(given: &mut Map<String, Value>) -> Result<String, String> {
    match given.remove("name") {
        Some(Value::String(name)) if (1..=128).contains(&name.len()) => Ok(name),
        _ => Err("a tool needs a name of 1 to 128 characters".to_owned()),
    }
}

fn parse_description(given: &mut Map<String, Value>) -> Result<String, String> {
    match given.remove("description") {
        Some(Value::String(text)) => Ok(text),
        None | Some(Value::Null) => Ok(String::new()),
        Some(_) => Err("the description of a tool must be text".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_namespace_are_short_and_different() {
        assert_eq!(function_name(None, "a"), "a");
        assert_eq!(function_name(Some("mcp__x"), "a"), "mcp__x__a");
        assert_eq!(function_name(Some("mcp__x__"), "a"), "mcp__x__a");
        let long = |end: &str| function_name(Some(&"가".repeat(30)), end);
        assert!(long("a").len() <= MAX_FUNCTION_NAME);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn custom_input_is_found_whatever_the_model_calls_it() {
        assert_eq!(custom_input(&custom_arguments("a\"b\n")), "a\"b\n");
        assert_eq!(custom_input(r#"{"patch":"x"}"#), "x");
        assert_eq!(custom_input(r#"{"a":"x","b":1}"#), r#"{"a":"x","b":1}"#);
    }
}
