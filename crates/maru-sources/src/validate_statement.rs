//! Whether a statement is one query of a size that can be walked.

use super::{
    Error, MAX_OPERATOR_CHAIN,
    lexer::{SqlDialect, SqlTokenKind},
    statement::{SqlStatement, refuse},
};

/// How deep parentheses, brackets and `CASE`s may be nested.
const MAX_NESTING_DEPTH: usize = 100;

/// Keywords that begin a statement of PostgreSQL or SQLite that is not a query. A statement
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

/// Refuses a statement that is not one query, or is too large to be walked.
pub(super) fn validate(statement: &SqlStatement) -> Result<(), Error> {
    check_token_kinds(statement)?;
    check_first_word(statement)?;
    check_size(statement)?;
    check_forbidden_words(statement)
}

fn check_token_kinds(statement: &SqlStatement) -> Result<(), Error> {
    for (at, token) in statement.tokens().iter().enumerate() {
        let reason = match token.kind {
            SqlTokenKind::Semicolon => "it is more than one statement",
            SqlTokenKind::Placeholder => "parameters are written :name",
            SqlTokenKind::Other => "it has a character that is no SQL",
            _ => continue,
        };
        return refuse(reason).map_err(|error| statement.error_at_token(error, at));
    }
    Ok(())
}

fn check_first_word(statement: &SqlStatement) -> Result<(), Error> {
    let mut tokens = statement.tokens().iter();
    let at = tokens.position(|it| it.kind != SqlTokenKind::OpenParenthesis);
    let at = at.unwrap_or(statement.tokens().len());
    let is_one_of = |words: &[&str]| words.iter().any(|it| statement.is_word(at, it));
    if is_one_of(&["SELECT", "VALUES", "WITH", "TABLE"]) {
        return Ok(());
    }
    if statement.token_kind(at) == Some(SqlTokenKind::Word) && !is_one_of(OTHER_COMMANDS) {
        return Err(statement.error_at_token(syntax_error(statement, at), at));
    }
    refuse("only a query can be run: SELECT, VALUES or WITH … SELECT")
}

/// The error that the database would report for this token.
fn syntax_error(statement: &SqlStatement, at: usize) -> Error {
    let token = statement.tokens().get(at);
    let token = token.map(|it| statement.token_text(it)).unwrap_or_default();
    Error::Rejected {
        message: match statement.dialect() {
            SqlDialect::Postgres => format!("syntax error at or near \"{token}\""),
            SqlDialect::Sqlite => format!("near \"{token}\": syntax error"),
        },
        hint: None,
    }
}

/// Counts how deep it is nested and how long its chains are, before anybody
/// walks it by recursion.
fn check_size(statement: &SqlStatement) -> Result<(), Error> {
    let mut chains = vec![0_usize];
    for at in 0..statement.tokens().len() {
        let depth = chains.len();
        match statement.token_kind(at) {
            Some(SqlTokenKind::OpenParenthesis | SqlTokenKind::OpenBracket) => chains.push(0),
            Some(SqlTokenKind::CloseParenthesis | SqlTokenKind::CloseBracket) if depth > 1 => {
                chains.pop();
            }
            Some(SqlTokenKind::Comma) => update_last(&mut chains, |_| 0),
            Some(SqlTokenKind::Operator | SqlTokenKind::Cast) => {
                update_last(&mut chains, |it| it + 1);
            }
            Some(SqlTokenKind::Word) if statement.is_word(at, "CASE") => chains.push(0),
            Some(SqlTokenKind::Word) if statement.is_word(at, "END") && depth > 1 => {
                chains.pop();
            }
            Some(SqlTokenKind::Word) if is_chain_keyword(statement, at) => {
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

fn is_chain_keyword(statement: &SqlStatement, at: usize) -> bool {
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
    links.iter().any(|it| statement.is_word(at, it))
}

/// Refuses words that a query has only if it does more than read. Names may
/// be spelt like them behind a dot or `AS`.
fn check_forbidden_words(statement: &SqlStatement) -> Result<(), Error> {
    for at in 0..statement.tokens().len() {
        let before = at.checked_sub(1);
        let is_label = before.is_some_and(|it| {
            statement.token_kind(it) == Some(SqlTokenKind::Dot) || statement.is_word(it, "AS")
        });
        if is_label {
            continue;
        }
        let locks = ["UPDATE", "SHARE", "NO", "KEY"];
        let locks = locks.iter().any(|it| statement.is_word(at + 1, it));
        if statement.is_word(at, "INTO") || (statement.is_word(at, "FOR") && locks) {
            let refused = refuse("a query may not write or lock");
            return refused.map_err(|error| statement.error_at_token(error, at));
        }
        let begins =
            before.is_none_or(|it| statement.token_kind(it) == Some(SqlTokenKind::OpenParenthesis));
        let writes = ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"];
        let writes = writes.iter().any(|it| statement.is_word(at, it));
        if begins && writes && statement.token_kind(at + 1) == Some(SqlTokenKind::Word) {
            return refuse("a query may not write");
        }
    }
    Ok(())
}

/// Refuses an order by the value of a parameter: it is the same for all rows, so nothing
/// is ordered, and no database says so.
pub(super) fn check_order(statement: &SqlStatement) -> Result<(), Error> {
    let ends_item = |at: usize| {
        let words = [
            "ASC", "DESC", "NULLS", "LIMIT", "OFFSET", "FETCH", "HAVING", "ORDER", "UNION",
        ];
        let kind = statement.token_kind(at);
        kind.is_none_or(|it| matches!(it, SqlTokenKind::Comma | SqlTokenKind::CloseParenthesis))
            || words.iter().any(|it| statement.is_word(at, it))
    };
    // For every open parenthesis, whether a list of what to order or group by is read.
    let mut lists = vec![false];
    for at in 0..statement.tokens().len() {
        let is_list = lists.last().copied().unwrap_or_default();
        let begins_item = at.checked_sub(1).is_some_and(|before| {
            is_list
                && (statement.token_kind(before) == Some(SqlTokenKind::Comma)
                    || statement.is_word(before, "BY"))
        });
        match statement.token_kind(at) {
            Some(SqlTokenKind::OpenParenthesis) => lists.push(false),
            Some(SqlTokenKind::CloseParenthesis) if lists.len() > 1 => {
                lists.pop();
            }
            Some(SqlTokenKind::Parameter) if begins_item && ends_item(at + 1) => {
                let refused = refuse(
                    "a value cannot be ordered or grouped by, it is the same for all rows; \
                     make the parameter an IDENTIFIER and list its columns in enum",
                );
                return refused.map_err(|error| statement.error_at_token(error, at));
            }
            Some(SqlTokenKind::Word) => {
                let is_by = statement.is_word(at, "BY");
                let ends = [
                    "LIMIT", "OFFSET", "FETCH", "HAVING", "UNION", "ROWS", "RANGE",
                ];
                if let Some(list) = lists.last_mut() {
                    let is_over = ends.iter().any(|it| statement.is_word(at, it));
                    *list = (*list || is_by) && !is_over;
                }
            }
            _ => (),
        }
    }
    Ok(())
}

fn update_last(chains: &mut [usize], change: impl Fn(usize) -> usize) {
    if let Some(last) = chains.last_mut() {
        *last = change(*last);
    }
}
