//! How a server is reached, read from its configuration and shown without secrets.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    server::{Invalid, MASK, invalid},
    unmask::{unmasked, unmasked_arguments},
};
use crate::config::{Secret, hidden_of_arguments, masked, masked_arguments};

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A child process.
    Stdio(Program),
    /// HTTP+SSE of 2024-11-05.
    Sse(Remote),
    /// Streamable HTTP.
    Http(Remote),
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A program of the search path, or an absolute path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it gets besides a few harmless ones of ours.
    pub env: BTreeMap<String, Secret>,
    /// Where it starts.
    pub cwd: Option<String>,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The endpoint.
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, Secret>,
}

impl Transport {
    /// Reads what was judged before. Masked secrets are taken from `before`.
    pub(super) fn read(kind: &str, config: &Value, before: Option<&Self>) -> Result<Self, Invalid> {
        let members = config
            .as_object()
            .ok_or_else(|| invalid("config", "must be an object"))?;
        let known: &[&str] = match kind {
            "STDIO" => &["command", "args", "env", "cwd"],
            "SSE" | "HTTP" => &["url", "headers"],
            _ => {
                return Err(invalid(
                    "transportType",
                    format!("{kind:?} is unknown; use STDIO, SSE or HTTP"),
                ));
            }
        };
        if let Some(unknown) = members.keys().find(|it| !known.contains(&it.as_str())) {
            let why = format!("unknown for {kind}; known are {}", known.join(", "));
            return Err(invalid(format!("config.{unknown}"), why));
        }
        Ok(match kind {
            "STDIO" => Self::Stdio(program(members, before)?),
            "SSE" => Self::Sse(remote(members, before)?),
            _ => Self::Http(remote(members, before)?),
        })
    }

    /// `STDIO`, `SSE` or `HTTP`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "STDIO",
            Self::Sse(_) => "SSE",
            Self::Http(_) => "HTTP",
        }
    }

    /// Where it is, if it is reached by an address.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Stdio(_) => None,
            Self::Sse(remote) | Self::Http(remote) => Some(&remote.url),
        }
    }

    /// The `config` of the document, with secrets as they are: for the store only.
    pub fn revealed(&self) -> Value {
        self.config(|secret| secret.reveal().to_owned())
    }

    /// The `config` for whoever may edit it: without `env` and `headers`, which are
    /// only ever replaced.
    pub fn editable(&self) -> Value {
        self.config(|_| MASK.to_owned())
    }

    /// The `config` for everybody else, without anything that looks like a secret.
    pub fn shown(&self) -> Value {
        let mut config = self.editable();
        match self {
            Self::Stdio(it) => config["args"] = masked_arguments(&it.args).into(),
            Self::Sse(it) | Self::Http(it) => config["url"] = masked(&it.url).into(),
        }
        config
    }

    /// The command line or the address, without anything that looks like a secret.
    pub fn target(&self) -> String {
        match self {
            Self::Stdio(program) => {
                let args = masked_arguments(&program.args);
                let words = std::iter::once(&program.command).chain(&args);
                words.map(String::as_str).collect::<Vec<_>>().join(" ")
            }
            Self::Sse(remote) | Self::Http(remote) => masked(&remote.url),
        }
    }

    fn config(&self, text: impl Fn(&Secret) -> String) -> Value {
        let map = |all: &BTreeMap<String, Secret>| -> Map<String, Value> {
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
                config
            }
            Self::Sse(it) | Self::Http(it) => json!({"url": it.url, "headers": map(&it.headers)}),
        }
    }

    /// `text` without what looks like a secret, and without the secrets of this server
    /// whatever they look like.
    pub fn concealed(&self, text: &str) -> String {
        let arguments = match self {
            Self::Stdio(it) => hidden_of_arguments(&it.args),
            Self::Sse(_) | Self::Http(_) => Vec::new(),
        };
        let given = self.secrets().into_iter().flat_map(BTreeMap::values);
        let given = given.map(Secret::reveal).filter(|it| it.len() >= 4);
        let all = given.chain(arguments.iter().map(String::as_str));
        masked(&all.fold(text.to_owned(), |text, it| text.replace(it, MASK)))
    }

    fn secrets(&self) -> Option<&BTreeMap<String, Secret>> {
        match self {
            Self::Stdio(it) => Some(&it.env),
            Self::Sse(it) | Self::Http(it) => Some(&it.headers),
        }
    }
}

fn program(members: &Map<String, Value>, before: Option<&Transport>) -> Result<Program, Invalid> {
    let args = match members.get("args").unwrap_or(&Value::Null) {
        Value::Null => Vec::new(),
        Value::Array(items) => items
            .iter()
            .map(|it| plain(it, "config.args"))
            .collect::<Result<_, _>>()?,
        _ => return Err(invalid("config.args", "must be a list of texts")),
    };
    let args = match before {
        Some(Transport::Stdio(before)) => unmasked_arguments(args, &before.args)?,
        _ => args,
    };
    let program = Program {
        command: required(members, "command")?,
        args,
        env: secrets(members, "env", before.and_then(Transport::secrets))?,
        cwd: members
            .get("cwd")
            .filter(|it| !it.is_null())
            .map(|it| plain(it, "config.cwd"))
            .transpose()?,
    };
    Ok(program)
}

fn remote(members: &Map<String, Value>, before: Option<&Transport>) -> Result<Remote, Invalid> {
    let url = required(members, "url")?;
    let remote = Remote {
        url: match before {
            Some(Transport::Sse(before) | Transport::Http(before)) => unmasked(url, &before.url)?,
            _ => url,
        },
        headers: secrets(members, "headers", before.and_then(Transport::secrets))?,
    };
    for (name, value) in &remote.headers {
        let good = hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && hyper::header::HeaderValue::from_str(value.reveal()).is_ok();
        let ours = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "accept",
            "content-type",
        ];
        if !good || ours.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(invalid(
                format!("config.headers.{name}"),
                "is no header that can be set",
            ));
        }
    }
    Ok(remote)
}

fn required(members: &Map<String, Value>, name: &str) -> Result<String, Invalid> {
    let field = format!("config.{name}");
    let value = members
        .get(name)
        .ok_or_else(|| invalid(&field, "is missing"))?;
    let text = plain(value, &field)?;
    match text.trim().is_empty() {
        true => Err(invalid(&field, "is empty")),
        false => Ok(text),
    }
}

fn plain(value: &Value, field: &str) -> Result<String, Invalid> {
    match value.as_str() {
        None => Err(invalid(field, "must be text")),
        Some(text) if text.contains('\0') => Err(invalid(field, "has a NUL character")),
        Some(text) => Ok(text.to_owned()),
    }
}

fn secrets(
    members: &Map<String, Value>,
    name: &str,
    before: Option<&BTreeMap<String, Secret>>,
) -> Result<BTreeMap<String, Secret>, Invalid> {
    let field = format!("config.{name}");
    let given = match members.get(name).unwrap_or(&Value::Null) {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(given) => given,
        _ => return Err(invalid(field, "must be an object of texts")),
    };
    let read = |(key, value): (&String, &Value)| {
        let text = plain(value, &format!("{field}.{key}"))?;
        let kept = before.and_then(|it| it.get(key)).filter(|_| text == MASK);
        Ok((
            key.clone(),
            kept.cloned().unwrap_or_else(|| Secret::from(text)),
        ))
    };
    given.iter().map(read).collect()
}
