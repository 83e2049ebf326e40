//! What a call in progress may say to who asked for it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use maru_protocol::{LoggingLevel, ProtocolVersion, RpcId, write_notification};
use maru_runtime::message_queue;
use serde_json::{Map, Value, json};

use crate::observability::{
    journal::RequestId,
    telemetry::{self, RemoteTrace},
};

/// One client connection: a session, or one request of a client that has none.
/// Clients that share a token are told apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConnection(u64);

impl ClientConnection {
    /// A connection that is like no other.
    pub fn unique() -> Self {
        static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);
        Self(NEXT_CONNECTION.fetch_add(1, Relaxed))
    }
}

/// The way back to the caller. Messages to a caller who cannot take them, or
/// has gone, are dropped.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The client connection that the call came on.
    pub connection: ClientConnection,
    /// The program that asks, as it calls itself.
    pub client: Option<Arc<str>>,
    /// The request that this is part of.
    pub request_id: RequestId,
    /// The protocol version that the caller speaks.
    pub version: ProtocolVersion,
    /// Where messages go.
    pub outgoing: Option<message_queue::MessageSender>,
    /// Names the call in progress reports, if the caller wants any.
    pub progress_token: Option<RpcId>,
    /// The least severe log message wanted, if any.
    pub log_level: Option<LoggingLevel>,
    /// What the caller can be asked for, as it declared.
    pub capabilities: Arc<Value>,
    /// What the caller answered so far.
    pub inputs: InputResponses,
    /// What else the caller says about its request, an object as it was written.
    pub meta: Option<Arc<str>>,
}

/// Answers of the caller to [`InputRequired`](super::InputRequired).
#[derive(Clone, Debug, Default)]
pub struct InputResponses {
    /// Results by key.
    pub responses: Map<String, Value>,
    /// Why the caller did not answer.
    pub failure: Option<String>,
    /// The state that came with the questions.
    pub state: Option<String>,
}

impl Default for RequestContext {
    /// A caller who hears nothing and cannot be asked.
    fn default() -> Self {
        Self {
            connection: ClientConnection::unique(),
            client: None,
            request_id: RequestId::next(),
            version: ProtocolVersion::LATEST_WITH_HANDSHAKE,
            outgoing: None,
            progress_token: None,
            log_level: None,
            capabilities: Arc::default(),
            inputs: InputResponses::default(),
            meta: None,
        }
    }
}

impl RequestContext {
    /// The trace that the caller's `_meta` names, where spans are exported.
    pub fn remote_trace(&self) -> Option<RemoteTrace> {
        let meta = self.meta.as_deref().filter(|_| telemetry::is_enabled())?;
        RemoteTrace::from_meta(meta)
    }

    /// Reports how far the call is.
    pub async fn send_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let Some(token) = &self.progress_token else {
            return;
        };
        let mut params = json!({"progressToken": token, "progress": progress});
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        self.send(write_notification("notifications/progress", &params))
            .await;
    }

    /// Logs to the caller, if it asked for messages this severe.
    pub async fn send_log(&self, level: LoggingLevel, logger: &str, data: &Value) {
        if self.log_level.is_some_and(|least| level >= least) {
            let params = json!({"level": level, "logger": logger, "data": data});
            self.send(write_notification("notifications/message", &params))
                .await;
        }
    }

    /// Passes on a message that someone else wrote.
    pub async fn send(&self, message: String) {
        if let Some(out) = &self.outgoing {
            // The caller has gone; the call ends by its own rules.
            let _ = out.send(message).await;
        }
    }
}
