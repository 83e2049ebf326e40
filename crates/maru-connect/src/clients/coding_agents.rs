//! Agents that work in a terminal.

use crate::{
    ClientFilePaths, ClientGuide, ConnectSection, FileFormat, HubTarget,
    guide::{command, environment, file, json_file},
    hub::quote_word,
};
use serde_json::{Value, json};

pub(super) fn claude_code(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"type": "http", "url": hub.mcp_url()}), "headers");
    let header = hub.authorization().map_or(String::new(), |it| {
        format!(" --header {}", quote_word(&format!("Authorization: {it}")))
    });
    let add = format!(
        "claude mcp add --scope user --transport http maru {}{header}",
        hub.mcp_url()
    );
    let variables = [
        ("ANTHROPIC_BASE_URL", hub.origin.as_str()),
        ("ANTHROPIC_AUTH_TOKEN", hub.api_key()),
        ("ANTHROPIC_MODEL", &hub.model),
        ("ANTHROPIC_SMALL_FAST_MODEL", &hub.model),
    ];
    let members = variables.map(|(name, value)| (vec!["env", name], json!(value)));
    let settings = ClientFilePaths::in_home(
        "~/.claude/settings.json",
        r"%USERPROFILE%\.claude\settings.json",
    );
    ClientGuide {
        id: "claude-code",
        title: "Claude Code",
        mcp: ConnectSection::new([
            command(add),
            json_file(
                ClientFilePaths::in_home("~/.claude.json", r"%USERPROFILE%\.claude.json"),
                [(vec!["mcpServers", "maru"], server)],
            ),
        ]),
        models: ConnectSection::new([
            environment(&variables, "claude"),
            json_file(settings, members),
        ]),
        traces: &["claude", "~/.claude", "~/.claude.json"],
    }
}

pub(super) fn codex(hub: &HubTarget) -> ClientGuide {
    let paths =
        ClientFilePaths::in_home("~/.codex/config.toml", r"%USERPROFILE%\.codex\config.toml");
    let file = |members: Vec<(Vec<&'static str>, Value)>| file(paths, FileFormat::Toml, members);
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "http_headers");
    let provider = json!({"name": "maru", "base_url": hub.openai_url(), "wire_api": "responses"});
    let provider = hub.with_headers(provider, "http_headers");
    ClientGuide {
        id: "codex",
        title: "Codex",
        mcp: ConnectSection::new([file(vec![(vec!["mcp_servers", "maru"], server)])]),
        models: ConnectSection::new([file(vec![
            (vec!["model"], json!(hub.model)),
            (vec!["model_provider"], json!("maru")),
            (vec!["model_providers", "maru"], provider),
        ])]),
        traces: &["codex", "~/.codex"],
    }
}

pub(super) fn gemini_cli(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"httpUrl": hub.mcp_url()}), "headers");
    ClientGuide {
        id: "gemini-cli",
        title: "Gemini CLI",
        mcp: ConnectSection::new([json_file(
            ClientFilePaths::in_home(
                "~/.gemini/settings.json",
                r"%USERPROFILE%\.gemini\settings.json",
            ),
            [(vec!["mcpServers", "maru"], server)],
        )]),
        models: ConnectSection::unsupported(
            "Gemini CLI uses only Google's API, which maru does not serve.",
            "Gemini CLI는 Google API만 사용하며, maru는 이 API를 제공하지 않습니다.",
        ),
        traces: &["gemini", "~/.gemini"],
    }
}
