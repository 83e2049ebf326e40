//! Input requests to clients of a version with a handshake, as requests of the server.

use std::time::Duration;

use maru_protocol::{RpcError, code};
use serde_json::Value;

use super::{dispatch::DispatchContext, session::McpSession};
use maru_tools::{InputRequired, InputResponses};

/// How often one request may need input.
pub(super) const MAX_INPUT_ROUNDS: usize = 10;
/// How long a user may take to answer.
const INPUT_TIMEOUT: Duration = Duration::from_secs(300);

/// Sends all input requests to the client and collects the answers.
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
            Err(reason) => {
                inputs.failure = Some(format!("the client did not answer {method}: {reason}"));
                return Ok(inputs);
            }
        }
    }
    Ok(inputs)
}

/// Refuses input requests for which the client did not declare the capability.
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
                    "a tool sent an input request that no client supports",
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
