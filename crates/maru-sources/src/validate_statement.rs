//! Whether a statement is one query of a size that can be walked.

use super::{
    Error, MAX_OPERATOR_CHAIN,
    lexer::{SqlDialect, SqlTokenKind},
    statement::{SqlStatement, refuse},
};

/// How deep parentheses, brackets and `CASE`s may be nested.
const MAX_NESTING_DEPTH: usize = 100;

/// Words that begin a statement of PostgreSQL or SQLite which is no query. A statement
/// that begins with any other word is misspelt.
const OTHER_COMMANDS: &[&str] = &[
    "ABORT",
    "ALTER",
    "ANALYSE",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "CALL",
    "CHECKPOINT",
    "CLOSE",
    "CLUSTER",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DELETE",
    "DETACH",
    "DISCARD",
    "DO",
    "DROP",
    "END",
    "EXECUTE",
    "EXPLAIN",
    "FETCH",
    "GRANT",
    "IMPORT",
    "INSERT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MERGE",
    "MOVE",
    "NOTIFY",
    "PRAGMA",
    "PREPARE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RELEASE",
    "REPLACE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SECURITY",
    "SET",
    "SHOW",
    "START",
    "TRUNCATE",
    "UNLISTEN",
    "UPDATE",
    "VACUUM",
];

impl SqlStatement {
    /// Refuses what is not one query, or is too large to be walked.
    pub(super) fn validate(&self) -> Result<(), Error> {
        self.check_token_kinds()?;
        self.check_first_word()?;
        self.check_size()?;
        self.check_forbidden_words()
    }

    fn check_token_kinds(&self) -> Result<(), Error> {
        for (at, token) in self.tokens().iter().enumerate() {
            let why = match token.kind {
                SqlTokenKind::Semicolon => "it is more than one statement",
                SqlTokenKind::Placeholder => "parameters are written :name",
                SqlTokenKind::Other => "it has a character that is no SQL",
                _ => continue,
            };
            return refuse(why).map_err(|error| self.error_at_token(error, at));
        }
        Ok(())
    }

    fn check_first_word(&self) -> Result<(), Error> {
        let mut tokens = self.tokens().iter();
        let at = tokens.position(|it| it.kind != SqlTokenKind::OpenParenthesis);
        let at = at.unwrap_or(self.tokens().len());
        let is_one_of = |words: &[&str]| words.iter().any(|it| self.is_word(at, it));
        if is_one_of(&["SELECT", "VALUES", "WITH", "TABLE"]) {
            return Ok(());
        }
        if self.token_kind(at) == Some(SqlTokenKind::Word) && !is_one_of(OTHER_COMMANDS) {
            return Err(self.error_at_token(self.syntax_error(at), at));
        }
        refuse("only a query can be run: SELECT, VALUES or WITH … SELECT")
    }

    /// The error that the database would report for this token.
    fn syntax_error(&self, at: usize) -> Error {
        let token = self.tokens().get(at).map(|it| self.token_text(it));
        let token = token.unwrap_or_default();
        Error::Rejected {
            message: match self.dialect() {
                SqlDialect::Postgres => format!("syntax error at or near \"{token}\""),
                SqlDialect::Sqlite => format!("near \"{token}\": syntax error"),
            },
            hint: None,
        }
    }

    /// Counts how deep it is nested and how long its chains are, before anybody
    /// walks it by recursion.
    fn check_size(&self) -> Result<(), Error> {
        let mut chains = vec![0_usize];
        for at in 0..self.tokens().len() {
            let depth = chains.len();
            match self.token_kind(at) {
                Some(SqlTokenKind::OpenParenthesis | SqlTokenKind::OpenBracket) => chains.push(0),
                Some(SqlTokenKind::CloseParenthesis | SqlTokenKind::CloseBracket) if depth > 1 => {
                    chains.pop();
                }
                Some(SqlTokenKind::Comma) => update_last(&mut chains, |_| 0),
                Some(SqlTokenKind::Operator | SqlTokenKind::Cast) => {
                    update_last(&mut chains, |it| it + 1);
                }
                Some(SqlTokenKind::Word) if self.is_word(at, "CASE") => chains.push(0),
                Some(SqlTokenKind::Word) if self.is_word(at, "END") && depth > 1 => {
                    chains.pop();
                }
                Some(SqlTokenKind::Word) if self.is_chain_keyword(at) => {
                    update_last(&mut chains, |it| it + 1);
                }
                _ => (),
            }
            if MAX_NESTING_DEPTH < chains.len() {
                return refuse(format!("it is nested more than {MAX_NESTING_DEPTH} deep"));
            }
            if chains.last().is_some_and(|it| MAX_OPERATOR_CHAIN < *it) {
                return refuse(format!(
                    "a chain of operators has more than {MAX_OPERATOR_CHAIN} terms"
                ));
            }
        }
        Ok(())
    }

    fn is_chain_keyword(&self, at: usize) -> bool {
        let links = [
            "AND",
            "OR",
            "NOT",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "JOIN",
            "IS",
            "IN",
            "LIKE",
            "ILIKE",
            "GLOB",
            "COLLATE",
            "BETWEEN",
            "ISNULL",
            "NOTNULL",
        ];
        links.iter().any(|it| self.is_word(at, it))
    }

    /// Refuses words that a query has only if it does more than read. Names may
    /// be spelt like them behind a dot or `AS`.
    fn check_forbidden_words(&self) -> Result<(), Error> {
        for at in 0..self.tokens().len() {
            let before = at.checked_sub(1);
            let is_label = before.is_some_and(|it| {
                self.token_kind(it) == Some(SqlTokenKind::Dot) || self.is_word(it, "AS")
            });
            if is_label {
                continue;
            }
            let locks = ["UPDATE", "SHARE", "NO", "KEY"];
            let locks = locks.iter().any(|it| self.is_word(at + 1, it));
            if self.is_word(at, "INTO") || (self.is_word(at, "FOR") && locks) {
                let refused = refuse("a query may not write or lock");
                return refused.map_err(|error| self.error_at_token(error, at));
            }
            let begins =
                before.is_none_or(|it| self.token_kind(it) == Some(SqlTokenKind::OpenParenthesis));
            let writes = ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"];
            let writes = writes.iter().any(|it| self.is_word(at, it));
            if begins && writes && self.token_kind(at + 1) == Some(SqlTokenKind::Word) {
                return refuse("a query may not write");
            }
        }
        Ok(())
    }
}

fn update_last(chains: &mut [usize], change: impl Fn(usize) -> usize) {
    if let Some(last) = chains.last_mut() {
        *last = change(*last);
    }
}
