//! Applications for chats.

use crate::{
    ClientFilePaths, ClientGuide, ConnectSection, HubTarget,
    guide::{environment, json_file, settings},
    hub::encode_in_link,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

pub(super) fn claude_desktop(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn open_webui(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn lm_studio(hub: &HubTarget) -> ClientGuide {
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

/// Clients that know only Ollama's API: they find the hub where Ollama would be.
pub(super) fn ollama(hub: &HubTarget) -> ClientGuide {
    let mut variables = vec![("OLLAMA_HOST", hub.origin.as_str())];
    variables.extend(hub.token.as_deref().map(|it| ("OLLAMA_API_KEY", it)));
    let fields = format!("Address  {}\nModel    {}", hub.origin, hub.model);
    ClientGuide {
        id: "ollama",
        title: "Clients of Ollama",
        mcp: ConnectSection::unsupported(
            "Ollama's API has no place for the tools of a hub; a model named agent/… uses them.",
            "Ollama API로는 허브의 도구를 제공할 수 없지만, agent/…라는 이름의 모델은 도구를 사용합니다.",
        ),
        models: ConnectSection::new([
            environment(&variables, ""),
            settings("Address of Ollama", "Ollama 주소", &fields),
        ])
        .with_note(
            "For a client that knows no address but port 11434, see \"Clients of Ollama\" in docs/models.md.",
            "포트 11434만 사용하는 클라이언트는 docs/models.md의 \"Clients of Ollama\"를 참고하세요.",
        ),
        traces: &["ollama", "~/.ollama"],
    }
}
