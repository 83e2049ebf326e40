//! The transport of a server: parsed from its configuration, and displayed without
//! secrets.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    remote_auth::RemoteAuth,
    server::{InvalidField, MASK, invalid_field},
    unmask::{refuse_mask, restore_masked_arguments, restore_masked_url},
};
use maru_config::{SecretString, mask_arguments, mask_secrets, masked_argument_values};

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A child process.
    Stdio(ProgramSpec),
    /// HTTP+SSE of 2024-11-05.
    Sse(RemoteEndpoint),
    /// Streamable HTTP.
    Http(RemoteEndpoint),
}

/// The program of a stdio server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramSpec {
    /// A program name in the search path, or an absolute path.
    pub command: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to the few inherited ones.
    pub env: BTreeMap<String, SecretString>,
    /// The working directory.
    pub cwd: Option<String>,
    /// Which of the hubs that share a store run it.
    pub run: ProgramRun,
}

/// Which of the hubs that share a store run a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgramRun {
    /// Each hub runs its own.
    #[default]
    Each,
    /// One hub runs it, for all of them.
    Single,
}

/// The endpoint of a remote server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// The URL.
    pub url: String,
    /// Headers sent with every request.
    pub headers: BTreeMap<String, SecretString>,
    /// How maru authenticates.
    pub auth: RemoteAuth,
}

impl ProgramRun {
    /// Parses `each` or `single`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "each" => Some(Self::Each),
            "single" => Some(Self::Single),
            _ => None,
        }
    }
}

impl RemoteEndpoint {
    /// Whether the headers contain a token already, so that maru does not sign in.
    pub(super) fn has_authorization_header(&self) -> bool {
        self.headers
            .keys()
            .any(|it| it.eq_ignore_ascii_case("authorization"))
    }
}

impl Transport {
    /// Parses the `config` of a transport. Masked secrets are taken from `before`.
    pub(super) fn parse(
        kind: &str,
        config: &Value,
        before: Option<&Self>,
    ) -> Result<Self, InvalidField> {
        let members = config
            .as_object()
            .ok_or_else(|| invalid_field("config", "must be an object"))?;
        let known: &[&str] = match kind {
            "STDIO" => &["command", "args", "env", "cwd", "run"],
            "SSE" | "HTTP" => &["url", "headers", "auth"],
            _ => {
                return Err(invalid_field(
                    "transportType",
                    format!("{kind:?} is unknown; use STDIO, SSE or HTTP"),
                ));
            }
        };
        if let Some(unknown) = members.keys().find(|it| !known.contains(&it.as_str())) {
            let reason = format!("unknown for {kind}; known are {}", known.join(", "));
            return Err(invalid_field(format!("config.{unknown}"), reason));
        }
        Ok(match kind {
            "STDIO" => Self::Stdio(parse_program(members, before)?),
            "SSE" => Self::Sse(parse_remote(members, before)?),
            _ => Self::Http(parse_remote(members, before)?),
        })
    }

    /// Returns `STDIO`, `SSE` or `HTTP`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "STDIO",
            Self::Sse(_) => "SSE",
            Self::Http(_) => "HTTP",
        }
    }

    /// Returns the URL of a remote server.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Stdio(_) => None,
            Self::Sse(remote) | Self::Http(remote) => Some(&remote.url),
        }
    }

    /// Returns the `config` with its secrets, for the store only.
    pub fn config_with_secrets(&self) -> Value {
        self.config_with(|secret| secret.reveal().to_owned())
    }

    /// Returns the `config` for editors, without `env` and `headers`, which can only be
    /// replaced.
    pub fn editable_config(&self) -> Value {
        self.config_with(|_| MASK.to_owned())
    }

    /// Returns the `config` with everything masked that looks like a secret.
    pub fn masked_config(&self) -> Value {
        let mut config = self.editable_config();
        match self {
            Self::Stdio(it) => config["args"] = mask_arguments(&it.args).into(),
            Self::Sse(it) | Self::Http(it) => config["url"] = mask_secrets(&it.url).into(),
        }
        config
    }

    /// Returns the command line or the URL, with everything masked that looks like a
    /// secret.
    pub fn display_target(&self) -> String {
        match self {
            Self::Stdio(program) => {
                let args = mask_arguments(&program.args);
                let words = std::iter::once(&program.command).chain(&args);
                words.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            Self::Sse(remote) | Self::Http(remote) => mask_secrets(&remote.url),
        }
    }

    fn config_with(&self, text: impl Fn(&SecretString) -> String) -> Value {
        let map = |all: &BTreeMap<String, SecretString>| -> Map<String, Value> {
            all.iter()
                .map(|(name, it)| (name.clone(), text(it).into()))
                .collect()
        };
        match self {
            Self::Stdio(it) => {
                let mut config =
                    json!({"command": it.command, "args": it.args, "env": map(&it.env)});
                if let Some(cwd) = &it.cwd {
                    config["cwd"] = cwd.as_str().into();
                }
                if it.run == ProgramRun::Single {
                    config["run"] = "single".into();
                }
                config
            }
            Self::Sse(it) | Self::Http(it) => {
                let mut config = json!({"url": it.url, "headers": map(&it.headers)});
                if let Some(auth) = it.auth.to_json(&text) {
                    config["auth"] = auth;
                }
                config
            }
        }
    }

    /// Masks in `text` everything that looks like a secret, and this server's own
    /// secrets.
    pub fn redact(&self, text: &str) -> String {
        let arguments = match self {
            Self::Stdio(it) => masked_argument_values(&it.args),
            Self::Sse(_) | Self::Http(_) => Vec::new(),
        };
        let configured = self.parse_secrets().into_iter().flat_map(BTreeMap::values);
        let auth = self.remote_auth().into_iter().flat_map(RemoteAuth::secrets);
        let configured = configured
            .chain(auth)
            .map(SecretString::reveal)
            .filter(|it| it.len() >= 4);
        let all = configured.chain(arguments.iter().map(String::as_str));
        mask_secrets(&all.fold(text.to_owned(), |text, it| text.replace(it, MASK)))
    }

    /// Returns how maru authenticates at a remote server.
    pub fn remote_auth(&self) -> Option<&RemoteAuth> {
        match self {
            Self::Stdio(_) => None,
            Self::Sse(remote) | Self::Http(remote) => Some(&remote.auth),
        }
    }

    fn parse_secrets(&self) -> Option<&BTreeMap<String, SecretString>> {
        match self {
            Self::Stdio(it) => Some(&it.env),
            Self::Sse(it) | Self::Http(it) => Some(&it.headers),
        }
    }
}

fn parse_program(
    members: &Map<String, Value>,
    before: Option<&Transport>,
) -> Result<ProgramSpec, InvalidField> {
    let args = match members.get("args").unwrap_or(&Value::Null) {
        Value::Null => Vec::new(),
        Value::Array(items) => items
            .iter()
            .map(|it| text_without_nul(it, "config.args"))
            .collect::<Result<_, _>>()?,
        _ => return Err(invalid_field("config.args", "must be a list of texts")),
    };
    let args = match before {
        Some(Transport::Stdio(before)) => restore_masked_arguments(args, &before.args)?,
        _ => args,
    };
    if before.is_none() {
        for arg in &args {
            refuse_mask("config.args", arg)?;
        }
    }
    let program = ProgramSpec {
        command: required_config_text(members, "command")?,
        args,
        env: secrets(members, "env", before.and_then(Transport::parse_secrets))?,
        cwd: members
            .get("cwd")
            .filter(|it| !it.is_null())
            .map(|it| text_without_nul(it, "config.cwd"))
            .transpose()?,
        run: match members.get("run").filter(|it| !it.is_null()) {
            None => ProgramRun::Each,
            Some(name) => name
                .as_str()
                .and_then(ProgramRun::parse)
                .ok_or_else(|| invalid_field("config.run", "must be each or single"))?,
        },
    };
    Ok(program)
}

fn parse_remote(
    members: &Map<String, Value>,
    before: Option<&Transport>,
) -> Result<RemoteEndpoint, InvalidField> {
    let url = required_config_text(members, "url")?;
    let remote = RemoteEndpoint {
        url: match before {
            Some(Transport::Sse(before) | Transport::Http(before)) => {
                restore_masked_url(url, &before.url)?
            }
            _ => {
                refuse_mask("config.url", &url)?;
                url
            }
        },
        headers: secrets(
            members,
            "headers",
            before.and_then(Transport::parse_secrets),
        )?,
        auth: RemoteAuth::parse(
            members.get("auth").unwrap_or(&Value::Null),
            before.and_then(Transport::remote_auth),
        )?,
    };
    check_single_authorization(&remote)?;
    for (name, value) in &remote.headers {
        let good = hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && hyper::header::HeaderValue::from_str(value.reveal()).is_ok();
        let reserved = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "accept",
            "content-type",
        ];
        if !good || reserved.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(invalid_field(
                format!("config.headers.{name}"),
                "is no header that can be set",
            ));
        }
    }
    Ok(remote)
}

/// Refuses an `Authorization` header beside settings that write another one.
fn check_single_authorization(remote: &RemoteEndpoint) -> Result<(), InvalidField> {
    let is_set = remote.has_authorization_header();
    let is_default = matches!(remote.auth, RemoteAuth::Off) || remote.auth == RemoteAuth::default();
    if is_set && !is_default {
        let reason = "cannot be combined with the header Authorization; use one of them";
        return Err(invalid_field("config.auth", reason));
    }
    Ok(())
}

fn required_config_text(members: &Map<String, Value>, name: &str) -> Result<String, InvalidField> {
    let field = format!("config.{name}");
    let value = members
        .get(name)
        .ok_or_else(|| invalid_field(&field, "is missing"))?;
    let text = text_without_nul(value, &field)?;
    if text.trim().is_empty() {
        Err(invalid_field(&field, "is empty"))
    } else {
        Ok(text)
    }
}

fn text_without_nul(value: &Value, field: &str) -> Result<String, InvalidField> {
    match value.as_str() {
        None => Err(invalid_field(field, "must be text")),
        Some(text) if text.contains('\0') => Err(invalid_field(field, "has a NUL character")),
        Some(text) => Ok(text.to_owned()),
    }
}

fn secrets(
    members: &Map<String, Value>,
    name: &str,
    before: Option<&BTreeMap<String, SecretString>>,
) -> Result<BTreeMap<String, SecretString>, InvalidField> {
    let field = format!("config.{name}");
    let values = match members.get(name).unwrap_or(&Value::Null) {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(values) => values,
        _ => return Err(invalid_field(field, "must be an object of texts")),
    };
    let read = |(key, value): (&String, &Value)| {
        let text = text_without_nul(value, &format!("{field}.{key}"))?;
        let kept = before.and_then(|it| it.get(key)).filter(|_| text == MASK);
        if kept.is_none() && text == MASK {
            refuse_mask(&format!("{field}.{key}"), &text)?;
        }
        Ok((
            key.clone(),
            kept.cloned().unwrap_or_else(|| SecretString::from(text)),
        ))
    };
    values.iter().map(read).collect()
}
