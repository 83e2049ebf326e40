//! Every key, its type, its default and its meaning.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The whole configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// IP address and port that maru listens on, such as `127.0.0.1:20006` or `[::1]:20006`. Port 0 takes any free port. This version serves loopback addresses only.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Directory of maru's own data: its store, sample data and the admin token.
    #[schemars(with = "String")]
    pub data_dir: PathBuf,
    /// Whether every request needs a token. Without it, programs on this machine may list and call tools; `/healthz` never needs one.
    pub require_token: bool,
    /// Whether to offer the sample tools and make their sample data on first start.
    pub sample_data: bool,
    /// Who may reach the HTTP doors.
    pub http: Http,
    /// Bounds on what one request, session or call may take.
    pub limits: Limits,
    /// What is logged to stderr.
    pub log: Log,
}

/// Who may reach the HTTP doors.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    /// Host names accepted besides `127.0.0.1`, `localhost` and `[::1]`, without port or wildcard.
    #[schemars(inner(regex(pattern = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])$")))]
    pub allowed_hosts: Vec<String>,
    /// Web origins accepted besides our own, such as `https://chat.example.com`; no wildcard.
    #[schemars(inner(regex(pattern = r"^https?://[A-Za-z0-9.\-\[\]:]+$")))]
    pub allowed_origins: Vec<String>,
}

/// Bounds on what one request, session or call may take.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Largest request body, in bytes.
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_body_bytes: usize,
    /// Connections open at once; more wait until one closes.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: usize,
    /// MCP sessions open at once; one more is answered with 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: usize,
    /// Requests that one session may have running at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_calls_per_session: usize,
    /// Milliseconds after which a session that nobody uses ends.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub session_idle_ms: u64,
    /// Milliseconds that one tool call may take.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub tool_timeout_ms: u64,
    /// Largest result of one tool call, as bytes of JSON. Text beyond it is cut with a note; a structured result beyond it is an error.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_result_bytes: usize,
    /// Milliseconds that requests in progress get to finish at shutdown.
    #[schemars(range(min = 0, max = 600_000))]
    pub drain_ms: u64,
}

/// What is logged to stderr.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    /// Least severe message that is logged.
    pub level: LogLevel,
    /// How a message is written.
    pub format: LogFormat,
}

/// Severity of a log message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Form of a log message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 20006)),
            data_dir: PathBuf::from("~/.local/share/maru"),
            require_token: false,
            sample_data: true,
            http: Http::default(),
            limits: Limits::default(),
            log: Log::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_body_bytes: 4 << 20,
            max_connections: 4096,
            max_sessions: 2000,
            max_calls_per_session: 64,
            session_idle_ms: 300_000,
            tool_timeout_ms: 30_000,
            max_result_bytes: 8 << 20,
            drain_ms: 10_000,
        }
    }
}

impl Limits {
    /// How long one tool call may take.
    pub fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tool_timeout_ms)
    }

    /// After which time without use a session ends.
    pub fn session_idle(&self) -> Duration {
        Duration::from_millis(self.session_idle_ms)
    }

    /// How long requests in progress get at shutdown.
    pub fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}
