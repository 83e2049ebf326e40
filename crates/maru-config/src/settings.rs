//! The keys of the configuration with type, default and description.

use std::{
    collections::BTreeMap,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AgentSettings, AuditSettings, ChatSettings, ChromaDbSettings, EmbeddingSettings, LimitSettings,
    ModelDefinition, OAuthSettings, OidcSettings, PgvectorSettings, PostgresSettings,
    ProgramSettings, SecretString, SourceDefinition, TelemetrySettings, TlsSettings,
    ToolSearchSettings, ToolsetDefinition, UsageSettings,
};

/// The whole configuration.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// IP address and port that maru listens on, such as `127.0.0.1:20006` or `[::1]:20006`. Port 0 selects any free port. An address other than loopback needs `tls` or `behind_tls_proxy`, and every request there needs a token.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Directory of maru's data: store, sample data and admin token.
    #[schemars(with = "String")]
    pub data_dir: PathBuf,
    /// Whether every request needs a token. If not, programs on this machine may list and call tools without one. `/healthz` never needs one.
    pub require_token: bool,
    /// Whether programs on this machine that send no token act as admin and may register servers with private network addresses. Only for a loopback address, without `require_token` and `behind_tls_proxy`. Requests of web pages, and those that a proxy has marked, are not admin by it. Every user of this machine can then start programs as maru's user.
    pub local_admin: bool,
    /// URL at which browsers and other servers reach maru, such as `https://maru.example.com`. People who sign in to a server come back to it, and authorization servers read `/oauth/client.json` there. Its host must be in `http.allowed_hosts`. The default is the address that maru listens on.
    #[schemars(regex(pattern = r"^https?://[A-Za-z0-9.\-\[\]:]+$"))]
    pub public_url: Option<String>,
    /// TLS certificate, required for an address other than loopback.
    pub tls: TlsSettings,
    /// Whether a proxy in front of maru terminates TLS. If so, maru may listen on an address other than loopback without `tls`.
    pub behind_tls_proxy: bool,
    /// Whether stdio servers may be registered over HTTP when maru listens on an address other than loopback.
    pub allow_stdio_over_http: bool,
    /// Access tokens of an external authorization server (OAuth 2.1).
    pub oauth: OAuthSettings,
    /// The company's issuer, at which people sign in.
    pub oidc: OidcSettings,
    /// Whether to provide the sample tools and create their sample data on first start.
    pub sample_data: bool,
    /// Where maru stores its state instead of a file in the data directory: `postgres://user:password@host/database`, or `memory` for a run that leaves nothing behind.
    pub store_url: Option<SecretString>,
    /// File of the key that encrypts secrets in the store. The default is `seal-key` in the data directory, created on first start. In PostgreSQL secrets are encrypted only if this is set; hubs that share a database share the key.
    #[schemars(with = "Option<String>")]
    pub seal_key_file: Option<PathBuf>,
    /// This hub among those that share a database.
    pub hub: HubSettings,
    /// Hosts and origins that the HTTP endpoints accept.
    pub http: HttpSettings,
    /// Hosts that maru may connect to.
    pub outbound: OutboundSettings,
    /// MCP servers and how maru connects to them.
    pub mcp: McpSettings,
    /// How MCP clients get tools: all of them, or a search.
    pub tool_search: ToolSearchSettings,
    /// Named selections of tools. Each has an endpoint, `/mcp/t/{name}`; tokens and runs of the agent can be limited to one.
    pub toolsets: Vec<ToolsetDefinition>,
    /// The embedding endpoint.
    pub embedding: EmbeddingSettings,
    /// The ChromaDB server that replaces the embedded index.
    pub chromadb: ChromaDbSettings,
    /// A table with a column of pgvector that `get_sim_search` searches instead of the index.
    pub pgvector: Option<PgvectorSettings>,
    /// The PostgreSQL database behind `query_bga_database`.
    pub postgresql: PostgresSettings,
    /// Further databases that tools may read.
    pub sources: Vec<SourceDefinition>,
    /// Whether `query_bga_database` flags a failed statement with `isError` in addition to its `"status": "error"`.
    pub sql_error_flag: bool,
    /// Models of `/v1/chat/completions`.
    pub models: Vec<ModelDefinition>,
    /// URL of the Ollama server that is used if `models` is empty.
    pub ollama: String,
    /// How clients of `/v1/chat/completions` get tool calls.
    pub chat: ChatSettings,
    /// What requests to models use and cost, and budgets for them.
    pub usage: UsageSettings,
    /// The agent loop behind `/generate_with_mcp`, `maru chat` and models named `agent/…`.
    pub agent: AgentSettings,
    /// Limits of requests, sessions, calls and servers.
    pub limits: LimitSettings,
    /// The audit log of calls and changes in the store.
    pub audit: AuditSettings,
    /// Traces for an OpenTelemetry collector.
    pub telemetry: TelemetrySettings,
    /// The log on stderr.
    pub log: LogSettings,
    /// The directory of the configuration file.
    #[serde(skip)]
    #[schemars(skip)]
    pub config_directory: Option<PathBuf>,
    /// The program that confines stdio servers and ends them with the hub, which is maru
    /// itself. If absent, stdio servers are started directly.
    #[serde(skip)]
    #[schemars(skip)]
    pub warden: Option<PathBuf>,
}

/// This hub among those that share a database.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HubSettings {
    /// The name of this hub where several share a database: in calls, runs and the console. The default is the host name.
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
}

/// Hosts and origins that the HTTP endpoints accept.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSettings {
    /// Host names accepted in addition to `127.0.0.1`, `localhost` and `[::1]`, without port or wildcard.
    #[schemars(inner(regex(pattern = r"^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])$")))]
    pub allowed_hosts: Vec<String>,
    /// Web origins accepted in addition to maru's own, such as `https://chat.example.com`; no wildcard.
    #[schemars(inner(regex(pattern = r"^https?://[A-Za-z0-9.\-\[\]:]+$")))]
    pub allowed_origins: Vec<String>,
}

/// Hosts that maru may connect to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundSettings {
    /// Hosts of servers other than this machine: names, addresses, or `*.example.com` for all hosts of a domain on the internet. A private address or name must be listed itself. If maru listens on an address other than loopback, a server on this machine must be listed too, preferably with its port, such as `127.0.0.1:8081`. Servers of `mcp.servers` need no entry.
    #[schemars(inner(regex(
        pattern = r"^(\*\.)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])$|^(localhost|127(\.[0-9]{1,3}){3}|\[::1\]):[0-9]{1,5}$"
    )))]
    pub allowed_hosts: Vec<String>,
}

/// MCP servers and how maru connects to them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct McpSettings {
    /// Servers to register on first start. A server that is already registered is not changed, one that was removed is not added again, and one without a name is skipped.
    pub servers: Vec<McpServerDefinition>,
    /// Where `maru servers search` and the console find servers: the address of an MCP registry, such as `https://registry.modelcontextprotocol.io` or another maru, or a file with an answer of its API (`{"servers": […]}`). The address may be private, like those of `mcp.servers`.
    pub registry: Option<String>,
    /// Milliseconds that connecting to a server may take.
    #[schemars(range(min = 100, max = 600_000))]
    pub connect_timeout_ms: u64,
    /// Milliseconds that a request which registers or connects a server, and an agent run that names one, wait for it. After that maru continues to connect in the background, and the response says `CONNECTING`.
    #[schemars(range(min = 0, max = 600_000))]
    pub connect_wait_ms: u64,
    /// Milliseconds that a client of 2026-07-28 has to answer a question of a server with a session, such as a request for approval. After that the server receives an error. While it waits, questions for other clients of that connection may be refused.
    #[schemars(range(min = 100, max = 3_600_000))]
    pub input_timeout_ms: u64,
    /// Which servers may be registered.
    pub security: McpSecuritySettings,
    /// How maru reconnects lost servers.
    pub reconnection: ReconnectionSettings,
    /// Resource limits of each stdio server.
    pub programs: ProgramSettings,
}

/// A server to register at start.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct McpServerDefinition {
    /// Unique name: a-z, 0-9, `-` and `_`.
    pub name: String,
    /// Transport: `stdio`, `sse` or `http`.
    #[serde(default = "default_transport")]
    #[schemars(regex(pattern = r"^(stdio|sse|http|STDIO|SSE|HTTP)$"))]
    pub transport: String,
    /// URL of an SSE or HTTP server.
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
    /// Environment variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, SecretString>,
    /// Working directory of the program.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Which of the hubs that share a PostgreSQL database run the program: `each` runs its own, `single` has one hub run it for all. The default is `each`.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(each|single)$"))]
    pub run: Option<String>,
    /// How maru authenticates at an SSE or HTTP server. If absent, maru asks for a sign-in when the server wants one.
    #[serde(default)]
    pub auth: Option<McpAuthSettings>,
    /// Description for people.
    #[serde(default)]
    pub description: Option<String>,
    /// Version of the server itself.
    #[serde(default)]
    pub version: Option<String>,
    /// Whether maru connects it at start.
    #[serde(default = "default_auto_connect")]
    pub auto_connect: bool,
    /// What happens to a tool whose definition changes: `pin` withholds it until an admin accepts it, `follow` keeps it available.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(pin|follow)$"))]
    pub trust: Option<String>,
    /// Required protocol version, such as `2025-06-18`, for a server that fails in a version that it claims to support. The default is the newest version that both support.
    #[serde(default)]
    #[schemars(regex(pattern = r"^(2024-11-05|2025-03-26|2025-06-18|2025-11-25|2026-07-28)$"))]
    pub protocol_version: Option<String>,
}

/// How maru authenticates at a remote server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpAuthSettings {
    /// `oauth`: a person signs in; `client_credentials`: maru gets tokens for itself; `bearer`: the token below; `none`: maru never signs in. The default is `oauth`.
    #[schemars(regex(pattern = r"^(oauth|client_credentials|bearer|none)$"))]
    pub r#type: Option<String>,
    /// Whether each caller signs in with an account of its own (`oauth`).
    pub per_user: bool,
    /// maru's client id at the authorization server, if it was registered there by hand.
    pub client_id: Option<String>,
    /// Secret of that client.
    pub client_secret: Option<SecretString>,
    /// Private key of that client (PKCS #8 in PEM), instead of a secret (`client_credentials`).
    pub private_key: Option<SecretString>,
    /// Token of type `bearer`.
    pub token: Option<SecretString>,
    /// Scopes to request instead of those that the server names.
    pub scopes: Vec<String>,
}

/// Which servers may be registered.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct McpSecuritySettings {
    /// Server names that may be registered; empty allows every name.
    pub allowed_server_names: Vec<String>,
    /// Programs that may be started as stdio servers. A name means the program on the search path, an absolute path means that file; an entry with arguments (`npx -y @scope/server /data`) allows exactly those. Empty allows every program; shells and code on the command line then need consent. A hub that other machines can reach starts only programs listed here with their arguments, or in `mcp.servers`.
    pub allowed_commands: Vec<String>,
    /// Maximum characters of a tool's result for every caller. Longer text is truncated with a note; a longer image or structure is an error. If unset, only `maru call` truncates text, after 50,000.
    #[schemars(range(min = 100, max = 10_000_000))]
    pub max_tool_output_length: Option<usize>,
    /// Maximum number of registered servers.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_servers: usize,
}

/// How maru reconnects lost servers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ReconnectionSettings {
    /// Whether maru reconnects a lost server automatically, after a delay and when one of its tools is called.
    pub enabled: bool,
    /// Attempts before maru stops retrying.
    #[schemars(range(min = 1, max = 1000))]
    pub max_attempts: u32,
    /// Milliseconds before the first attempt.
    #[schemars(range(min = 10, max = 3_600_000))]
    pub initial_delay_ms: u64,
    /// Factor by which the delay grows with each attempt.
    #[schemars(range(min = 1.0, max = 100.0))]
    pub multiplier: f64,
    /// Longest delay in milliseconds. Each delay is varied at random by up to a quarter.
    #[schemars(range(min = 10, max = 86_400_000))]
    pub max_delay_ms: u64,
}

fn default_transport() -> String {
    "sse".to_owned()
}

fn default_auto_connect() -> bool {
    true
}

/// The log on stderr.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSettings {
    /// Minimum severity of logged messages.
    pub level: LogLevelSetting,
    /// Format of log messages.
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

/// Format of log messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum LogFormat {
    /// Readable lines.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            public_url: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 20006)),
            data_dir: PathBuf::from("~/.local/share/maru"),
            require_token: false,
            local_admin: false,
            tls: TlsSettings::default(),
            behind_tls_proxy: false,
            allow_stdio_over_http: false,
            oauth: OAuthSettings::default(),
            oidc: OidcSettings::default(),
            sample_data: true,
            store_url: None,
            seal_key_file: None,
            hub: HubSettings::default(),
            http: HttpSettings::default(),
            outbound: OutboundSettings::default(),
            mcp: McpSettings::default(),
            tool_search: ToolSearchSettings::default(),
            toolsets: Vec::new(),
            embedding: EmbeddingSettings::default(),
            chromadb: ChromaDbSettings::default(),
            pgvector: None,
            postgresql: PostgresSettings::default(),
            sources: Vec::new(),
            sql_error_flag: false,
            models: Vec::new(),
            ollama: "http://127.0.0.1:11434".to_owned(),
            chat: ChatSettings::default(),
            usage: UsageSettings::default(),
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
            registry: None,
            connect_timeout_ms: 30_000,
            connect_wait_ms: 5_000,
            input_timeout_ms: 120_000,
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

impl Config {
    /// Whether the store is in memory, so that nothing is left behind when maru stops.
    pub fn is_ephemeral(&self) -> bool {
        self.store_url
            .as_ref()
            .is_some_and(|it| it.reveal() == "memory")
    }

    /// Whether only programs on this machine can reach maru.
    pub fn is_loopback_only(&self) -> bool {
        self.listen.ip().is_loopback() && !self.behind_tls_proxy
    }

    /// Whether programs on this machine that send no token act as admin.
    pub fn allows_local_admin(&self) -> bool {
        self.local_admin && self.is_loopback_only() && !self.require_token
    }

    /// The command line that reaches the hub with these settings: the full path of the
    /// program, and the data directory unless it is the default.
    pub fn command_words(&self) -> Vec<String> {
        let own = || env::current_exe().ok().filter(|it| it.ends_with("maru"));
        // `/proc/self/exe` by its name.
        let warden = self.warden.as_ref();
        let program = warden.and_then(|it| fs::canonicalize(it).ok());
        let program = program.or_else(own);
        let program = program.as_deref().and_then(Path::to_str).unwrap_or("maru");
        let mut words = vec![program.to_owned()];
        let default = Self::default().data_dir;
        let default = default
            .strip_prefix("~")
            .ok()
            .and_then(|it| Some(Path::new(&env::var_os("HOME")?).join(it)));
        if default.as_ref() != Some(&self.data_dir) {
            let directory = std::path::absolute(&self.data_dir);
            let directory = directory.as_ref().unwrap_or(&self.data_dir);
            words.push("--data-dir".to_owned());
            words.push(directory.to_string_lossy().into_owned());
        }
        words
    }

    /// Whether every request needs a token.
    pub fn requires_token(&self) -> bool {
        self.require_token || !self.is_loopback_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_names_the_data_directory_of_its_hub() {
        let config = Config {
            warden: Some("/bin/sh".into()),
            data_dir: "/tmp/a b".into(),
            ..Config::default()
        };
        let command = config.command_words();
        assert!(command[0].starts_with('/'), "{command:?}");
        assert_eq!(command[1..], ["--data-dir", "/tmp/a b"]);
        let home = env::var_os("HOME").unwrap();
        let default = Config {
            data_dir: Path::new(&home).join(".local/share/maru"),
            ..config
        };
        assert_eq!(default.command_words().len(), 1);
    }
}
