//! The loop as a tool of its own.

use std::sync::{Arc, OnceLock, Weak};

use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};

use super::{Agent, Cut, Question};
use crate::{
    access::Principal,
    llm::{Message, Role},
    mcp::RpcError,
    tool::{Action, Answer, Ask, Handler, Kind, Offer, output},
};

/// Where the agent goes once it is there: its tools are made before it.
#[derive(Clone, Debug, Default)]
pub struct Slot(Arc<OnceLock<Weak<Agent>>>);

impl Slot {
    /// Puts the agent there.
    pub fn fill(&self, agent: &Arc<Agent>) {
        // Filled once, when everything is built.
        let _ = self.0.set(Arc::downgrade(agent));
    }

    fn agent(&self) -> Option<Arc<Agent>> {
        self.0.get()?.upgrade()
    }
}

/// The tool `ask_agent`, and where the agent has to be put.
pub fn ask_agent() -> (Arc<Offer>, Slot) {
    let slot = Slot::default();
    let filled = slot.clone();
    let handler: Handler = Arc::new(move |ask: Ask| {
        let slot = filled.clone();
        async move {
            let Action::Call(input) = ask.action else {
                return Err(RpcError::params("a tool is called"));
            };
            Ok(Answer::Complete(answer(&slot, ask.principal, &input).await))
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
    });
    (Offer::own(Kind::Tool, described, handler), slot)
}

async fn answer(slot: &Slot, principal: Principal, input: &Value) -> String {
    let Some(agent) = slot.agent() else {
        return output::failure("the hub is stopping");
    };
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let servers = input["mcp_servers"].as_array().map(|names| {
        let names = names.iter().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    });
    let question = Question {
        principal,
        model: text("model"),
        messages: vec![Message::text(
            Role::User,
            text("question").unwrap_or_default(),
        )],
        other: Map::new(),
        servers,
        rounds: None,
        tool_timeout: None,
        approval: false,
    };
    let done = match agent.start(question) {
        Ok(live) => live.outcome().await,
        Err(error) => Err(error),
    };
    match done {
        Ok(outcome) => output::structured(&json!({
            "answer": outcome.finished.text,
            "cut": outcome.finished.cut.map(Cut::name),
            "run_id": &*outcome.run,
        })),
        Err(error) => output::failure(&error.to_string()),
    }
}
