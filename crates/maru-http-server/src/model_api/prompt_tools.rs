//! Tools that a client describes in its instructions, a tag per tool, as Void
//! and the older Cline and Roo do:
//!
//! ```text
//! <read_file>
//! <uri>The FULL path to the file.</uri>
//! </read_file>
//! ```

use serde_json::{Map, Value, json};

use maru_llm::{ChatMessage, ChatRole, ChatTool};

const MAX_PROMPT_TOOLS: usize = 128;
const MAX_TAG_BYTES: usize = 64;

/// Every tool that the instructions describe.
pub(super) fn find_prompt_tools(messages: &[ChatMessage]) -> Vec<ChatTool> {
    let is_system = |it: &&ChatMessage| matches!(it.role, ChatRole::System | ChatRole::Developer);
    let mut tools: Vec<ChatTool> = Vec::new();
    for message in messages.iter().filter(is_system) {
        for tool in parse_text(&message.text_content()) {
            if tools.len() < MAX_PROMPT_TOOLS && !tools.iter().any(|it| it.name == tool.name) {
                tools.push(tool);
            }
        }
    }
    tools
}

fn parse_text(text: &str) -> Vec<ChatTool> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut tools = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        match parse_block(&lines[at..]) {
            Some((tool, length)) => {
                tools.push(tool);
                at += length;
            }
            None => at += 1,
        }
    }
    tools
}

/// A tool that begins with the first line, and how many lines it takes.
fn parse_block(lines: &[&str]) -> Option<(ChatTool, usize)> {
    let name = opening_tag(lines.first()?)?;
    let close = format!("</{name}>");
    let end = lines.iter().take(200).position(|it| *it == close)?;
    let mut members = Map::new();
    for line in &lines[1..end] {
        let Some((tag, rest)) = line.strip_prefix('<').and_then(|it| it.split_once('>')) else {
            continue;
        };
        if is_name(tag) {
            let about = rest.split("</").next().unwrap_or_default();
            let about = json!({"type": "string", "description": about});
            members.entry(tag).or_insert(about);
        }
    }
    let tool = ChatTool {
        name: name.to_owned(),
        prompt_name: None,
        description: String::new(),
        parameters: json!({"type": "object", "properties": Value::Object(members)}),
        other: Map::new(),
    };
    Some((tool, end + 1))
}

fn opening_tag(line: &str) -> Option<&str> {
    let name = line.strip_prefix('<')?.strip_suffix('>')?;
    is_name(name).then_some(name)
}

fn is_name(text: &str) -> bool {
    text.len() <= MAX_TAG_BYTES
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || it == b'_' || it == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_of_a_prompt_are_found() {
        let text = "Available tools:\n\n  1. read_file\n  Description: Returns a file.\n  Format:\n  <read_file>\n  <uri>The path.</uri>\n  <start_line>Optional.</start_line>\n  </read_file>\n\n  2. ls_dir\n  <ls_dir>\n  </ls_dir>\n\nUse <b>tags</b>.\n<open>\nnever closed";
        let tools = find_prompt_tools(&[ChatMessage::text(ChatRole::System, text)]);
        let names: Vec<&str> = tools.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["read_file", "ls_dir"]);
        let members = tools[0].parameters["properties"].as_object().unwrap();
        assert_eq!(members.keys().collect::<Vec<_>>(), ["uri", "start_line"]);
        assert_eq!(members["uri"]["description"], "The path.");
    }
}
