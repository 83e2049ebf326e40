//! Questions back to the client, in the older versions as requests of ours.

use std::time::Duration;

use maru_protocol::{RpcError, code};
use serde_json::Value;

use super::{dispatch::DispatchContext, session::McpSession};
use crate::tools::{InputRequired, InputResponses};

/// How often one request may be answered with questions.
pub(super) const MAX_INPUT_ROUNDS: usize = 10;
/// How long a person may take to answer.
const INPUT_TIMEOUT: Duration = Duration::from_secs(300);

/// Asks the client everything that is needed.
pub(super) async fn collect_inputs(
    context: &DispatchContext<'_>,
    session: &McpSession,
    needed: InputRequired,
) -> Result<InputResponses, RpcError> {
    check_capabilities(context.capabilities, &needed)?;
    let mut inputs = InputResponses {
        state: needed.state,
        ..InputResponses::default()
    };
    for (key, request) in needed.requests {
        let method = request["method"].as_str().unwrap_or_default();
        let answer = session
            .send_request(context.out, method, &request["params"], INPUT_TIMEOUT)
            .await;
        match answer {
            Ok(answer) => {
                inputs.responses.insert(key, answer);
            }
            Err(why) => {
                inputs.failure = Some(format!("the client did not answer {method}: {why}"));
                return Ok(inputs);
            }
        }
    }
    Ok(inputs)
}

/// Refuses questions that the client did not say it can take.
pub(super) fn check_capabilities(declared: &Value, needed: &InputRequired) -> Result<(), RpcError> {
    let mut missing = Vec::new();
    for request in needed.requests.values() {
        let name = match request["method"].as_str() {
            Some("elicitation/create") => "elicitation",
            Some("sampling/createMessage") => "sampling",
            Some("roots/list") => "roots",
            _ => {
                return Err(RpcError::new(
                    code::INTERNAL_ERROR,
                    "a tool asked for something that no client can give",
                ));
            }
        };
        if declared.get(name).is_none() && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(RpcError::missing_capabilities(&missing))
}
