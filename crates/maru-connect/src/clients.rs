//! The table of clients.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    ClientFile, ClientFilePaths, ClientGuide, ConnectMethod, ConnectSection, FileFormat, HubTarget,
    file::FileMember,
    guide::{command, environment, file, json_file, settings},
    hub::{encode_in_link, quote_word},
};

/// The context that clients may fill when they cannot ask the hub for the model's.
const CONTEXT_TOKENS: u32 = 32_768;
const ANSWER_TOKENS: u32 = 8_192;

type GuideOf = fn(&HubTarget) -> ClientGuide;

const CLIENTS: [(&str, GuideOf); 15] = [
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

fn claude_code(hub: &HubTarget) -> ClientGuide {
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

fn claude_desktop(hub: &HubTarget) -> ClientGuide {
    let paths = ClientFilePaths {
        linux: "~/.config/Claude/claude_desktop_config.json",
        macos: "~/Library/Application Support/Claude/claude_desktop_config.json",
        windows: r"%APPDATA%\Claude\claude_desktop_config.json",
    };
    let section = ConnectSection::new([json_file(
        paths,
        [(vec!["mcpServers", "maru"], hub.stdio_server())],
    )]);
    ClientGuide {
        id: "claude-desktop",
        title: "Claude Desktop",
        mcp: section.with_note(
            "Quit Claude Desktop and start it again.",
            "Claude Desktop을 종료한 뒤 다시 시작하세요.",
        ),
        models: ConnectSection::unsupported(
            "Claude Desktop uses only Anthropic's models.",
            "Claude Desktop은 Anthropic 모델만 사용합니다.",
        ),
        traces: &[
            "~/.config/Claude",
            "~/Library/Application Support/Claude",
            r"%APPDATA%\Claude",
        ],
    }
}

fn codex(hub: &HubTarget) -> ClientGuide {
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

fn cursor(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "headers");
    let link = format!(
        "cursor://anysphere.cursor-deeplink/mcp/install?name=maru&config={}",
        encode_in_link(&BASE64_STANDARD.encode(server.to_string()))
    );
    let section = ConnectSection::new([json_file(
        ClientFilePaths::in_home("~/.cursor/mcp.json", r"%USERPROFILE%\.cursor\mcp.json"),
        [(vec!["mcpServers", "maru"], server)],
    )]);
    ClientGuide {
        id: "cursor",
        title: "Cursor",
        mcp: section.with_link(link),
        models: ConnectSection::new([settings(
            "Settings, Models, API Keys: Override OpenAI Base URL",
            "설정, Models, API Keys: Override OpenAI Base URL",
            &hub.openai_fields(),
        )])
        .with_note(
            "Cursor sends these requests from its own servers, so the address must be reachable from the internet over https.",
            "Cursor는 자체 서버에서 요청을 보내므로 인터넷에서 https로 접근할 수 있는 주소여야 합니다.",
        ),
        traces: &["cursor", "~/.cursor"],
    }
}

fn vscode(hub: &HubTarget) -> ClientGuide {
    let server = json!({"type": "http", "url": hub.mcp_url()});
    let server = hub.with_headers(server, "headers");
    let mut named = json!({"name": "maru"});
    for (name, value) in server.as_object().into_iter().flatten() {
        named[name] = value.clone();
    }
    let link = format!("vscode:mcp/install?{}", encode_in_link(&named.to_string()));
    let provider = json!({
        "name": "maru",
        "vendor": "customendpoint",
        "apiKey": hub.api_key(),
        "apiType": "chat-completions",
        "models": [{
            "id": hub.model,
            "name": format!("{} (maru)", hub.model),
            "url": format!("{}/chat/completions", hub.openai_url()),
            "toolCalling": true,
            "vision": false,
            "maxInputTokens": CONTEXT_TOKENS,
            "maxOutputTokens": ANSWER_TOKENS,
        }],
    });
    let models = ClientFile {
        paths: ClientFilePaths {
            linux: "~/.config/Code/User/chatLanguageModels.json",
            macos: "~/Library/Application Support/Code/User/chatLanguageModels.json",
            windows: r"%APPDATA%\Code\User\chatLanguageModels.json",
        },
        format: FileFormat::Jsonc,
        members: vec![FileMember::Element(provider)],
    };
    let section = ConnectSection::new([json_file(
        ClientFilePaths {
            linux: "~/.config/Code/User/mcp.json",
            macos: "~/Library/Application Support/Code/User/mcp.json",
            windows: r"%APPDATA%\Code\User\mcp.json",
        },
        [(vec!["servers", "maru"], server)],
    )]);
    ClientGuide {
        id: "vscode",
        title: "VS Code",
        mcp: section.with_link(link).with_note(
            "For one project, put the same members into .vscode/mcp.json.",
            "한 프로젝트에서만 쓰려면 같은 내용을 .vscode/mcp.json에 넣으세요.",
        ),
        models: ConnectSection::new([ConnectMethod::File(models)]).with_note(
            "Needs the chat extension. Reload the window, then choose the model.",
            "채팅 확장이 필요합니다. 창을 다시 불러온 뒤 모델을 고르세요.",
        ),
        traces: &[
            "code",
            "~/.config/Code",
            "~/Library/Application Support/Code",
            r"%APPDATA%\Code",
        ],
    }
}

fn zed(hub: &HubTarget) -> ClientGuide {
    let paths = ClientFilePaths {
        linux: "~/.config/zed/settings.json",
        macos: "~/.config/zed/settings.json",
        windows: r"%APPDATA%\Zed\settings.json",
    };
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "headers");
    let provider = json!({
        "api_url": hub.openai_url(),
        "available_models": [{
            "name": hub.model,
            "display_name": format!("{} (maru)", hub.model),
            "max_tokens": CONTEXT_TOKENS,
            "max_output_tokens": ANSWER_TOKENS,
            "capabilities": {"tools": true, "images": false, "parallel_tool_calls": true, "prompt_cache_key": false},
        }],
    });
    let models = [(
        vec!["language_models", "openai_compatible", "maru"],
        provider,
    )];
    ClientGuide {
        id: "zed",
        title: "Zed",
        mcp: ConnectSection::new([json_file(
            paths,
            [(vec!["context_servers", "maru"], server)],
        )]),
        models: ConnectSection::new([
            json_file(paths, models),
            environment(&[("MARU_API_KEY", hub.api_key())], "zed"),
        ])
        .with_note(
            "Both are needed: Zed reads the key from the environment, or from its settings page.",
            "둘 다 필요합니다. Zed는 키를 환경 변수나 설정 화면에서 읽습니다.",
        ),
        traces: &["zed", "zeditor", "~/.config/zed", r"%APPDATA%\Zed"],
    }
}

fn void(hub: &HubTarget) -> ClientGuide {
    let paths = ClientFilePaths::in_home(
        "~/.void-editor/mcp.json",
        r"%USERPROFILE%\.void-editor\mcp.json",
    );
    // Void sends no headers, so a hub that requires a token is reached through a program.
    let server = match &hub.token {
        None => json!({"url": hub.mcp_url()}),
        Some(_) => hub.stdio_server(),
    };
    ClientGuide {
        id: "void",
        title: "Void",
        mcp: ConnectSection::new([json_file(paths, [(vec!["mcpServers", "maru"], server)])]),
        models: ConnectSection::new([settings(
            "Settings, Models: OpenAI-Compatible",
            "설정, Models: OpenAI-Compatible",
            &hub.openai_fields(),
        )]),
        traces: &["void", "~/.void-editor"],
    }
}

fn continue_dev(hub: &HubTarget) -> ClientGuide {
    let header = "version: 0.0.1\nschema: v1\n";
    let mut server = format!(
        "name: maru\n{header}mcpServers:\n  - name: maru\n    type: streamable-http\n    url: {}\n",
        json!(hub.mcp_url())
    );
    if let Some(authorization) = hub.authorization() {
        server.push_str(&format!(
            "    requestOptions:\n      headers:\n        Authorization: {}\n",
            json!(authorization)
        ));
    }
    let models = format!(
        "name: maru models\n{header}models:\n  - name: {}\n    provider: openai\n    model: {}\n    apiBase: {}\n    apiKey: {}\n    roles: [chat, edit, apply]\n    capabilities: [tool_use]\n",
        json!(format!("{} (maru)", hub.model)),
        json!(hub.model),
        json!(hub.openai_url()),
        json!(hub.api_key()),
    );
    let own_file = |unix, windows, text| {
        ConnectMethod::File(ClientFile {
            paths: ClientFilePaths::in_home(unix, windows),
            format: FileFormat::Yaml,
            members: vec![FileMember::Text(text)],
        })
    };
    ClientGuide {
        id: "continue",
        title: "Continue",
        mcp: ConnectSection::new([own_file(
            "~/.continue/mcpServers/maru.yaml",
            r"%USERPROFILE%\.continue\mcpServers\maru.yaml",
            server,
        )])
        .with_note(
            "Continue uses tools in its agent mode only.",
            "Continue는 에이전트 모드에서만 도구를 사용합니다.",
        ),
        models: ConnectSection::new([own_file(
            "~/.continue/models/maru.yaml",
            r"%USERPROFILE%\.continue\models\maru.yaml",
            models,
        )]),
        traces: &["cn", "~/.continue"],
    }
}

fn open_webui(hub: &HubTarget) -> ClientGuide {
    let (auth, key) = match &hub.token {
        Some(token) => ("bearer", token.as_str()),
        None => ("none", ""),
    };
    let connection = json!([{
        "type": "mcp",
        "url": hub.mcp_url(),
        "path": "",
        "auth_type": auth,
        "key": key,
        "config": {"enable": true},
        "info": {"id": "maru", "name": "maru", "description": "Tools of maru"},
    }]);
    let fields = match &hub.token {
        Some(token) => format!(
            "Type  MCP (Streamable HTTP)\nURL   {}\nAuth  Bearer\nKey   {token}",
            hub.mcp_url()
        ),
        None => format!(
            "Type  MCP (Streamable HTTP)\nURL   {}\nAuth  None",
            hub.mcp_url()
        ),
    };
    let note = (
        "In a container, 127.0.0.1 is the container itself: use the address of this machine, such as host.docker.internal, and a token.",
        "컨테이너 안의 127.0.0.1은 컨테이너 자신입니다. host.docker.internal 같은 이 컴퓨터의 주소와 토큰을 쓰세요.",
    );
    let openai = [
        ("OPENAI_API_BASE_URL", hub.openai_url()),
        ("OPENAI_API_KEY", hub.api_key().to_owned()),
    ];
    let openai = openai
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    ClientGuide {
        id: "open-webui",
        title: "Open WebUI",
        mcp: ConnectSection::new([
            settings(
                "Admin Panel, Settings, External Tools, +",
                "관리자 패널, 설정, 외부 도구, +",
                &fields,
            ),
            environment(
                &[("TOOL_SERVER_CONNECTIONS", &connection.to_string())],
                "open-webui serve",
            ),
        ])
        .with_note(note.0, note.1),
        models: ConnectSection::new([
            settings(
                "Admin Panel, Settings, Connections, OpenAI API, +",
                "관리자 패널, 설정, 연결, OpenAI API, +",
                &hub.openai_fields(),
            ),
            environment(&openai, "open-webui serve"),
        ])
        .with_note(note.0, note.1),
        traces: &["open-webui"],
    }
}

fn gemini_cli(hub: &HubTarget) -> ClientGuide {
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

fn windsurf(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"serverUrl": hub.mcp_url()}), "headers");
    ClientGuide {
        id: "windsurf",
        title: "Windsurf",
        mcp: ConnectSection::new([json_file(
            ClientFilePaths::in_home(
                "~/.codeium/windsurf/mcp_config.json",
                r"%USERPROFILE%\.codeium\windsurf\mcp_config.json",
            ),
            [(vec!["mcpServers", "maru"], server)],
        )]),
        models: ConnectSection::unsupported(
            "Windsurf takes no models from other addresses.",
            "Windsurf는 다른 주소의 모델을 받지 않습니다.",
        ),
        traces: &["windsurf", "~/.codeium/windsurf"],
    }
}

fn lm_studio(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "headers");
    let link = format!(
        "lmstudio://add_mcp?name=maru&config={}",
        encode_in_link(&BASE64_STANDARD.encode(server.to_string()))
    );
    ClientGuide {
        id: "lm-studio",
        title: "LM Studio",
        mcp: ConnectSection::new([json_file(
            ClientFilePaths::in_home("~/.lmstudio/mcp.json", r"%USERPROFILE%\.lmstudio\mcp.json"),
            [(vec!["mcpServers", "maru"], server)],
        )])
        .with_link(link),
        models: ConnectSection::unsupported(
            "LM Studio serves models itself. To use them in maru, add base_url http://127.0.0.1:1234/v1 under models in maru.yaml.",
            "LM Studio는 모델을 직접 제공합니다. maru에서 쓰려면 maru.yaml의 models에 base_url http://127.0.0.1:1234/v1을 추가하세요.",
        ),
        traces: &["lms", "~/.lmstudio"],
    }
}

fn jetbrains(hub: &HubTarget) -> ClientGuide {
    let server = hub.with_headers(json!({"url": hub.mcp_url()}), "headers");
    ClientGuide {
        id: "jetbrains",
        title: "JetBrains IDEs",
        mcp: ConnectSection::new([settings(
            "Settings, Tools, AI Assistant, Model Context Protocol (MCP), Add, Streamable HTTP",
            "설정, Tools, AI Assistant, Model Context Protocol (MCP), 추가, Streamable HTTP",
            &pretty(&json!({"mcpServers": {"maru": server}})),
        )]),
        models: ConnectSection::new([settings(
            "Settings, Tools, AI Assistant, Models: OpenAI-compatible",
            "설정, Tools, AI Assistant, Models: OpenAI-compatible",
            &hub.openai_fields(),
        )]),
        traces: &[
            "idea",
            "pycharm",
            "webstorm",
            "~/.config/JetBrains",
            "~/Library/Application Support/JetBrains",
        ],
    }
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
