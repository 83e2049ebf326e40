//! Servers as text for people.

use maru_runtime::clock;
use serde_json::Value;

use super::super::terminal::{self, text_of};

pub(super) fn format_servers(servers: &Value) -> String {
    if servers.as_array().is_some_and(Vec::is_empty) {
        return "no server is registered; see maru servers add --help\n".to_owned();
    }
    let header = ["NAME", "STATUS", "TOOLS", "TRANSPORT", "FROM", "NOTE"];
    terminal::table(&header, servers, |it| {
        let differs = it["differsFromFile"] == true;
        let note = if differs {
            "differs from maru.yaml "
        } else {
            ""
        };
        vec![
            text_of(it, "name"),
            text_of(it, "status"),
            text_of(it, "toolCount"),
            text_of(it, "transportType"),
            text_of(it, "origin"),
            format!("{note}{}", text_of(it, "cause")),
        ]
    })
}

/// The servers of a registry, each with the ways to add it.
pub(super) fn format_found(found: &Value) -> String {
    if found["isConfigured"] == false {
        return "no registry is set; see mcp.registry in the settings\n".to_owned();
    }
    let servers = found["servers"].as_array().into_iter().flatten();
    let shown: String = servers.map(format_found_server).collect();
    if shown.is_empty() {
        return "no server of the registry fits\n".to_owned();
    }
    shown
}

fn format_found_server(server: &Value) -> String {
    let [name, version, description, local_name] =
        ["name", "version", "description", "localName"].map(|it| text_of(server, it));
    let mut text = format!("{name} {version}\n  {description}\n");
    let entries = server["installations"].as_array().into_iter().flatten();
    for entry in entries.map(|it| &it["entry"]) {
        let texts = |of: &Value| -> Vec<String> {
            let all = of.as_array().into_iter().flatten();
            all.filter_map(Value::as_str)
                .map(terminal::quote_word)
                .collect()
        };
        let pairs = |of: &Value, option: &str, separator: &str| -> String {
            let all = of.as_object().into_iter().flatten();
            let words = all.map(|(name, value)| {
                let value = value.as_str().unwrap_or_default();
                format!(
                    " {option} {}",
                    terminal::quote_word(&format!("{name}{separator}{value}"))
                )
            });
            words.collect()
        };
        let how = match entry["url"].as_str() {
            Some(url) => format!(
                " --url {}{}",
                terminal::quote_word(url),
                pairs(&entry["headers"], "--header", ": ")
            ),
            None => format!(
                "{} -- {} {}",
                pairs(&entry["env"], "--env", "="),
                terminal::quote_word(&text_of(entry, "command")),
                texts(&entry["args"]).join(" ")
            ),
        };
        let local_name = terminal::quote_word(&local_name);
        text.push_str(&format!("  maru servers add {local_name}{how}\n"));
    }
    text
}

pub(super) fn format_status(server: &Value) -> String {
    let tools = if server["status"] == "CONNECTED" {
        let count = server["toolCount"].as_u64().unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        format!(", {}", terminal::count_of(count, "tool", "tools"))
    } else {
        String::new()
    };
    let cause = match text_of(server, "cause") {
        cause if cause.is_empty() => String::new(),
        cause => format!(": {cause}"),
    };
    let warning = match warnings(server) {
        warning if warning.is_empty() => warning,
        warning => format!("warning: {warning}\n"),
    };
    format!(
        "{} is {}{tools}{cause}\n{warning}",
        text_of(server, "name"),
        text_of(server, "status")
    )
}

pub(super) fn format_imported(entry: &Value) -> String {
    match entry.get("error") {
        Some(error) => format!(
            "{} is not imported: {}\n",
            text_of(entry, "name"),
            error.as_str().unwrap_or_default()
        ),
        None => {
            let mut server = entry.clone();
            server["name"] = entry["importedAs"].clone();
            format_status(&server)
        }
    }
}

fn warnings(server: &Value) -> String {
    let all = server["warnings"].as_array().into_iter().flatten();
    let all: Vec<&str> = all.filter_map(Value::as_str).collect();
    all.join("; ")
}

/// The resource usage of a server's program, with its limits.
fn format_program(program: &Value) -> String {
    let limit = |name: &str| match program["limits"][name].as_u64() {
        Some(limit) if name == "memoryBytes" => format!(" of {}", limit >> 20),
        Some(limit) => format!(" of {limit}"),
        None => String::new(),
    };
    let Some(memory) = program["memoryBytes"].as_u64() else {
        return String::new();
    };
    format!(
        "{}{} MiB of memory, {}{} processes, {}{} % of a core",
        memory >> 20,
        limit("memoryBytes"),
        program["processes"],
        limit("processes"),
        program["cpuPercent"],
        limit("cpuPercent"),
    )
}

/// The protocol version in use, and the required one.
fn format_protocol(server: &Value) -> String {
    let current = text_of(server, "protocolVersion");
    match server["requiredProtocolVersion"].as_str() {
        None => current,
        Some(required) if current.is_empty() => format!("requires {required}"),
        Some(required) => format!("{current} (requires {required})"),
    }
}

/// The attempts since the server was lost, and the time of the next one.
fn format_attempts(server: &Value) -> String {
    let attempts = server["attempts"].as_u64().unwrap_or_default();
    match server["nextAttemptAt"].as_i64() {
        Some(at) => format!("{attempts} made, next at {}", clock::format_rfc3339(at)),
        None if attempts > 0 => format!("{attempts} made, no more planned"),
        None => String::new(),
    }
}

pub(super) fn format_detail(server: &Value) -> String {
    let tools: Vec<&str> = server["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let rows = [
        ("name", text_of(server, "name")),
        ("status", text_of(server, "status")),
        ("cause", text_of(server, "cause")),
        ("warning", warnings(server)),
        ("program", format_program(&server["program"])),
        ("description", text_of(server, "description")),
        ("transport", text_of(server, "transportType")),
        ("config", text_of(server, "config")),
        ("protocol", format_protocol(server)),
        ("attempts", format_attempts(server)),
        ("changed tools", text_of(server, "trust")),
        ("connects at start", text_of(server, "autoConnect")),
        ("registered by", text_of(server, "origin")),
        ("tools", tools.join(", ")),
    ];
    let mut rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    for it in server["withheld"].as_array().into_iter().flatten() {
        rows.push(vec![
            "withheld".to_owned(),
            format!("{}: {}", text_of(it, "name"), text_of(it, "why")),
        ]);
        for change in it["differences"].as_array().into_iter().flatten() {
            let (before, now) = (text_of(change, "before"), text_of(change, "now"));
            rows.push(vec![
                String::new(),
                format!("  {} was: {before}", text_of(change, "at")),
            ]);
            rows.push(vec![
                String::new(),
                format!("  {} is now: {now}", text_of(change, "at")),
            ]);
        }
    }
    terminal::format_table(&rows)
}
