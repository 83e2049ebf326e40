//! What a call in progress may say to who asked for it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde_json::{Map, Value, json};

use crate::{
    journal::RequestId,
    mcp::{Id, LogLevel, Version, notification},
    queue,
};

/// One client connection: a session, or one request of a client that has none.
/// Clients that share a token are told apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConnection(u64);

impl ClientConnection {
    /// A connection that is like no other.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// The way back to the caller. Messages to a caller who cannot take them, or
/// has gone, are dropped.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The client connection that the call came on.
    pub connection: ClientConnection,
    /// The program that asks, as it calls itself.
    pub client: Option<Arc<str>>,
    /// The request that this is part of.
    pub request: RequestId,
    /// The protocol version that the caller speaks.
    pub version: Version,
    /// Where messages go.
    pub out: Option<queue::Sender>,
    /// Names the call in progress reports, if the caller wants any.
    pub progress_token: Option<Id>,
    /// The least severe log message wanted, if any.
    pub log_level: Option<LogLevel>,
    /// What the caller can be asked for, as it declared.
    pub capabilities: Arc<Value>,
    /// What the caller answered so far.
    pub inputs: Inputs,
    /// What else the caller says about its request, an object as it was written.
    pub meta: Option<Arc<str>>,
}

/// Answers of the caller to [`InputRequired`](super::InputRequired).
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Results by key.
    pub responses: Map<String, Value>,
    /// Why the caller did not answer.
    pub failed: Option<String>,
    /// The state that came with the questions.
    pub state: Option<String>,
}

impl Default for Peer {
    /// A caller who hears nothing and cannot be asked.
    fn default() -> Self {
        Self {
            connection: ClientConnection::unique(),
            client: None,
            request: RequestId::next(),
            version: Version::LATEST_LEGACY,
            out: None,
            progress_token: None,
            log_level: None,
            capabilities: Arc::default(),
            inputs: Inputs::default(),
            meta: None,
        }
    }
}

impl Peer {
    /// Reports how far the call is.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
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
        self.send(notification("notifications/progress", &params))
            .await;
    }

    /// Logs to the caller, if it asked for messages this severe.
    pub async fn log(&self, level: LogLevel, logger: &str, data: &Value) {
        if self.log_level.is_some_and(|least| level >= least) {
            let params = json!({"level": level, "logger": logger, "data": data});
            self.send(notification("notifications/message", &params))
                .await;
        }
    }

    /// Passes on a message that someone else wrote.
    pub async fn send(&self, message: String) {
        if let Some(out) = &self.out {
            // The caller has gone; the call ends by its own rules.
            let _ = out.send(message).await;
        }
    }
}
