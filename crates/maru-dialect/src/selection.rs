//! Selects the dialects that are parsed: all, or a fixed one.

use std::{fmt, str::FromStr};

/// The dialect of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DialectSelection {
    /// Whatever is found in the text.
    #[default]
    Auto,
    /// Only this one; an entry of [`DIALECT_NAMES`].
    Only(&'static str),
}

/// No dialect has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no dialect is called {0:?}; known are auto, {known}", known = DIALECT_NAMES.join(", "))]
pub struct UnknownDialect(pub String);

/// The dialects that can be fixed, by their names.
pub const DIALECT_NAMES: &[&str] = &[
    "apertus",
    "atem",
    "bare_json",
    "claude_legacy",
    "claude_xml",
    "codeblock_tool",
    "cohere",
    "deepseek_dsml",
    "deepseek_v3",
    "dots",
    "functionary",
    "functiongemma",
    "functools",
    "gemma4",
    "gigachat3",
    "glm",
    "granite",
    "harmony",
    "hermes",
    "hy3",
    "hyperclova_x",
    "inkling",
    "internlm",
    "kimi_k2",
    "kimi_k3",
    "lfm2",
    "llama3",
    "lmstudio",
    "minicpm5",
    "minimax",
    "minimax_m3",
    "mistral",
    "nemotron",
    "olmo3",
    "pythonic",
    "qwen3_xml",
    "qwen_agent",
    "react",
    "sarashina",
    "seed_oss",
    "solar",
    "step3",
    "tag_per_tool",
    "tool_calls",
    "tool_code",
];

/// Dialects that share frames: a frame of the second reads the first as well.
const DIALECTS_SHARING_FRAMES: &[(&str, &str)] = &[
    ("qwen3_xml", "hermes"),
    ("glm", "hermes"),
    ("hy3", "hermes"),
    ("hy3", "tool_calls"),
    ("granite", "hermes"),
    ("kimi_k2", "deepseek_v3"),
    ("step3", "deepseek_v3"),
    ("olmo3", "claude_xml"),
    ("minimax", "tool_calls"),
    ("functools", "granite"),
    ("atem", "harmony"),
    ("cohere", "react"),
    ("llama3", "qwen3_xml"),
    ("llama3", "bare_json"),
    ("mistral", "bare_json"),
    ("sarashina", "bare_json"),
    ("react", "bare_json"),
];

impl DialectSelection {
    /// Whether frames of `dialect` are read.
    pub(super) fn accepts(self, dialect: &str) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => {
                only == dialect || DIALECTS_SHARING_FRAMES.contains(&(only, dialect))
            }
        }
    }
}

impl FromStr for DialectSelection {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        if name == "auto" {
            return Ok(Self::Auto);
        }
        let known = DIALECT_NAMES.iter().find(|it| **it == name);
        known
            .map(|it| Self::Only(it))
            .ok_or_else(|| UnknownDialect(name.to_owned()))
    }
}

impl fmt::Display for DialectSelection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Auto => "auto",
            Self::Only(name) => name,
        })
    }
}
