//! The agent loop as the tool `ask_agent`.

use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};

use super::{Agent, AgentRequest, ApprovalPolicy, CutReason};
use maru_auth::Principal;
use maru_llm::{ChatMessage, ChatRole};
use maru_tools::{
    CatalogEntry, CatalogEntryKind, EntryHandler, EntryRequest, EntryResponse, EntryResult,
};

/// Holds the agent once it exists: its tool is made before it.
#[derive(Clone, Debug, Default)]
pub struct AgentSlot(Arc<OnceLock<Weak<Agent>>>);

impl AgentSlot {
    /// Sets the agent.
    pub fn set(&self, agent: &Arc<Agent>) {
        // Filled once, when everything is built.
        let _ = self.0.set(Arc::downgrade(agent));
    }

    fn agent(&self) -> Option<Arc<Agent>> {
        self.0.get()?.upgrade()
    }
}

/// The tool `ask_agent`, and where the agent has to be put.
pub fn ask_agent() -> (Arc<CatalogEntry>, AgentSlot) {
    let slot = AgentSlot::default();
    let filled = slot.clone();
    let handler: EntryHandler = Arc::new(move |request: EntryRequest| {
        let slot = filled.clone();
        async move {
            let input = request.action.into_call_arguments()?;
            Ok(EntryResponse::Complete(
                run_agent(&slot, request.principal, &input).await,
            ))
        }
        .boxed()
    });
    let described = json!({
        "name": "ask_agent",
        "description": "Asks a language model that can use all other tools here. Give it a whole task in plain words; it returns the answer.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "question": {"type": "string", "description": "The task, with all that is needed to do it"},
                "model": {"type": "string", "description": "The model; the hub's own choice if none is named"},
                "mcp_servers": {"type": "array", "items": {"type": "string"}, "description": "Only tools of these servers"},
            },
            "required": ["question"],
            "additionalProperties": false,
        },
        "outputSchema": {
            "type": "object",
            "properties": {
                "answer": {"type": "string"},
                "cut": {"description": "Why the run ended before the model was done, or null"},
                "run_id": {"type": "string"},
                "success": {"type": "boolean", "description": "False where there is no answer"},
                "error": {"type": "string", "description": "What went wrong, when success is false"},
            },
        },
    });
    (
        CatalogEntry::builtin(CatalogEntryKind::Tool, described, handler),
        slot,
    )
}

async fn run_agent(slot: &AgentSlot, principal: Principal, input: &Value) -> EntryResult {
    let Some(agent) = slot.agent() else {
        return EntryResult::failure("the hub is stopping");
    };
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let servers = input["mcp_servers"].as_array().map(|names| {
        let names = names.iter().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    });
    let request = AgentRequest {
        principal,
        model: text("model"),
        messages: vec![ChatMessage::text(
            ChatRole::User,
            text("question").unwrap_or_default(),
        )],
        backend_options: Map::new(),
        servers,
        toolset: None,
        own_tools: Some(true),
        max_rounds: None,
        tool_timeout: None,
        approval: ApprovalPolicy::Nobody,
    };
    let result = match agent.start(request) {
        Ok(run) => run.into_outcome().await,
        Err(error) => Err(error),
    };
    match result {
        Ok(outcome) => EntryResult::structured(&json!({
            "answer": outcome.answer.text,
            "cut": outcome.answer.cut.map(CutReason::name),
            "run_id": &*outcome.run,
        })),
        Err(error) => EntryResult::failure(&error.to_string()),
    }
}
