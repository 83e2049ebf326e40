//! Sets of scopes, and which of them a sign-in requests. Pure.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// Further scopes of one list are ignored.
const MAX_SCOPES: usize = 100;
/// Longer scopes are ignored.
const MAX_SCOPE_BYTES: usize = 256;
/// The scope of `OpenID` Connect that asks for a refresh token.
const OFFLINE_ACCESS: &str = "offline_access";

/// A set of scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ScopeSet(BTreeSet<String>);

impl ScopeSet {
    /// Parses scopes that are separated by spaces.
    pub fn parse(text: &str) -> Self {
        text.split(' ').collect()
    }

    /// Whether there is no scope.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all scopes of `other` are among these.
    pub fn contains(&self, other: &Self) -> bool {
        other.0.is_subset(&self.0)
    }

    /// Returns the scopes of both sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.0.union(&other.0).map(String::as_str).collect()
    }

    /// Chooses the scopes of a sign-in as MCP orders: those of the challenge, else those
    /// that the resource supports, else none. `before` are the scopes of earlier sign-ins,
    /// which are kept. A refresh token is requested where the authorization server has a
    /// scope for it.
    pub fn choose(
        challenged: Option<&Self>,
        resource: Option<&Self>,
        before: &Self,
        issuer: &Self,
    ) -> Self {
        let base = challenged.or(resource).cloned().unwrap_or_default();
        let mut chosen = base.union(before);
        if !chosen.is_empty() && issuer.0.contains(OFFLINE_ACCESS) {
            chosen.0.insert(OFFLINE_ACCESS.to_owned());
        }
        chosen
    }

    /// Whether a refresh token is requested by scope.
    pub(super) fn has_offline_access(&self) -> bool {
        self.0.contains(OFFLINE_ACCESS)
    }
}

impl<'a> FromIterator<&'a str> for ScopeSet {
    fn from_iter<T: IntoIterator<Item = &'a str>>(scopes: T) -> Self {
        // RFC 6749, section 3.3.
        let is_valid = |it: &&str| {
            (1..=MAX_SCOPE_BYTES).contains(&it.len())
                && it
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
        };
        let valid = scopes.into_iter().filter(is_valid).take(MAX_SCOPES);
        Self(valid.map(str::to_owned).collect())
    }
}

impl fmt::Display for ScopeSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, scope) in self.0.iter().enumerate() {
            if at > 0 {
                out.write_str(" ")?;
            }
            out.write_str(scope)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_come_from_the_challenge_then_the_resource_and_earlier_ones_are_kept() {
        let check =
            |challenged: &str, resource: &str, before: &str, issuer: &str, expected: &str| {
                let set = |text: &str| Some(ScopeSet::parse(text)).filter(|it| !it.is_empty());
                let chosen = ScopeSet::choose(
                    set(challenged).as_ref(),
                    set(resource).as_ref(),
                    &ScopeSet::parse(before),
                    &ScopeSet::parse(issuer),
                );
                assert_eq!(chosen.to_string(), expected);
            };
        check("a", "b c", "", "a b c", "a");
        check("", "b c", "", "", "b c");
        check("", "", "", "x y", "");
        check("write", "", "read", "", "read write");
        check("a", "", "", "a offline_access", "a offline_access");
        check("", "", "", "offline_access", "");
    }

    #[test]
    fn invalid_scopes_are_left_out() {
        let long = "x".repeat(300);
        let parsed = ScopeSet::parse(&format!("a  b\" c\\ 한 {long} d"));
        assert_eq!(parsed.to_string(), "a d");
    }
}
