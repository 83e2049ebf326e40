//! Calls in the text, for clients that do not read `tool_calls`.

use serde_json::{Map, Value};

use crate::llm::ChatToolCall;

/// A tag per tool, a tag per argument inside.
pub(super) fn call_as_xml(call: &ChatToolCall) -> String {
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
pub(super) fn call_as_shell(call: &ChatToolCall) -> String {
    // JSON may stand on several lines, a command does not.
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
        "{fence}bash\nmaru call {end}{name} {}\n{fence}",
        shell_quote(&arguments)
    )
}

/// A name as one word of a shell.
fn shell_word(text: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'_' | b'-' | b'.' | b'/');
    if text.bytes().all(plain) {
        text.to_owned()
    } else {
        shell_quote(text)
    }
}

/// Any text as one word of a shell.
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
                let text = call_as_shell(&call(name, arguments));
                let lines: Vec<&str> = text.lines().collect();
                assert_eq!(lines.len(), 3, "{text}");
                let script = lines[1].replacen("maru call", "printf '%s\\n'", 1);
                let output = Command::new("sh").args(["-c", &script]).output().unwrap();
                let seen = String::from_utf8(output.stdout).unwrap();
                let seen: Vec<&str> = seen.lines().filter(|it| *it != "--").collect();
                assert_eq!(seen, [name, &arguments.replace('\n', " ")], "{text}");
            }
        }
    }
}
