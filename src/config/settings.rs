//! Every key, its type, its default and its meaning.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AgentSettings, AuditSettings, ChatSettings, ChromaDbSettings, EmbeddingSettings,
    ModelDefinition, OAuthSettings, PostgresSettings, ProgramSettings, SecretString,
    SourceDefinition, TelemetrySettings, TlsSettings,
};

/// The whole configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// IP address and port that maru listens on, such as `127.0.0.1:20006` or `[::1]:20006`. Port 0 takes any free port. Any other than a loopback address needs `tls` or `behind_tls_proxy`, and every request there needs a token.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Directory of maru's own data: its store, sample data and the admin token.
    #[schemars(with = "String")]
    pub data_dir: PathBuf,
    /// Whether every request needs a token. Without it, programs on this machine may list and call tools; `/healthz` never needs one.
    pub require_token: bool,
    /// Certificate of an address that is not a loopback one.
    pub tls: TlsSettings,
    /// Whether a proxy before maru encrypts; then maru may listen on other than loopback addresses without `tls`.
    pub behind_tls_proxy: bool,
    /// Whether programs may be registered as servers over HTTP where maru listens on other than loopback addresses.
    pub allow_stdio_over_http: bool,
    /// Tokens that an authorisation server of yours gives out (OAuth 2.1).
    pub oauth: OAuthSettings,
    /// Whether to offer the sample tools and make their sample data on first start.
    pub sample_data: bool,
    /// Where maru keeps its own state instead of a file in the data directory: `postgres://user:password@host/database`, or `memory` for a run that leaves nothing behind.
    pub store_url: Option<SecretString>,
    /// File of the key that seals secrets in the store; `seal-key` in the data directory if absent, where it is made on first start. In PostgreSQL secrets are sealed only if this is set; hubs that share a database share the key.
    #[schemars(with = "Option<String>")]
    pub seal_key_file: Option<PathBuf>,
    /// Who may reach the HTTP endpoints.
    pub http: HttpSettings,
    /// Which places maru may reach.
    pub outbound: OutboundSettings,
    /// The MCP servers whose tools maru offers.
    pub mcp: McpSettings,
    /// Where texts become vectors.
    pub embedding: EmbeddingSettings,
    /// The ChromaDB server that is searched instead of the embedded index.
    pub chromadb: ChromaDbSettings,
    /// The PostgreSQL database behind `query_bga_database`.
    pub postgresql: PostgresSettings,
    /// Further databases that tools may read.
    pub sources: Vec<SourceDefinition>,
    /// The models that clients may ask for at `/v1/chat/completions`.
    pub models: Vec<ModelDefinition>,
    /// Address of the Ollama that is used while there are no `models`.
    pub ollama: String,
    /// How calls of tools reach clients of `/v1/chat/completions`.
    pub chat: ChatSettings,
    /// The agent loop behind `/generate_with_mcp`, `maru chat` and models named `agent/…`.
    pub agent: AgentSettings,
    /// Bounds on what one request, session or call may take.
    pub limits: LimitSettings,
    /// Who did what is kept in the store.
    pub audit: AuditSettings,
    /// Traces for a collector of OpenTelemetry.
    pub telemetry: TelemetrySettings,
    /// What is logged to stderr.
    pub log: LogSettings,
    /// The directory of the file that this was read from.
    #[serde(skip)]
    #[schemars(skip)]
    pub config_directory: Option<PathBuf>,
    /// The program that confines stdio servers and ends them with the hub: maru
    /// itself. Without it they are started directly.
    #[serde(skip)]
    #[schemars(skip)]
    pub warden: Option<PathBuf>,
}

/// Who may reach the HTTP endpoints.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Host names accepted besides `127.0.0.1`, `localhost` and `[::1]`, without port or wildcard.
    #[schemars(inner(regex(pattern = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])$")))]
    pub allowed_hosts: Vec<String>,
    /// Web origins accepted besides our own, such as `https://chat.example.com`; no wildcard.
    #[schemars(inner(regex(pattern = r"^https?://[A-Za-z0-9.\-\[\]:]+$")))]
    pub allowed_origins: Vec<String>,
}

/// Which places maru may reach.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundSettings {
    /// Hosts of servers besides this machine: names, addresses, or `*.example.com` for all of a domain on the internet. A private address or name must stand here itself. Where maru listens on other than loopback addresses, a server on this machine must stand here too, best with its port, such as `127.0.0.1:8081`; those of `mcp.servers` are allowed as they are.
    #[schemars(inner(regex(
        pattern = r"^(\*\.)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])$|^(localhost|127(\.[0-9]{1,3}){3}|\[::1\]):[0-9]{1,5}$"
    )))]
    pub allowed_hosts: Vec<String>,
}

/// The MCP servers whose tools maru offers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct McpSettings {
    /// Servers to register at start. One whose name is registered already is left alone, and so is one that was removed; one without a name is skipped.
    pub servers: Vec<McpServerDefinition>,
    /// Milliseconds that connecting to a server may take.
    #[schemars(range(min = 100, max = 600_000))]
    pub connect_timeout_ms: u64,
    /// What servers may be.
    pub security: McpSecuritySettings,
    /// How a lost server is tried again.
    pub reconnection: ReconnectionSettings,
    /// What each program may use.
    pub programs: ProgramSettings,
}

/// A server to register at start.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct McpServerDefinition {
    /// Unique name: a-z, 0-9, `-` and `_`.
    pub name: String,
    /// How it is reached: `stdio`, `sse` or `http`.
    #[serde(default = "sse")]
    #[schemars(regex(pattern = r"^(stdio|sse|http|STDIO|SSE|HTTP)$"))]
    pub transport: String,
    /// Address of an SSE or HTTP server.
    #[serde(default)]
    pub url: Option<String>,
    /// Headers for an SSE or HTTP server.
    #[serde(default)]
    pub headers: BTreeMap<String, SecretString>,
    /// Program of a stdio server.
    #[serde(default)]
    pub command: Option<String>,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, SecretString>,
    /// Directory the program starts in.
    #[serde(default)]
    pub cwd: Option<String>,
    /// For people.
    #[serde(default)]
    pub description: Option<String>,
    /// The server's own version.
    #[serde(default)]
    pub version: Option<String>,
    /// Whether it is connected at start.
    #[serde(default = "yes")]
    pub auto_connect: bool,
    /// What happens to a tool whose definition changes: `pin` withholds it until an admin accepts it, `follow` offers it.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(pin|follow)$"))]
    pub trust: Option<String>,
    /// The only protocol version that maru speaks with it, such as `2025-06-18`, for a server that fails in one that it offers; absent, the newest that both know.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28)$"))]
    pub protocol_version: Option<String>,
}

/// What servers may be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct McpSecuritySettings {
    /// Names that may be registered; empty allows every name.
    pub allowed_server_names: Vec<String>,
    /// Programs that stdio servers may be. A name means the program of the search path, an absolute path that file; with arguments (`npx -y @scope/server /data`) exactly those. Empty allows every program; shells and code on the command line need a consent. A hub that other machines can reach starts only what stands here with its arguments, or in `mcp.servers`.
    pub allowed_commands: Vec<String>,
    /// Characters of the result of a tool that every caller gets at most: text beyond it is cut with a note, an image or a structure beyond it is an error. Unset, only `maru call` cuts its text, after 50,000.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub max_tool_output_length: Option<usize>,
    /// Servers that may be registered.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_servers: usize,
}

/// How a lost server is tried again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ReconnectionSettings {
    /// Whether maru connects a lost server again by itself: after a while, and when one of its tools is called.
    pub enabled: bool,
    /// Attempts before giving up.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u32,
    /// Milliseconds before the first attempt.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub initial_delay_ms: u64,
    /// By how much the wait grows each time.
    #[schemars(range(min = 1.0, max = 100.0))]
    pub multiplier: f64,
    /// Longest wait in milliseconds. Each wait is longer or shorter by up to a quarter.
    #[schemars(range(min = 10, max = 86_400_000))]
    pub max_delay_ms: u64,
}

fn sse() -> String {
    "sse".to_owned()
}

fn yes() -> bool {
    true
}

/// Bounds on what one request, session or call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Largest request body, in bytes.
    #[schemars(range(min = 1024, max = 67_108_864))]
    pub max_body_bytes: usize,
    /// Connections open at once. A quarter of them is kept for those that have not shown a token yet, or not sent a whole request where none is needed; there the oldest makes room for the newest. A request on one connection too many is answered with 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: usize,
    /// MCP sessions open at once; one more is answered with 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions: usize,
    /// MCP sessions that one token may have open; one more ends the session of that token that was idle for longest, or is answered with 503.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_sessions_per_token: usize,
    /// Requests that one session may have running at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_calls_per_session: usize,
    /// Milliseconds after which a session that nobody uses ends.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub session_idle_ms: u64,
    /// Calls a minute of each token that has no limit of its own; absent, there is none.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub calls_per_minute: Option<u32>,
    /// Milliseconds that one tool call may take.
    #[schemars(range(min = 1, max = 3_600_000))]
    pub tool_timeout_ms: u64,
    /// Largest result of one tool call, as bytes of JSON. Text beyond it is cut with a note; a structured result beyond it is an error.
    #[schemars(range(min = 1024, max = 268_435_456))]
    pub max_result_bytes: usize,
    /// Messages, lines of stderr and comments that a server may send a second without being asked; answers to calls do not count. A server that sends twelve seconds' worth at once, or more than this for long, is disconnected.
    #[schemars(range(min = 10, max = 1_000_000))]
    pub server_messages_per_second: u32,
    /// The same in bytes.
    #[schemars(range(min = 10_240, max = 1_073_741_824))]
    pub server_bytes_per_second: u32,
    /// Milliseconds that requests in progress get to finish at shutdown.
    #[schemars(range(min = 0, max = 600_000))]
    pub drain_ms: u64,
    /// Milliseconds that maru goes on accepting at shutdown until a probe of `/readyz` has been answered with 503. Where nobody probed within the last minute it does not wait.
    #[schemars(range(min = 0, max = 600_000))]
    pub drain_notice_ms: u64,
}

/// What is logged to stderr.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Least severe message that is logged.
    pub level: LogLevelSetting,
    /// How a message is written.
    pub format: LogFormat,
}

/// Severity of a log message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
#[expect(missing_docs, reason = "the names say it")]
pub enum LogLevelSetting {
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
            tls: TlsSettings::default(),
            behind_tls_proxy: false,
            allow_stdio_over_http: false,
            oauth: OAuthSettings::default(),
            sample_data: true,
            store_url: None,
            seal_key_file: None,
            http: HttpSettings::default(),
            outbound: OutboundSettings::default(),
            mcp: McpSettings::default(),
            embedding: EmbeddingSettings::default(),
            chromadb: ChromaDbSettings::default(),
            postgresql: PostgresSettings::default(),
            sources: Vec::new(),
            models: Vec::new(),
            ollama: "http://127.0.0.1:11434".to_owned(),
            chat: ChatSettings::default(),
            agent: AgentSettings::default(),
            limits: LimitSettings::default(),
            audit: AuditSettings::default(),
            telemetry: TelemetrySettings::default(),
            log: LogSettings::default(),
            config_directory: None,
            warden: None,
        }
    }
}

impl Default for McpSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            connect_timeout_ms: 30_000,
            security: McpSecuritySettings::default(),
            reconnection: ReconnectionSettings::default(),
            programs: ProgramSettings::default(),
        }
    }
}

impl Default for McpSecuritySettings {
    fn default() -> Self {
        Self {
            allowed_server_names: Vec::new(),
            allowed_commands: Vec::new(),
            max_tool_output_length: None,
            max_servers: 256,
        }
    }
}

impl Default for ReconnectionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            max_attempts: 5,
            initial_delay_ms: 5000,
            multiplier: 2.0,
            max_delay_ms: 60_000,
        }
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
            drain_ms: 10_000,
            drain_notice_ms: 5000,
        }
    }
}

impl Config {
    /// Whether nothing is left behind when maru stops.
    pub fn is_ephemeral(&self) -> bool {
        self.store_url
            .as_ref()
            .is_some_and(|it| it.reveal() == "memory")
    }

    /// Whether only programs of this machine can reach maru.
    pub fn is_loopback_only(&self) -> bool {
        self.listen.ip().is_loopback() && !self.behind_tls_proxy
    }

    /// Whether every request needs a token.
    pub fn requires_token(&self) -> bool {
        self.require_token || !self.is_loopback_only()
    }
}

impl LimitSettings {
    /// How long one tool call may take.
    pub fn tool_timeout(&self) -> Duration {
        Duration::from_millis(self.tool_timeout_ms)
    }

    /// After which time without use a session ends.
    pub fn session_idle_timeout(&self) -> Duration {
        Duration::from_millis(self.session_idle_ms)
    }

    /// How long a probe may take to notice a shutdown.
    pub fn drain_notice_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_notice_ms)
    }

    /// How long requests in progress get at shutdown.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }
}
