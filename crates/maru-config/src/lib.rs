//! The configuration: file, `.env`, environment and flags as one validated value.
//!
//! The types in `settings` are the only description of the keys. Their JSON Schema
//! validates the input, and `docs/config.md` is generated from it.

#![forbid(unsafe_code)]

mod agent;
mod data;
mod file;
mod layers;
mod limits;
mod models;
mod prefix;
mod programs;
mod reference;
mod schema;
mod security;
mod settings;
mod tools;
mod usage;
mod yaml;

pub use agent::AgentSettings;
pub use data::{
    ChromaDbSettings, EmbeddingSettings, PgvectorSettings, PostgresSettings, QueryBounds,
    SourceDefinition,
};
pub use layers::{
    Error, LoadOptions, LoadedConfig, ValueOrigin, load, parse_model_definition,
    process_environment,
};
pub use limits::LimitSettings;
pub use maru_runtime::{MASK, SecretString, mask_arguments, mask_secrets, masked_argument_values};
pub use models::{
    BackendApi, ChatSettings, ClientMode, ModelDefinition, ModelPrice, StartsInReasoning, ToolMode,
};
pub use programs::ProgramSettings;
pub use reference::{ConfigRow, config_rows, reference_markdown, section_descriptions};
pub use schema::schema;
pub use security::{AuditSettings, OAuthSettings, OidcSettings, TelemetrySettings, TlsSettings};
pub use settings::{
    Config, HttpSettings, HubSettings, LogFormat, LogLevelSetting, LogSettings, McpAuthSettings,
    McpSecuritySettings, McpServerDefinition, McpSettings, OutboundSettings, ReconnectionSettings,
};
pub use tools::{ToolListing, ToolSearchSettings, ToolsetDefinition};
pub use usage::{BudgetDefinition, BudgetPeriod, UsageSettings};
pub use yaml::{has_yaml_aliases, parse_yaml};
