//! Calls per minute that the hubs of a PostgreSQL database share.

use std::time::Duration;

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store, StoreBackend};

/// The answer to a hub that wants to make calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallLease {
    /// It may make so many.
    Granted(i64),
    /// There are none left; the next one comes after this time.
    Wait(Duration),
}

struct TakenCalls(i64);

/// Runs on PostgreSQL only, so it is not among the statements of both.
fn take_statement() -> PortableStatement {
    PortableStatement {
        attempted: "count the calls of this minute",
        sql: "SELECT maru_take_calls($1, $2, $3, $4)",
    }
}

impl Store {
    /// Takes up to `wanted` of the calls per minute of a user or tool, for all hubs that
    /// share the store; `None` if no other hub can.
    pub async fn take_calls(
        &self,
        (target_type, target_id): (&str, &str),
        per_minute: i64,
        wanted: i64,
    ) -> Option<Result<CallLease, Error>> {
        let StoreBackend::Postgres(backend) = &self.backend else {
            return None;
        };
        let values = vec![
            target_type.into(),
            target_id.into(),
            per_minute.into(),
            wanted.into(),
        ];
        let statement = take_statement();
        let rows = backend.query(statement.sql, values).await;
        let taken = rows.and_then(|rows| match rows.into_iter().next() {
            Some(row) => TakenCalls::try_from(row),
            None => Ok(TakenCalls(0)),
        });
        Some(self.record_outcome(statement, taken).map(CallLease::from))
    }
}

impl From<TakenCalls> for CallLease {
    fn from(TakenCalls(count): TakenCalls) -> Self {
        if count > 0 {
            Self::Granted(count)
        } else {
            Self::Wait(Duration::from_millis(count.unsigned_abs()))
        }
    }
}

impl TryFrom<ResultRow> for TakenCalls {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}
