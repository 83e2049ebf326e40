//! Editors with an assistant.

use crate::{
    ClientFile, ClientFilePaths, ClientGuide, ConnectMethod, ConnectSection, FileFormat, HubTarget,
    file::FileMember,
    guide::{environment, json_file, settings},
    hub::encode_in_link,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;

use super::{ANSWER_TOKENS, CONTEXT_TOKENS, pretty};

pub(super) fn cursor(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn vscode(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn zed(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn void(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn continue_dev(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn windsurf(hub: &HubTarget) -> ClientGuide {
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

pub(super) fn jetbrains(hub: &HubTarget) -> ClientGuide {
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
