//! How tool calls reach a client: chosen by the header, by the model or by the caller.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use serde_json::{Map, Value};

use super::{
    super::HubState,
    ApiError,
    call_text::{CallOutput, ShellCommands},
    prompt_tools,
};
use maru_auth::Principal;
use maru_config::ClientMode;
use maru_connect::command_line;
use maru_llm::{ChatRequest, ChatTool};
use maru_tools::{Caller, CatalogScope};

static CLIENT_MODE_HEADER: HeaderName = HeaderName::from_static("x-maru-client-mode");
/// Tools of the hub that are offered in the mode `shell`.
const MAX_HUB_TOOLS: usize = 128;

/// The client mode: by the header, by the model, or by the caller.
pub(super) fn choose_mode(
    hub: &HubState,
    principal: &Principal,
    headers: &HeaderMap,
    model: &str,
) -> Result<ClientMode, ApiError> {
    let Some(header) = headers.get(&CLIENT_MODE_HEADER) else {
        let by_caller = hub.chat().client_modes.get(principal.name()).copied();
        let by_model = hub.models.current().client_mode(model);
        return Ok(by_model.or(by_caller).unwrap_or_default());
    };
    match header.as_bytes() {
        b"openai" => Ok(ClientMode::Openai),
        b"xml" => Ok(ClientMode::Xml),
        b"shell" if hub.chat().allow_shell => Ok(ClientMode::Shell),
        b"shell" => Err(ApiError::invalid(
            CLIENT_MODE_HEADER.as_str(),
            "the mode shell is not allowed; see chat.allow_shell in the settings",
        )),
        _ => Err(ApiError::invalid(
            CLIENT_MODE_HEADER.as_str(),
            "the mode must be openai, xml or shell",
        )),
    }
}

/// Adds the tools that the mode brings to `request`; returns how calls are written.
pub(super) fn apply_mode(
    hub: &HubState,
    principal: &Principal,
    mode: ClientMode,
    request: &mut ChatRequest,
) -> CallOutput {
    match mode {
        ClientMode::Openai => CallOutput::ToolCalls,
        ClientMode::Xml => {
            request.described_tools = prompt_tools::find_prompt_tools(&request.messages);
            CallOutput::Xml
        }
        ClientMode::Shell => {
            let tools = hub_tools(hub, principal);
            let names = tools.iter().map(|it| it.name.clone()).collect();
            if request.tools.is_empty() {
                request.tools = tools;
                request.tools.truncate(MAX_HUB_TOOLS);
            }
            CallOutput::Shell(ShellCommands {
                program: command_line(&hub.command_words).into(),
                tools: Arc::new(names),
            })
        }
    }
}

/// The tools that the caller can call with `maru call`.
fn hub_tools(hub: &HubState, principal: &Principal) -> Vec<ChatTool> {
    let snapshot = hub.engine.catalog().snapshot();
    let Ok(view) = snapshot.visible_to(&Caller::new(principal.clone(), CatalogScope::All)) else {
        return Vec::new();
    };
    let listed: Vec<Value> = serde_json::from_str(view.tools.json()).unwrap_or_default();
    let tool = |it: &Value| ChatTool {
        name: it["name"].as_str().unwrap_or_default().to_owned(),
        prompt_name: None,
        description: it["description"].as_str().unwrap_or_default().to_owned(),
        parameters: it["inputSchema"].clone(),
        other: Map::new(),
    };
    listed.iter().map(tool).collect()
}
