//! Calls that wait for input of a client that the server requested.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::{RpcError, RpcId, RpcMessage, code, write_error};
use maru_runtime::tasks::with_timeout;

use super::{
    connect::ActiveConnection,
    forward::CallRelay,
    link::{CallEvent, UpstreamCall},
};

/// How long the server may take to end a call whose client gave no answer, before the
/// call is cancelled.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_PENDING_INPUT_CALLS: usize = 256;

/// The waiting calls of one connection by their secret state token.
#[derive(Debug)]
pub(super) struct PendingInput {
    calls: Mutex<HashMap<String, PendingInputCall>>,
    /// How long a client may take to provide the input.
    timeout: Duration,
}

/// A call whose server waits for input.
#[derive(Debug)]
pub(super) struct PendingInputCall {
    pub(super) call: UpstreamCall,
    /// The id of the server's request.
    pub(super) request_id: RpcId,
    /// Which of its notifications are relayed.
    pub(super) relay: CallRelay,
}

impl PendingInput {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            calls: Mutex::default(),
            timeout,
        }
    }

    /// How long a client may take to provide the input.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Stores a call and returns the token to resume it; `None` if too many wait.
    pub(super) fn insert(
        connection: &Arc<ActiveConnection>,
        waiting: PendingInputCall,
    ) -> Option<String> {
        let name = uuid::Uuid::new_v4().to_string();
        {
            let mut all = connection
                .pending_input
                .calls
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX_PENDING_INPUT_CALLS {
                return None;
            }
            all.insert(name.clone(), waiting);
        }
        let (kept, lost) = (
            Arc::downgrade(connection),
            connection.link.lost_token().clone(),
        );
        let forgotten = name.clone();
        let timeout = connection.pending_input.timeout;
        connection.spawn(async move {
            let ended = with_timeout(timeout, lost.cancelled()).await;
            let connection = kept.upgrade();
            let waiting = connection.and_then(|it| it.pending_input.take(&forgotten));
            if let (Some(waiting), None) = (waiting, ended) {
                let _cancelled_otherwise = with_timeout(END_TIMEOUT, waiting.expire(timeout)).await;
            }
        });
        Some(name)
    }

    /// Removes and returns the call with this token.
    pub(super) fn take(&self, name: &str) -> Option<PendingInputCall> {
        let mut all = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(name)
    }
}

impl PendingInputCall {
    /// Answers the server's requests with an error until it ends the call. A call that is
    /// only cancelled may stay without a response, and would make the server's questions to
    /// other clients ambiguous as long as the connection lasts.
    async fn expire(mut self, timeout: Duration) {
        let message = format!("the client did not answer within {timeout:?}");
        let error = RpcError::new(code::INTERNAL_ERROR, message);
        let mut reply = write_error(Some(&self.request_id), &error);
        while self.call.respond(reply).await.is_ok() {
            reply = loop {
                let Ok(CallEvent::Message(text)) = self.call.next_event().await else {
                    return;
                };
                if let Ok(RpcMessage::Request(request)) = RpcMessage::parse(&text) {
                    break write_error(Some(&request.id), &error);
                }
            };
        }
    }
}
