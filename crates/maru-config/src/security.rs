//! Settings of TLS, OAuth, audit and telemetry, and checks that they are safe together.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, SecretString, layers::InvalidSetting};

/// The TLS certificate of the hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// PEM file of the certificate and its intermediate certificates.
    #[schemars(with = "Option<String>")]
    pub certificate: Option<PathBuf>,
    /// PEM file of the private key.
    #[schemars(with = "Option<String>")]
    pub key: Option<PathBuf>,
}

/// Access tokens of an external authorization server (OAuth 2.1).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OAuthSettings {
    /// The authorization server, exactly as in the tokens' `iss`. If absent, only maru's own tokens are accepted.
    pub issuer: Option<String>,
    /// The URL at which clients reach maru, such as `https://maru.example.com/mcp`. Tokens must name it in `aud`.
    pub resource: Option<String>,
    /// File of the issuer's public keys (JWKS).
    #[schemars(with = "Option<String>")]
    pub jwks_file: Option<PathBuf>,
    /// URL of the issuer's public keys (JWKS). maru fetches it within the outbound policy, and again when a token names an unknown key.
    pub jwks_url: Option<String>,
    /// Milliseconds between reads of the issuer's keys. A withdrawn key is trusted for at most this long.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub jwks_refresh_ms: u64,
    /// Milliseconds that keys are used while they cannot be read again. After that no token of the issuer is accepted.
    #[schemars(range(min = 1000, max = 604_800_000))]
    pub jwks_max_age_ms: u64,
    /// Scopes that map to the role reader, which may list.
    pub reader_scopes: Vec<String>,
    /// Scopes that map to the role agent, which may call tools.
    pub agent_scopes: Vec<String>,
    /// Scopes that map to the role admin.
    pub admin_scopes: Vec<String>,
    /// Whether maru is an authorization server itself: clients register, people sign in with an account of maru and allow them to use it. Its issuer is `public_url`.
    pub serve: bool,
    /// Hosts whose clients may name themselves by the address of a document there (Client ID Metadata Documents), such as `claude.ai`, `chatgpt.com` or `*.example.com`; maru reads it from there. If empty, clients register at maru instead.
    pub client_hosts: Vec<String>,
    /// Milliseconds that an access token of `serve` is valid. Clients renew it by a refresh token.
    #[schemars(range(min = 1000, max = 86_400_000))]
    pub access_token_ms: u64,
}

impl Default for OAuthSettings {
    fn default() -> Self {
        let list_of = |scope: &str| vec![scope.to_owned()];
        Self {
            issuer: None,
            resource: None,
            jwks_file: None,
            jwks_url: None,
            jwks_refresh_ms: 300_000,
            jwks_max_age_ms: 3_600_000,
            reader_scopes: list_of("maru:read"),
            agent_scopes: list_of("maru:call"),
            admin_scopes: list_of("maru:admin"),
            serve: false,
            client_hosts: Vec::new(),
            access_token_ms: 3_600_000,
        }
    }
}

/// People sign in at the company's issuer (`OpenID` Connect), to the console and to allow clients to use maru.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OidcSettings {
    /// The issuer, such as `https://login.example.com`. If absent, nobody signs in by one.
    pub issuer: Option<String>,
    /// The id of maru at the issuer. Its redirect is `/oauth/oidc/callback` at `public_url`.
    pub client_id: Option<String>,
    /// The secret of maru at the issuer, if it has one.
    pub client_secret: Option<SecretString>,
    /// The scopes that maru asks for.
    pub scopes: Vec<String>,
    /// The claim of the id token that names the groups of a person.
    pub groups_claim: String,
    /// Groups whose people have the role reader. `*` is everybody who can sign in.
    pub reader_groups: Vec<String>,
    /// Groups whose people have the role agent.
    pub agent_groups: Vec<String>,
    /// Groups whose people have the role admin.
    pub admin_groups: Vec<String>,
}

impl Default for OidcSettings {
    fn default() -> Self {
        let scopes = ["openid", "profile", "email"];
        Self {
            issuer: None,
            client_id: None,
            client_secret: None,
            scopes: scopes.map(str::to_owned).into(),
            groups_claim: "groups".to_owned(),
            reader_groups: Vec::new(),
            agent_groups: Vec::new(),
            admin_groups: Vec::new(),
        }
    }
}

/// The audit log of calls and changes in the store.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditSettings {
    /// Whether tool calls are recorded. Changes always are.
    pub calls: bool,
    /// Days after which a record is deleted.
    #[schemars(range(min = 1, max = 36_500))]
    pub max_days: u32,
    /// Maximum number of records; the oldest are deleted first.
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

/// Traces for an OpenTelemetry collector.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// URL of the collector, such as `http://127.0.0.1:4318`. Spans are sent to its `/v1/traces` as OTLP protobuf over HTTP. If absent, nothing is sent.
    pub otlp_endpoint: Option<String>,
    /// Headers that the collector requires.
    pub headers: BTreeMap<String, SecretString>,
}

/// Refuses settings that are unsafe or incomplete in combination.
pub(super) fn check_security(config: &Config) -> Result<(), InvalidSetting> {
    let tls = &config.tls;
    match (&tls.certificate, &tls.key) {
        (Some(_), None) => return refuse("/tls/key", "is required with tls.certificate"),
        (None, Some(_)) => return refuse("/tls/certificate", "is required with tls.key"),
        _ => (),
    }
    if !config.is_loopback_only() && tls.certificate.is_none() && !config.behind_tls_proxy {
        let reason = format!(
            "{} is not a loopback address, so tokens would be sent unencrypted; set tls.certificate and tls.key, or behind_tls_proxy: true if a proxy terminates TLS, or use 127.0.0.1 or [::1]",
            config.listen.ip()
        );
        return refuse("/listen", &reason);
    }
    check_local_admin(config)?;
    check_public_url(config)?;
    check_oidc(&config.oidc)?;
    check_oauth(&config.oauth)
}

fn check_oidc(oidc: &OidcSettings) -> Result<(), InvalidSetting> {
    if oidc.issuer.is_some() != oidc.client_id.is_some() {
        return refuse("/oidc", "issuer and client_id are required together");
    }
    if !oidc.scopes.iter().any(|it| it == "openid") {
        return refuse("/oidc/scopes", "must contain openid");
    }
    Ok(())
}

/// Refuses `local_admin` where others than programs on this machine could use it.
fn check_local_admin(config: &Config) -> Result<(), InvalidSetting> {
    if !config.local_admin {
        return Ok(());
    }
    if !config.is_loopback_only() {
        let reason = "would make everyone who reaches maru an admin; it needs a loopback address in listen, and no behind_tls_proxy";
        return refuse("/local_admin", reason);
    }
    if config.require_token {
        let reason = "contradicts require_token: true, which requires a token of every program; set only one of them";
        return refuse("/local_admin", reason);
    }
    Ok(())
}

/// Refuses a public URL whose requests maru would not answer.
fn check_public_url(config: &Config) -> Result<(), InvalidSetting> {
    let Some((scheme, authority)) = config
        .public_url
        .as_deref()
        .and_then(|it| it.split_once("://"))
    else {
        return Ok(());
    };
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    if ["127.0.0.1", "localhost", "[::1]"].contains(&host) {
        return Ok(());
    }
    if scheme != "https" {
        let reason = "must begin with https://, because tokens pass through it";
        return refuse("/public_url", reason);
    }
    let mut allowed = config.http.allowed_hosts.iter();
    if !allowed.any(|it| it.eq_ignore_ascii_case(host)) {
        let reason = format!(
            "names a host that maru does not answer to; add {host:?} to http.allowed_hosts"
        );
        return refuse("/public_url", &reason);
    }
    Ok(())
}

fn check_oauth(oauth: &OAuthSettings) -> Result<(), InvalidSetting> {
    if oauth.issuer.is_none() {
        if oauth.resource.is_some() || oauth.jwks_file.is_some() || oauth.jwks_url.is_some() {
            return refuse("/oauth/issuer", "is required with the other keys of oauth");
        }
        return Ok(());
    }
    if !oauth.resource.as_ref().is_some_and(|it| it.contains("://")) {
        let reason = "must be the URL at which clients reach maru";
        return refuse("/oauth/resource", reason);
    }
    if oauth.jwks_file.is_some() == oauth.jwks_url.is_some() {
        let reason = "set either jwks_url or jwks_file, for the issuer's keys";
        return refuse("/oauth/jwks_url", reason);
    }
    Ok(())
}

fn refuse(pointer: &str, reason: &str) -> Result<(), InvalidSetting> {
    Err(InvalidSetting {
        pointer: pointer.to_owned(),
        reason: reason.to_owned(),
    })
}
