//! The names and outcomes that filters take, and suggestions for misspelt ones.

use anyhow::Result;

use super::{client::HubClient, limits::names_of, suggestion::did_you_mean, terminal};

/// How a call can end.
const CALL_OUTCOMES: [&str; 5] = ["ok", "failed", "refused", "cancelled", "timed_out"];

/// What a name belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameKind {
    Token,
    Tool,
    Server,
    Model,
}

impl NameKind {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Tool => "tool",
            Self::Server => "server",
            Self::Model => "model",
        }
    }

    /// The names that exist at the hub.
    pub(super) async fn known(self, hub: &HubClient) -> Result<Vec<String>> {
        let (path, own): (_, &[&str]) = match self {
            Self::Token => ("/api/tokens", &["admin", "local"]),
            Self::Tool => ("/api/tools", &[]),
            Self::Server => ("/api/mcp/servers", &["maru"]),
            Self::Model => ("/v1/models", &[]),
        };
        let list = hub.request_json("GET", path, None).await?;
        let mut known = match self {
            Self::Model => names_of(&list["data"], "id"),
            _ => names_of(&list, "name"),
        };
        known.extend(own.iter().map(|it| (*it).to_owned()));
        Ok(known)
    }
}

/// Says which of the names of a filter that found nothing do not exist. They may have existed
/// when the records were written, so this is no error.
pub(super) async fn print_similar_names(hub: &HubClient, names: &[(NameKind, Option<&str>)]) {
    for (kind, name) in names {
        let Some(name) = name else { continue };
        // Whoever may not list the names gets no suggestion.
        let known = kind.known(hub).await.unwrap_or_default();
        if !known.is_empty() && !known.iter().any(|it| it == name) {
            let similar = did_you_mean(name, &known);
            terminal::print_note(&format!("no {} is named {name:?}{similar}", kind.noun()));
        }
    }
}

/// Parses the outcomes of calls, separated by commas.
pub(super) fn parse_call_outcomes(text: &str) -> Result<String, String> {
    let unknown = text
        .split(',')
        .find(|it| *it != "error" && !CALL_OUTCOMES.contains(it));
    match unknown {
        None => Ok(text.to_owned()),
        Some(unknown) => Err(format!(
            "an outcome is one of {} or error (failed, refused or timed out){}",
            CALL_OUTCOMES.join(", "),
            did_you_mean(unknown, CALL_OUTCOMES)
        )),
    }
}

/// Parses the outcome of an audit record: of a call, or the HTTP status of a change.
pub(super) fn parse_audit_outcome(text: &str) -> Result<String, String> {
    let is_status = text.parse().is_ok_and(|it: u16| (100..600).contains(&it));
    if is_status || text == "unknown" || CALL_OUTCOMES.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "an outcome is one of {}, unknown or an HTTP status{}",
        CALL_OUTCOMES.join(", "),
        did_you_mean(text, CALL_OUTCOMES)
    ))
}
