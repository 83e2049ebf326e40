//! The table of clients.

mod chat_apps;
mod coding_agents;
mod editors;

use serde_json::{Value, json};

use super::{
    ClientGuide, ConnectSection, HubTarget,
    guide::{command, environment, settings},
    hub::quote_word,
};

/// The context that clients may fill when they cannot ask the hub for the model's.
const CONTEXT_TOKENS: u32 = 32_768;
const ANSWER_TOKENS: u32 = 8_192;

use chat_apps::{claude_desktop, lm_studio, ollama, open_webui};
use coding_agents::{claude_code, codex, gemini_cli};
use editors::{continue_dev, cursor, jetbrains, void, vscode, windsurf, zed};

type GuideOf = fn(&HubTarget) -> ClientGuide;

const CLIENTS: [(&str, GuideOf); 16] = [
    ("claude-code", claude_code),
    ("claude-desktop", claude_desktop),
    ("codex", codex),
    ("cursor", cursor),
    ("vscode", vscode),
    ("zed", zed),
    ("void", void),
    ("continue", continue_dev),
    ("open-webui", open_webui),
    ("gemini-cli", gemini_cli),
    ("windsurf", windsurf),
    ("lm-studio", lm_studio),
    ("jetbrains", jetbrains),
    ("ollama", ollama),
    ("other", other),
    ("curl", curl),
];

/// How every client is connected to `hub`.
pub fn client_guides(hub: &HubTarget) -> Vec<ClientGuide> {
    CLIENTS.iter().map(|(_, guide)| guide(hub)).collect()
}

/// The names that `maru connect` takes.
pub fn client_ids() -> impl Iterator<Item = &'static str> {
    CLIENTS.iter().map(|(id, _)| *id)
}

fn other(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "headers");
    let openai = [
        ("OPENAI_BASE_URL", hub.openai_url()),
        ("OPENAI_API_KEY", hub.api_key().to_owned()),
    ];
    let openai = openai
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    ClientGuide {
        id: "other",
        title: "Other clients",
        mcp: ConnectSection::new([
            settings(
                "Clients that take a URL",
                "URL을 받는 클라이언트",
                &pretty(&json!({"mcpServers": {"maru": server}})),
            ),
            settings(
                "Clients that start a program",
                "프로그램을 시작하는 클라이언트",
                &pretty(&json!({"mcpServers": {"maru": hub.stdio_server()}})),
            ),
        ])
        .with_note(
            "Clients that support only HTTP+SSE use the path /sse instead of /mcp.",
            "HTTP+SSE만 지원하는 클라이언트는 /mcp 대신 /sse를 사용합니다.",
        ),
        models: ConnectSection::new([
            settings(
                "OpenAI-compatible clients",
                "OpenAI 호환 클라이언트",
                &hub.openai_fields(),
            ),
            environment(&openai, ""),
        ]),
        traces: &[],
    }
}

fn curl(hub: &HubTarget) -> ClientGuide {
    let header = hub.authorization().map_or(String::new(), |it| {
        format!("  -H {} \\\n", quote_word(&format!("authorization: {it}")))
    });
    let request = |path: &str, body: Value| {
        command(format!(
            "curl -s {}{path} \\\n  -H 'content-type: application/json' \\\n{header}  -d {}",
            hub.origin,
            quote_word(&body.to_string())
        ))
    };
    let question = json!({"model": hub.model, "messages": [{"role": "user", "content": "hello"}]});
    ClientGuide {
        id: "curl",
        title: "curl",
        mcp: ConnectSection::new([request(
            "/sse",
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        )]),
        models: ConnectSection::new([request("/v1/chat/completions", question)]),
        traces: &["curl"],
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectMethod;

    fn hub(token: Option<&str>) -> HubTarget {
        HubTarget {
            origin: "http://127.0.0.1:20006".to_owned(),
            program: Some(vec![
                "/opt/ma ru/maru".to_owned(),
                "--data-dir".to_owned(),
                "/srv/maru".to_owned(),
            ]),
            token: token.map(str::to_owned),
            model: "qwen3:8b".to_owned(),
        }
    }

    /// What a person reads, without the escapes of JSON.
    fn shown(hub: &HubTarget) -> String {
        let section = |out: &mut String, name: &str, section: &ConnectSection| {
            out.push_str(&format!("## {name}\n"));
            for method in &section.methods {
                let (place, text) = match method {
                    ConnectMethod::File(file) => (file.paths.linux, file.text()),
                    ConnectMethod::Command { text } => ("command", text.clone()),
                    ConnectMethod::Environment { text } => ("environment", text.clone()),
                    ConnectMethod::Settings { place, text } => (place.en, text.clone()),
                };
                out.push_str(&format!("{place}:\n{text}\n"));
            }
            if let Some(link) = &section.install_link {
                out.push_str(&format!("{link}\n"));
            }
        };
        let mut out = String::new();
        for guide in client_guides(hub) {
            out.push_str(&format!("# {}\n", guide.title));
            section(&mut out, "MCP", &guide.mcp);
            section(&mut out, "Models", &guide.models);
        }
        out
    }

    #[test]
    fn every_client_has_its_own_format() {
        insta::assert_snapshot!("guides", shown(&hub(None)));
        insta::assert_snapshot!("guides_with_token", shown(&hub(Some("maru_t"))));
    }

    #[test]
    fn table_and_guides_have_the_same_names() {
        let ids: Vec<_> = client_guides(&hub(None)).iter().map(|it| it.id).collect();
        assert_eq!(ids, client_ids().collect::<Vec<_>>());
    }

    #[test]
    fn every_file_is_merged_once() {
        for guide in client_guides(&hub(Some("maru_t"))) {
            for file in [guide.mcp.file(), guide.models.file()]
                .into_iter()
                .flatten()
            {
                let text = file.text();
                assert!(!text.is_empty(), "{}", guide.id);
                assert!(file.is_merged(&text), "{}: {text}", guide.id);
            }
        }
    }
}
