//! Which names a statement may have.
//!
//! A name is looked at wherever it stands, quoted or not, because functions can
//! be called as `value.function` and no parser of ours would know every form.
//! Which relations a statement means is then asked of the server, in [`means`].

use std::collections::HashSet;

use super::catalogue::{Catalogue, Oid};
use crate::source::{Error, lexer::Kind, statement::Statement};

/// Keywords that tell about the connection.
const TELLING: &[&str] = &[
    "current_catalog",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "system_user",
    "user",
];

/// Refuses a statement that names what it may not use.
pub(super) fn names(statement: &Statement, catalogue: &Catalogue) -> Result<(), Error> {
    let hidden = hidden(statement, catalogue);
    let local = local(statement);
    for (at, token) in statement.tokens().iter().enumerate() {
        let place = Place { statement, at };
        let refused = match statement.name(at) {
            Some(name) => place.refused(&name, catalogue, &local, &hidden),
            None => {
                let text = statement.text(token);
                let is_bad = token.kind == Kind::Operator && catalogue.operators.contains(text);
                is_bad.then(|| refusal("the operator", text, "may not be used"))
            }
        };
        if let Some(error) = refused {
            return Err(statement.at_token(error, at));
        }
    }
    Ok(())
}

/// Whether the server knows relations that the catalogue does not: they are new.
pub(super) fn is_outdated(catalogue: &Catalogue, locked: &[Oid]) -> bool {
    let known = |it: &Oid| catalogue.relations.contains_key(it);
    !locked.iter().all(known)
}

/// Refuses a statement that reads what it may not. `locked` is what the server
/// locked for it: all that it means, and what is behind views.
pub(super) fn means(
    statement: &Statement,
    catalogue: &Catalogue,
    locked: &[Oid],
) -> Result<(), Error> {
    let behind = behind_views(statement, catalogue);
    for oid in locked {
        let known = catalogue.relations.get(oid);
        let fine = known.is_some_and(|it| it.is_system || it.is_allowed) || behind.contains(oid);
        if !fine {
            let name = known.map_or("?", |it| it.name.as_str());
            return Err(refusal(
                "the relation",
                name,
                "is not one that this source offers",
            ));
        }
    }
    Ok(())
}

fn refusal(what: &str, name: &str, why: &str) -> Error {
    Error::Refused(format!("{what} {name} {why}"))
}

/// What the allowed relations that the statement names read on their own.
fn behind_views(statement: &Statement, catalogue: &Catalogue) -> HashSet<Oid> {
    let names = (0..statement.tokens().len()).filter_map(|at| statement.name(at));
    let named = names.flat_map(|it| catalogue.by_name.get(&it).cloned().unwrap_or_default());
    let read = named.filter_map(|it| catalogue.dependencies.get(&it));
    read.flatten().copied().collect()
}

/// The names of those that may be read through a view only.
fn hidden(statement: &Statement, catalogue: &Catalogue) -> HashSet<String> {
    let behind = behind_views(statement, catalogue);
    let behind = behind.iter().filter_map(|it| catalogue.relations.get(it));
    behind
        .filter(|it| !it.is_allowed)
        .map(|it| it.name.clone())
        .collect()
}

/// The names that the statement itself gives to something.
fn local(statement: &Statement) -> HashSet<String> {
    let gives = |at: &usize| {
        let before = at.checked_sub(1).is_some_and(|before| {
            ["AS", "WITH", "RECURSIVE"]
                .iter()
                .any(|it| statement.is_word(before, it))
        });
        let body = statement.kind(at + 2) == Some(Kind::Open)
            || ["MATERIALIZED", "NOT"]
                .iter()
                .any(|it| statement.is_word(at + 2, it));
        before || (body && statement.is_word(at + 1, "AS"))
    };
    let places = (0..statement.tokens().len()).filter(gives);
    places.filter_map(|at| statement.name(at)).collect()
}

impl Catalogue {
    /// Whether a name can only mean a relation that may not be read. Names that
    /// also mean something else are left to [`means`].
    fn is_refused(&self, name: &str, local: &HashSet<String>, hidden: &HashSet<String>) -> bool {
        let Some(oids) = self.by_name.get(name) else {
            return false;
        };
        let relations = || oids.iter().filter_map(|it| self.relations.get(it));
        if relations().any(|it| it.is_system) || hidden.contains(name) {
            return true;
        }
        let in_reach = |it: &super::catalogue::Relation| it.schema != "information_schema";
        let other = self.columns.contains(name) || local.contains(name);
        relations().any(in_reach) && !other && !relations().any(|it| it.is_allowed)
    }
}

struct Place<'a> {
    statement: &'a Statement,
    at: usize,
}

impl Place<'_> {
    /// Why this name may not stand here.
    fn refused(
        &self,
        name: &str,
        catalogue: &Catalogue,
        local: &HashSet<String>,
        hidden: &HashSet<String>,
    ) -> Option<Error> {
        let (what, why) = if self.tells(name) || self.is_foreign_schema(name) {
            ("the name", "tells about the server")
        } else if self.calls(name, catalogue) {
            ("the function", "may not be called")
        } else if catalogue.is_refused(name, local, hidden) {
            ("the relation", "is not one that this source offers")
        } else if self.is_type() && catalogue.types.contains(name) {
            ("the type", "may not be used")
        } else {
            return None;
        };
        Some(refusal(what, name, why))
    }

    fn before(&self) -> Option<Kind> {
        self.at
            .checked_sub(1)
            .and_then(|it| self.statement.kind(it))
    }

    fn after(&self) -> Option<Kind> {
        self.statement.kind(self.at + 1)
    }

    fn is_after_word(&self, word: &str) -> bool {
        self.at
            .checked_sub(1)
            .is_some_and(|it| self.statement.is_word(it, word))
    }

    fn tells(&self, name: &str) -> bool {
        self.statement.kind(self.at) == Some(Kind::Word)
            && TELLING.contains(&name)
            && self.before() != Some(Kind::Dot)
            && !self.is_after_word("AS")
    }

    fn is_foreign_schema(&self, name: &str) -> bool {
        let foreign =
            name == "information_schema" || name == "pg_toast" || name.starts_with("pg_temp");
        foreign && self.after() == Some(Kind::Dot)
    }

    fn calls(&self, name: &str, catalogue: &Catalogue) -> bool {
        let Some(single) = catalogue.functions.get(name) else {
            return false;
        };
        let called = self.after() == Some(Kind::Open) && !self.is_column_list();
        called || (*single && self.before() == Some(Kind::Dot))
    }

    /// `WITH name(…) AS` and `AS name(…)` name columns and call nothing.
    fn is_column_list(&self) -> bool {
        ["AS", "WITH", "RECURSIVE"]
            .iter()
            .any(|it| self.is_after_word(it))
    }

    fn is_type(&self) -> bool {
        matches!(self.before(), Some(Kind::Cast | Kind::Dot))
            || matches!(self.after(), Some(Kind::Text | Kind::Open))
            || self.is_after_word("AS")
    }
}
