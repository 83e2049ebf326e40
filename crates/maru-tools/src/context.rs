//! How a call in progress reaches its caller: progress, log messages, input requests.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use maru_protocol::{LoggingLevel, ProtocolVersion, RpcId, write_notification};
use maru_runtime::message_queue;
use serde_json::{Map, Value, json};

use maru_observability::{
    journal::RequestId,
    telemetry::{self, RemoteTrace},
};

/// Identifies one client connection: a session, or one request of a client without a
/// session. It distinguishes clients that share a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConnection(u64);

impl ClientConnection {
    /// A new connection.
    pub fn unique() -> Self {
        static NEXT_CONNECTION: AtomicU64 = AtomicU64::new(1);
        Self(NEXT_CONNECTION.fetch_add(1, Relaxed))
    }
}

/// What a handler knows about its caller, and how it sends messages to it. Messages to a
/// caller that cannot receive them, or has disconnected, are dropped.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The client connection that the call came on.
    pub connection: ClientConnection,
    /// The client program, by its reported name.
    pub client: Option<Arc<str>>,
    /// The id of the request, for journal, audit and traces.
    pub request_id: RequestId,
    /// The protocol version of the caller.
    pub version: ProtocolVersion,
    /// Where messages to the caller are sent.
    pub outgoing: Option<message_queue::MessageSender>,
    /// The token of progress notifications, if the caller wants them.
    pub progress_token: Option<RpcId>,
    /// The lowest level of log messages that the caller wants, if any.
    pub log_level: Option<LoggingLevel>,
    /// The client capabilities that the caller declared.
    pub capabilities: Arc<Value>,
    /// The caller's answers to input requests so far.
    pub inputs: InputResponses,
    /// The request's `_meta`, as the caller wrote it.
    pub meta: Option<Arc<str>>,
}

/// The caller's answers to [`InputRequired`](super::InputRequired).
#[derive(Clone, Debug, Default)]
pub struct InputResponses {
    /// Results by key.
    pub responses: Map<String, Value>,
    /// Why there is no answer.
    pub failure: Option<String>,
    /// The state that came with the input requests.
    pub state: Option<String>,
}

impl Default for RequestContext {
    /// A caller that receives no messages and no input requests.
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
    /// The trace that the caller's `_meta` names; `None` if spans are not exported.
    pub fn remote_trace(&self) -> Option<RemoteTrace> {
        let meta = self.meta.as_deref().filter(|_| telemetry::is_enabled())?;
        RemoteTrace::from_meta(meta)
    }

    /// Sends a progress notification.
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

    /// Sends a log message, if the caller wants messages of this level.
    pub async fn send_log(&self, level: LoggingLevel, logger: &str, data: &Value) {
        if self.log_level.is_some_and(|least| level >= least) {
            let params = json!({"level": level, "logger": logger, "data": data});
            self.send(write_notification("notifications/message", &params))
                .await;
        }
    }

    /// Sends a complete message.
    pub async fn send(&self, message: String) {
        if let Some(out) = &self.outgoing {
            // Fails if the caller has disconnected; the call is cancelled elsewhere.
            let _ = out.send(message).await;
        }
    }
}
