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
