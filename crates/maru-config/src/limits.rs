//! Limits of connections, sessions, calls and traffic.

use std::time::Duration;

use maru_runtime::traffic_budget::TrafficRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of requests, sessions, calls and servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Maximum size of a request body in bytes.
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_body_bytes: usize,
    /// Maximum open connections. A quarter of them is reserved for connections that have not authenticated yet or, where no token is needed, have not sent a complete request; when that share is full, its oldest connection is closed. A request on a connection beyond the limit gets 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: usize,
    /// Maximum open MCP sessions; any further one gets 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: usize,
    /// Maximum open MCP sessions of one token. Beyond it, the token's longest idle session ends; if none is idle, the new one gets 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_token: usize,
    /// Concurrent requests of one session.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_calls_per_session: usize,
    /// Milliseconds after which an idle session ends.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub session_idle_ms: u64,
    /// Milliseconds of silence after which an event stream sends a comment. Proxies close silent streams, most after 30 to 60 seconds.
    #[schemars(range(min = 100, max = 50_000))]
    pub keep_alive_ms: u64,
    /// Calls per minute of each token without its own limit, at all hubs that share a PostgreSQL store. The default is no limit.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub calls_per_minute: Option<u32>,
    /// Milliseconds that one tool call may take. A tool that runs SQL may take longer: as long as its source lets a query wait for a connection and run.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub tool_timeout_ms: u64,
    /// Maximum size of a tool's result in bytes of JSON. Longer text is truncated with a note; a larger structured result is an error.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_result_bytes: usize,
    /// Unsolicited messages, stderr lines and comments that a server may send per second; responses to calls do not count. A server that exceeds twelve seconds' worth in a burst, or this rate for long, is disconnected.
    #[schemars(range(min = 10, max = 1_000_000))]
    pub server_messages_per_second: u32,
    /// Unsolicited bytes that a server may send per second, with the same bursts.
    #[schemars(range(min = 10_240, max = 1_073_741_824))]
    pub server_bytes_per_second: u32,
    /// Messages without a response that a client may send per second in one session: notifications, lines that are not messages, answers that nobody waits for. A client that exceeds twelve seconds' worth in a burst, or this rate for long, loses its session.
    #[schemars(range(min = 10, max = 1_000_000))]
    pub client_messages_per_second: u32,
    /// Bytes of such messages that a client may send per second, with the same bursts.
    #[schemars(range(min = 10_240, max = 1_073_741_824))]
    pub client_bytes_per_second: u32,
    /// Milliseconds that requests in progress have to finish at shutdown.
    #[schemars(range(min = 0, max = 600_000))]
    pub drain_ms: u64,
    /// Milliseconds that maru keeps accepting connections at shutdown, until a probe of `/readyz` got 503. If nobody probed within the last minute, it does not wait.
    #[schemars(range(min = 0, max = 600_000))]
    pub drain_notice_ms: u64,
    /// Milliseconds for which `/readyz` goes on answering 200 after a probe found that the store does not answer. Calls go on meanwhile.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub store_grace_ms: u64,
}

impl LimitSettings {
    /// How long one tool call may take.
    pub fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tool_timeout_ms)
    }

    /// What a server may send unasked.
    pub fn server_rate(&self) -> TrafficRate {
        TrafficRate {
            messages: self.server_messages_per_second,
            bytes: self.server_bytes_per_second,
        }
    }

    /// What a client may send that gets no response, in one session.
    pub fn client_rate(&self) -> TrafficRate {
        TrafficRate {
            messages: self.client_messages_per_second,
            bytes: self.client_bytes_per_second,
        }
    }

    /// After which silence an event stream sends a comment.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(self.keep_alive_ms)
    }

    /// How long a session may be idle before it ends.
    pub fn session_idle_timeout(&self) -> Duration {
        Duration::from_millis(self.session_idle_ms)
    }

    /// How long a probe may take to notice a shutdown.
    pub fn drain_notice_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_notice_ms)
    }

    /// How long the store may be away before the hub says that it is not ready.
    pub fn store_grace(&self) -> Duration {
        Duration::from_millis(self.store_grace_ms)
    }

    /// How long requests in progress have to finish at shutdown.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 << 20,
            max_connections: 4096,
            max_sessions: 2000,
            max_sessions_per_token: 100,
            max_calls_per_session: 64,
            session_idle_ms: 300_000,
            calls_per_minute: None,
            tool_timeout_ms: 30_000,
            max_result_bytes: 8 << 20,
            server_messages_per_second: 10_000,
            server_bytes_per_second: 8 << 20,
            client_messages_per_second: 10_000,
            client_bytes_per_second: 8 << 20,
            drain_ms: 10_000,
            drain_notice_ms: 5000,
            store_grace_ms: 10_000,
            keep_alive_ms: 15_000,
        }
    }
}
