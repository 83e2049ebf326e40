//! The server's errors, as far as they are for the author of a query.

use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, ErrorPosition, SqlState};

use crate::Error;

/// While a statement is prepared nothing is read, so the server's words can
/// quote no data.
pub(super) fn from_prepare(error: tokio_postgres::Error) -> Error {
    match error.as_db_error() {
        Some(told) if is_canceled(told) => Error::TimedOut,
        Some(told) => with_position(
            told,
            Error::Rejected {
                message: told.message().to_owned(),
                hint: told.hint().map(str::to_owned),
            },
        ),
        None => Error::Unreachable(Box::new(error)),
    }
}

/// The server counts characters, from 1.
fn with_position(told: &DbError, error: Error) -> Error {
    match told.position() {
        Some(ErrorPosition::Original(from_one)) => Error::AtPosition {
            position: usize::try_from(from_one.saturating_sub(1)).unwrap_or(usize::MAX),
            error: Box::new(error),
        },
        _ => error,
    }
}

/// While it runs, a message may quote what was read; only its kind is told.
pub(super) fn from_execution(error: tokio_postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else {
        // Some mistakes in parameters are found on this side.
        return Error::Unreachable(Box::new(error));
    };
    if is_canceled(told) {
        return Error::TimedOut;
    }
    let code = told.code();
    let known = match *code {
        SqlState::INVALID_TEXT_REPRESENTATION | SqlState::INVALID_DATETIME_FORMAT => {
            "a value does not have the form that its type needs"
        }
        SqlState::SYNTAX_ERROR => "only a query that reads can be run",
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE => "a number is too large for its type",
        // The server's words for these are always the same, so they quote nothing.
        SqlState::DIVISION_BY_ZERO => return Error::Database("division by zero".to_owned()),
        SqlState::CARDINALITY_VIOLATION => {
            let message = "more than one row returned by a subquery used as an expression";
            return Error::Database(message.to_owned());
        }
        SqlState::INSUFFICIENT_PRIVILEGE => "the role may not read this",
        SqlState::READ_ONLY_SQL_TRANSACTION => "the statement would write",
        SqlState::LOCK_NOT_AVAILABLE => "a table is locked",
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

fn is_canceled(told: &DbError) -> bool {
    *told.code() == SqlState::QUERY_CANCELED
}

/// No connection could be had.
pub(super) fn from_pool(error: PoolError) -> Error {
    match error {
        PoolError::Timeout(_) => Error::TimedOut,
        other => Error::Unreachable(Box::new(other)),
    }
}

/// Something failed that nobody wrote SQL for.
pub(super) fn from_internal_query(error: tokio_postgres::Error) -> Error {
    Error::Unreachable(Box::new(error))
}

/// The server sent a value in a form that it should not have.
pub(super) fn unexpected_value() -> Error {
    Error::Database("a value has a form that is not known".to_owned())
}
