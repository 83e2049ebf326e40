//! Keys about who may come in, and how.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, SecretString};

/// The certificate that maru shows where it serves more than this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// PEM file of the certificate and those between it and a known authority.
    #[schemars(with = "Option<String>")]
    pub certificate: Option<PathBuf>,
    /// PEM file of its private key.
    #[schemars(with = "Option<String>")]
    pub key: Option<PathBuf>,
}

/// Tokens that an authorisation server of yours gives out (OAuth 2.1).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OAuthSettings {
    /// The authorisation server, exactly as the tokens' `iss` says it; without one only maru's own tokens are taken.
    pub issuer: Option<String>,
    /// The address at which clients reach maru, such as `https://maru.example.com/mcp`. Tokens must name it in `aud`.
    pub resource: Option<String>,
    /// File of the issuer's public keys (JWKS).
    #[schemars(with = "Option<String>")]
    pub jwks_file: Option<PathBuf>,
    /// Address of the issuer's public keys. It is fetched through the outbound policy, and again when an unknown key is used.
    pub jwks_url: Option<String>,
    /// Milliseconds after which the issuer's keys are read again: a key that was withdrawn is not trusted for longer.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub jwks_refresh_ms: u64,
    /// Milliseconds for which keys are used when they cannot be read again; after that no token of the issuer is accepted.
    #[schemars(range(min = 1000, max = 604_800_000))]
    pub jwks_max_age_ms: u64,
    /// Scopes that make a caller a reader, who may list.
    pub reader_scopes: Vec<String>,
    /// Scopes that make a caller an agent, who may call tools.
    pub agent_scopes: Vec<String>,
    /// Scopes that make a caller an admin.
    pub admin_scopes: Vec<String>,
}

impl Default for OAuthSettings {
    fn default() -> Self {
        let one = |scope: &str| vec![scope.to_owned()];
        Self {
            issuer: None,
            resource: None,
            jwks_file: None,
            jwks_url: None,
            jwks_refresh_ms: 300_000,
            jwks_max_age_ms: 3_600_000,
            reader_scopes: one("maru:read"),
            agent_scopes: one("maru:call"),
            admin_scopes: one("maru:admin"),
        }
    }
}

/// Who did what is kept in the store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSettings {
    /// Whether calls of tools are recorded. Changes always are.
    pub calls: bool,
    /// Days after which a record is removed.
    #[schemars(range(min = 1, max = 36_500))]
    pub max_days: u32,
    /// Records that are kept; the oldest go first.
    #[schemars(range(min = 100, max = 1_000_000_000))]
    pub max_records: i64,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            calls: true,
            max_days: 90,
            max_records: 1_000_000,
        }
    }
}

/// Traces for a collector of OpenTelemetry.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Address of the collector, such as `http://127.0.0.1:4318`; spans go to `/v1/traces` there, as OTLP protobuf over HTTP. Without it nothing is sent.
    pub otlp_endpoint: Option<String>,
    /// Headers that the collector asks for.
    pub headers: BTreeMap<String, SecretString>,
}

/// A key and what is wrong with it.
type InvalidSetting = (&'static str, String);

/// Whether what was asked for can be served safely; names the key that is missing.
pub(super) fn check_security(config: &Config) -> Result<(), InvalidSetting> {
    let tls = &config.tls;
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => return invalid_setting("/tls/key", "is missing beside tls.certificate"),
        (None, Some(_)) => return invalid_setting("/tls/certificate", "is missing beside tls.key"),
        _ => (),
    }
    if !config.is_loopback_only() && tls.certificate.is_none() && !config.behind_tls_proxy {
        let why = format!(
            "{} is not a loopback address, so tokens would travel unencrypted; set tls.certificate and tls.key, or behind_tls_proxy: true where a proxy encrypts, or use 127.0.0.1 or [::1]",
            config.listen.ip()
        );
        return Err(("/listen", why));
    }
    check_oauth(&config.oauth)
}

fn check_oauth(oauth: &OAuthSettings) -> Result<(), InvalidSetting> {
    if oauth.issuer.is_none() {
        return if oauth.resource.is_some() || oauth.jwks_file.is_some() || oauth.jwks_url.is_some()
        {
            invalid_setting("/oauth/issuer", "is missing beside the other keys of oauth")
        } else {
            Ok(())
        };
    }
    if !oauth.resource.as_ref().is_some_and(|it| it.contains("://")) {
        return invalid_setting(
            "/oauth/resource",
            "must be the address at which clients reach maru",
        );
    }
    if oauth.jwks_file.is_some() == oauth.jwks_url.is_some() {
        invalid_setting(
            "/oauth/jwks_url",
            "say where the issuer's keys are: jwks_url or jwks_file, one of them",
        )
    } else {
        Ok(())
    }
}

fn invalid_setting(key: &'static str, why: &str) -> Result<(), InvalidSetting> {
    Err((key, why.to_owned()))
}
