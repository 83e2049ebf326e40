//! Errors of the server, translated for the author of a query.

use deadpool_postgres::PoolError;
use maru_postgres::PostgresConnectError;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::Error;

/// An error of preparing a statement. Nothing is read then, so the server's words can
/// quote no data.
pub(super) fn from_prepare(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(refusal) if is_canceled(refusal) => Error::TimedOut,
        Some(refusal) => with_position(
            refusal,
            Error::Rejected {
                message: refusal.message().to_owned(),
                hint: refusal.hint().map(str::to_owned),
            },
        ),
        None => from_internal_query(error),
    }
}

/// The server counts characters, from 1.
fn with_position(refusal: &DbError, error: Error) -> Error {
    match refusal.position() {
        Some(ErrorPosition::Original(from_one)) => Error::AtPosition {
            position: usize::try_from(from_one.saturating_sub(1)).unwrap_or(usize::MAX),
            error: Box::new(error),
        },
        _ => error,
    }
}

/// An error while a query runs. The server's message may quote what was read, so only
/// its kind is passed on.
pub(super) fn from_execution(error: &tokio_postgres::Error) -> Error {
    let Some(refusal) = error.as_db_error() else {
        return from_internal_query(error);
    };
    if is_canceled(refusal) {
        return Error::TimedOut;
    }
    let code = refusal.code();
    let known = match *code {
        SqlState::INVALID_TEXT_REPRESENTATION | SqlState::INVALID_DATETIME_FORMAT => {
            "a value does not have the form that its type needs"
        }
        SqlState::SYNTAX_ERROR => "only a query that reads can be run",
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE => "a number is too large for its type",
        // The server's messages for these are fixed, so they quote nothing.
        SqlState::DIVISION_BY_ZERO => return Error::Database("division by zero".to_owned()),
        SqlState::CARDINALITY_VIOLATION => {
            let message = "more than one row returned by a subquery used as an expression";
            return Error::Database(message.to_owned());
        }
        SqlState::INSUFFICIENT_PRIVILEGE => "the role may not read this",
        SqlState::READ_ONLY_SQL_TRANSACTION => "the statement would write",
        SqlState::LOCK_NOT_AVAILABLE => "a table was locked for longer than a query waits",
        _ => describe_class(code.code()),
    };
    Error::Database(format!("{known} (SQLSTATE {})", code.code()))
}

fn describe_class(code: &str) -> &'static str {
    match code.get(..2) {
        Some("22") => "a value cannot be used as it is",
        Some("42") => "the statement is not valid",
        Some("53" | "54") => "the query needs more than the server gives",
        _ => "the query failed",
    }
}

fn is_canceled(refusal: &DbError) -> bool {
    *refusal.code() == SqlState::QUERY_CANCELED
}

/// An error of getting a connection, other than that none was free.
pub(super) fn from_pool(error: &PoolError) -> PostgresConnectError {
    match error {
        PoolError::Timeout(_) => PostgresConnectError::NoAnswer,
        PoolError::Backend(error) => PostgresConnectError::from(error),
        _ => PostgresConnectError::ConnectionLost,
    }
}

/// An error of one of maru's own statements.
pub(super) fn from_internal_query(error: &tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(refusal) if is_canceled(refusal) => Error::TimedOut,
        _ => Error::Unreachable(PostgresConnectError::from(error)),
    }
}

/// The server sent a value in a form that it should not have.
pub(super) fn unexpected_value() -> Error {
    Error::Database("a value has a form that is not known".to_owned())
}
