//! A request that is handled while its connection reads on.

use std::sync::Arc;

use maru_protocol::{RpcError, RpcId, RpcRequest, code, measure_json, write_error, write_result};
use maru_runtime::{
    memory::{HeldText, MAX_TREE_BYTES, MemoryShare, SMALL_REQUEST_BYTES},
    tasks::run_parser,
};
use maru_tools::Caller;

use super::session::SESSION_BUSY;

/// Parameters up to this size stay small as values, too.
const SMALL_PARAMS_BYTES: usize = SMALL_REQUEST_BYTES / 128;

/// A request with its own copy of the text.
#[derive(Debug)]
pub(super) struct OwnedRequest {
    pub(super) id: RpcId,
    pub(super) method: String,
    pub(super) params: Option<String>,
    /// Whose memory the response takes.
    caller: Arc<str>,
    /// What large parameters take in memory while the request is handled, also after its
    /// client has left.
    _memory: Option<MemoryShare>,
}

impl OwnedRequest {
    pub(super) async fn new(caller: &Caller, request: &RpcRequest<'_>) -> Result<Self, RpcError> {
        let params = request.params.unwrap_or_default();
        let memory = if params.len() <= SMALL_PARAMS_BYTES {
            None
        } else {
            Some(reserve_memory(caller, params).await?)
        };
        Ok(Self {
            id: request.id.clone(),
            method: request.method.to_string(),
            params: request.params.map(str::to_owned),
            caller: caller.principal.shared_name(),
            _memory: memory,
        })
    }

    /// The response as a message. A large one holds memory until it is written, because
    /// nothing else bounds the responses that clients leave unread.
    pub(super) fn to_response(&self, outcome: &Result<String, RpcError>) -> HeldText {
        let response = match outcome {
            Ok(raw) => write_result(&self.id, raw),
            Err(error) => write_error(Some(&self.id), error),
        };
        HeldText::new(&self.caller, response).unwrap_or_else(|_| {
            let message = "the request was carried out, but too many large responses wait to be read, so its response was dropped";
            write_error(Some(&self.id), &RpcError::new(SESSION_BUSY, message)).into()
        })
    }
}

/// Reserves what parameters take, as text and as values.
async fn reserve_memory(caller: &Caller, params: &str) -> Result<MemoryShare, RpcError> {
    let text = params.to_owned();
    let measured = run_parser(params.len(), move || {
        let measured = measure_json(text.as_bytes());
        measured.map(|(_, tree_bytes)| tree_bytes)
    });
    let tree_bytes = measured.await?;
    if tree_bytes > MAX_TREE_BYTES {
        let message = format!("the values of params take more than {MAX_TREE_BYTES} bytes");
        return Err(RpcError::new(code::INVALID_PARAMS, message));
    }
    let mut memory = MemoryShare::new(caller.principal.shared_name());
    let reserved = memory.add(params.len() + tree_bytes);
    reserved.map_err(|error| RpcError::new(SESSION_BUSY, error.to_string()))?;
    Ok(memory)
}
