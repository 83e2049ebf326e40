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
        sql: "SELECT maru_take_calls($1, $2, $3, greatest(1, $4::BIGINT / (
                SELECT greatest(3, count(*)) FROM hub_member WHERE seen_at >
                    (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT - 5000)))",
    }
}

/// Calls that a hub wants in advance.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// What is limited.
    pub target_type: &'a str,
    /// Its name.
    pub target_id: &'a str,
    /// How many calls it may make in a minute.
    pub per_minute: i64,
    /// How many of them all hubs together take, at most.
    pub wanted: i64,
}

impl Store {
    /// Takes this hub's part of calls of a user or tool that all hubs that share the store may
    /// take in advance; `None` if no other hub can share it.
    pub async fn take_calls(&self, request: &LeaseRequest<'_>) -> Option<Result<CallLease, Error>> {
        let StoreBackend::Postgres(backend) = &self.backend else {
            return None;
        };
        let values = vec![
            request.target_type.into(),
            request.target_id.into(),
            request.per_minute.into(),
            request.wanted.into(),
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
