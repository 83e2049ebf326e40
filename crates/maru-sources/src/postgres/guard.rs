//! Which names a statement may have.
//!
//! A name is looked at wherever it stands, quoted or not, because functions can
//! be called as `value.function` and no parser of ours would know every form.
//! Which relations a statement means is then said by the server, see [`check_relations`].

use std::collections::HashSet;

use super::system_catalog::{Oid, SystemCatalog};
use crate::{Error, lexer::SqlTokenKind, statement::SqlStatement};

/// Keywords that tell about the connection.
const SESSION_KEYWORDS: &[&str] = &[
    "current_catalog",
    "current_role",
    "current_schema",
    "current_user",
    "session_user",
    "system_user",
    "user",
];

/// How many bytes of rows one value may be made of.
const MAX_COLLECTED_BYTES: f64 = 100e6;

/// Refuses a statement that names what it may not use.
pub(super) fn check_names(statement: &SqlStatement, catalog: &SystemCatalog) -> Result<(), Error> {
    let hidden = view_only_names(statement, catalog);
    let local = locally_defined_names(statement);
    for (at, token) in statement.tokens().iter().enumerate() {
        let place = TokenPosition { statement, at };
        let refused = match statement.identifier_at(at) {
            Some(name) => place.check_name(&name, catalog, &local, &hidden),
            None => {
                let text = statement.token_text(token);
                let is_bad = token.kind == SqlTokenKind::Operator
                    && catalog.forbidden_operators.contains(text);
                is_bad.then(|| refusal("the operator", text, "may not be used"))
            }
        };
        if let Some(error) = refused {
            return Err(statement.error_at_token(error, at));
        }
    }
    Ok(())
}

/// Whether the server knows relations that the catalog does not: they are new.
pub(super) fn is_catalog_outdated(catalog: &SystemCatalog, locked: &[Oid]) -> bool {
    let known = |it: &Oid| catalog.relations.contains_key(it);
    !locked.iter().all(known)
}

/// Refuses a statement that reads what it may not. `locked` is what the server
/// locked for it: all that it means, and what is behind views.
pub(super) fn check_relations(
    statement: &SqlStatement,
    catalog: &SystemCatalog,
    locked: &[Oid],
) -> Result<(), Error> {
    let behind = relations_behind_views(statement, catalog);
    for oid in locked {
        let known = catalog.relations.get(oid);
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

/// Refuses to show a plan that names what may not be read itself, because it is behind a view.
pub(super) fn check_plan_relations(catalog: &SystemCatalog, locked: &[Oid]) -> Result<(), Error> {
    let may_be_named = |oid: &Oid| {
        let known = catalog.relations.get(oid);
        known.is_some_and(|it| it.is_system || it.is_allowed)
    };
    if locked.iter().all(may_be_named) {
        Ok(())
    } else {
        Err(Error::Refused(
            "its plan would name relations that this source does not offer".to_owned(),
        ))
    }
}

/// Refuses a statement that would collect too many rows into one value, by the server's own
/// estimate.
pub(super) fn check_collected_bytes(bytes: f64) -> Result<(), Error> {
    if bytes <= MAX_COLLECTED_BYTES {
        Ok(())
    } else {
        Err(Error::Refused(
            "it would collect too many rows into one value; group or limit them first".to_owned(),
        ))
    }
}

fn refusal(what: &str, name: &str, why: &str) -> Error {
    Error::Refused(format!("{what} {name} {why}"))
}

/// What the allowed relations that the statement names read on their own.
fn relations_behind_views(statement: &SqlStatement, catalog: &SystemCatalog) -> HashSet<Oid> {
    let names = (0..statement.tokens().len()).filter_map(|at| statement.identifier_at(at));
    let named = names.flat_map(|it| catalog.by_name.get(&it).cloned().unwrap_or_default());
    let read = named.filter_map(|it| catalog.dependencies.get(&it));
    read.flatten().copied().collect()
}

/// The names of those that may be read through a view only.
fn view_only_names(statement: &SqlStatement, catalog: &SystemCatalog) -> HashSet<String> {
    let behind = relations_behind_views(statement, catalog);
    let behind = behind.iter().filter_map(|it| catalog.relations.get(it));
    behind
        .filter(|it| !it.is_allowed)
        .map(|it| it.name.clone())
        .collect()
}

/// The names that the statement itself gives to something.
fn locally_defined_names(statement: &SqlStatement) -> HashSet<String> {
    let gives = |at: &usize| {
        let before = at.checked_sub(1).is_some_and(|before| {
            ["AS", "WITH", "RECURSIVE"]
                .iter()
                .any(|it| statement.is_word(before, it))
        });
        let body = statement.token_kind(at + 2) == Some(SqlTokenKind::OpenParenthesis)
            || ["MATERIALIZED", "NOT"]
                .iter()
                .any(|it| statement.is_word(at + 2, it));
        before || (body && statement.is_word(at + 1, "AS"))
    };
    let places = (0..statement.tokens().len()).filter(gives);
    places
        .filter_map(|at| statement.identifier_at(at))
        .collect()
}

struct TokenPosition<'a> {
    statement: &'a SqlStatement,
    at: usize,
}

impl TokenPosition<'_> {
    /// Why this name may not stand here.
    fn check_name(
        &self,
        name: &str,
        catalog: &SystemCatalog,
        local: &HashSet<String>,
        hidden: &HashSet<String>,
    ) -> Option<Error> {
        let (what, why) = if self.reveals_session(name) || self.is_internal_schema(name) {
            ("the name", "tells about the server")
        } else if self.calls_forbidden_function(name, catalog) {
            ("the function", "may not be called")
        } else if catalog.is_forbidden_relation(name, local, hidden) {
            ("the relation", "is not one that this source offers")
        } else if self.is_type_position() && catalog.forbidden_types.contains(name) {
            ("the type", "may not be used")
        } else {
            return None;
        };
        Some(refusal(what, name, why))
    }

    fn kind_before(&self) -> Option<SqlTokenKind> {
        self.at
            .checked_sub(1)
            .and_then(|it| self.statement.token_kind(it))
    }

    fn kind_after(&self) -> Option<SqlTokenKind> {
        self.statement.token_kind(self.at + 1)
    }

    fn is_after_word(&self, word: &str) -> bool {
        self.at
            .checked_sub(1)
            .is_some_and(|it| self.statement.is_word(it, word))
    }

    fn reveals_session(&self, name: &str) -> bool {
        self.statement.token_kind(self.at) == Some(SqlTokenKind::Word)
            && SESSION_KEYWORDS.contains(&name)
            && self.kind_before() != Some(SqlTokenKind::Dot)
            && !self.is_after_word("AS")
    }

    fn is_internal_schema(&self, name: &str) -> bool {
        let foreign =
            name == "information_schema" || name == "pg_toast" || name.starts_with("pg_temp");
        foreign && self.kind_after() == Some(SqlTokenKind::Dot)
    }

    fn calls_forbidden_function(&self, name: &str, catalog: &SystemCatalog) -> bool {
        let Some(single) = catalog.forbidden_functions.get(name) else {
            return false;
        };
        let called =
            self.kind_after() == Some(SqlTokenKind::OpenParenthesis) && !self.is_column_list();
        called || (*single && self.kind_before() == Some(SqlTokenKind::Dot))
    }

    /// `WITH name(…) AS` and `AS name(…)` name columns and call nothing.
    fn is_column_list(&self) -> bool {
        ["AS", "WITH", "RECURSIVE"]
            .iter()
            .any(|it| self.is_after_word(it))
    }

    fn is_type_position(&self) -> bool {
        matches!(
            self.kind_before(),
            Some(SqlTokenKind::Cast | SqlTokenKind::Dot)
        ) || matches!(
            self.kind_after(),
            Some(SqlTokenKind::StringLiteral | SqlTokenKind::OpenParenthesis)
        ) || self.is_after_word("AS")
    }
}
