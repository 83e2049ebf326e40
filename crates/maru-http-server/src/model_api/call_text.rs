//! Calls written into the text, for clients that do not read `tool_calls`.

use std::{collections::HashSet, sync::Arc};

use serde_json::{Map, Value};

use maru_connect::quote_word;
use maru_llm::{ChatResponse, ChatToolCall, FinishReason};

/// How calls reach a client.
#[derive(Clone, Debug)]
pub(super) enum CallOutput {
    /// As `tool_calls`.
    ToolCalls,
    /// In the text, a tag per tool.
    Xml,
    /// In the text, a command.
    Shell(ShellCommands),
}

/// Commands that call tools of this hub.
#[derive(Clone, Debug)]
pub(super) struct ShellCommands {
    /// The command line of `maru` for this hub.
    pub(super) program: Arc<str>,
    /// The tools that the hub has.
    pub(super) tools: Arc<HashSet<String>>,
}

impl CallOutput {
    /// The call as text; `None` if it goes out as one of `tool_calls`. A tool that the
    /// hub does not have is the client's own, who offered it and therefore reads those.
    pub(super) fn render(&self, call: &ChatToolCall) -> Option<String> {
        match self {
            Self::ToolCalls => None,
            Self::Xml => Some(call_as_xml(call)),
            Self::Shell(commands) => {
                let is_known = commands.tools.contains(&call.name);
                is_known.then(|| call_as_shell(&commands.program, call))
            }
        }
    }

    /// Moves the calls of a whole response that go out as text into its text.
    pub(super) fn apply(&self, response: &mut ChatResponse) {
        for call in std::mem::take(&mut response.calls) {
            match self.render(&call) {
                Some(text) => append_call_text(&mut response.text, &text),
                None => response.calls.push(call),
            }
        }
        let has_calls = !response.calls.is_empty();
        response.finish_reason = finish_reason(response.finish_reason, has_calls);
    }
}

fn append_call_text(text: &mut String, call: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n\n");
    }
    text.push_str(call);
    text.push('\n');
}

/// Calls in the text are text.
pub(super) fn finish_reason(finish: FinishReason, has_calls: bool) -> FinishReason {
    match finish {
        FinishReason::ToolCalls if !has_calls => FinishReason::Stop,
        finish => finish,
    }
}

/// A tag per tool, a tag per argument inside.
fn call_as_xml(call: &ChatToolCall) -> String {
    let arguments: Map<String, Value> =
        serde_json::from_str(&call.arguments).expect("arguments are an object");
    let mut text = format!("<{}>\n", call.name);
    for (name, value) in &arguments {
        let value = match value {
            Value::String(value) => value.clone(),
            value => value.to_string(),
        };
        text.push_str(&format!("<{name}>{value}</{name}>\n"));
    }
    text.push_str(&format!("</{}>", call.name));
    text
}

/// A fenced command that makes the call.
fn call_as_shell(program: &str, call: &ChatToolCall) -> String {
    // JSON may span several lines, a command does not.
    let arguments = maru_protocol::to_single_line(call.arguments.clone());
    let mut fence = "```".to_owned();
    while arguments.contains(&fence) {
        fence.push('`');
    }
    let name = quote_word(&call.name);
    let end = if call.name.starts_with('-') {
        "-- "
    } else {
        ""
    };
    format!(
        "{fence}bash\n{program} call {end}{name} {}\n{fence}",
        shell_quote(&arguments)
    )
}

/// Quotes any text for a shell.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn call(name: &str, arguments: &str) -> ChatToolCall {
        ChatToolCall {
            id: String::new(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            dialect: "native",
            repairs: Vec::new(),
            raw: String::new(),
            explicit: true,
            extra_content: None,
        }
    }

    #[test]
    fn a_call_is_a_tag_with_tags() {
        let call = call("read_file", r#"{"uri":"/a & <b>","lines":[1,2]}"#);
        assert_eq!(
            call_as_xml(&call),
            "<read_file>\n<uri>/a & <b></uri>\n<lines>[1,2]</lines>\n</read_file>"
        );
    }

    #[test]
    fn a_real_shell_sees_two_words_and_runs_nothing() {
        let hostile = [
            r#"{"text":"'; touch /tmp/maru_pwn; echo '$(touch /tmp/maru_pwn)`touch /tmp/maru_pwn`"}"#,
            r#"{"text":"```\nrm -rf /\n```"}"#,
            "{\n\"a\": \"'\"\n}",
            r#"{"a":"\\'\"!!*~"}"#,
        ];
        for arguments in hostile {
            for name in ["fx.echo", "a b; $(false)", "-x"] {
                let text = call_as_shell("maru", &call(name, arguments));
                let lines: Vec<&str> = text.lines().collect();
                assert_eq!(lines.len(), 3, "{text}");
                let script = lines[1].replacen("maru call", "printf '%s\\n'", 1);
                let output = Command::new("sh").args(["-c", &script]).output().unwrap();
                let words = String::from_utf8(output.stdout).unwrap();
                let words: Vec<&str> = words.lines().filter(|it| *it != "--").collect();
                assert_eq!(words, [name, &arguments.replace('\n', " ")], "{text}");
            }
        }
    }
}
