//! Calls written into the text, for clients that do not read `tool_calls`.

use std::{collections::HashSet, env, fs, path::Path, sync::Arc};

use serde_json::{Map, Value};

use maru_config::Config;
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

/// The command line that calls tools of the hub with this `config`: the full path of the
/// program, and the data directory unless it is the default.
pub(in super::super) fn maru_command(config: &Config) -> String {
    let own = || env::current_exe().ok().filter(|it| it.ends_with("maru"));
    // `/proc/self/exe` by its name.
    let program = config
        .warden
        .as_ref()
        .and_then(|it| fs::canonicalize(it).ok());
    let program = program.or_else(own);
    let program = program.as_deref().and_then(Path::to_str).unwrap_or("maru");
    let default = Config::default().data_dir;
    let default = default
        .strip_prefix("~")
        .ok()
        .and_then(|it| Some(Path::new(&env::var_os("HOME")?).join(it)));
    let mut command = shell_word(program);
    if default.as_ref() != Some(&config.data_dir) {
        let directory = std::path::absolute(&config.data_dir);
        let directory = directory.as_ref().unwrap_or(&config.data_dir);
        command.push_str(" --data-dir ");
        command.push_str(&shell_word(&directory.to_string_lossy()));
    }
    command
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
    let name = shell_word(&call.name);
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

/// Quotes a name for a shell.
fn shell_word(text: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.' | b'/');
    if text.bytes().all(plain) {
        text.to_owned()
    } else {
        shell_quote(text)
    }
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

    #[test]
    fn command_names_the_data_directory_of_its_hub() {
        let config = Config {
            warden: Some("/bin/sh".into()),
            data_dir: "/tmp/a b".into(),
            ..Config::default()
        };
        let command = maru_command(&config);
        assert!(command.starts_with('/'), "{command}");
        assert!(command.ends_with(" --data-dir '/tmp/a b'"), "{command}");
        let home = env::var_os("HOME").unwrap();
        let default = Config {
            data_dir: Path::new(&home).join(".local/share/maru"),
            ..config
        };
        assert!(!maru_command(&default).contains("--data-dir"));
    }
}
