//! Bringing the tables up to date: each step once, in order, all or nothing.

use deadpool_postgres::{Client, Transaction};
use rusqlite::{Connection, TransactionBehavior};
use tokio_postgres::IsolationLevel;

use super::DatabaseError;

/// The same step for each back end.
struct Migration {
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migration {
    ($name:literal) => {
        Migration {
            sqlite: include_str!(concat!("../../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../../migrations/postgres/", $name, ".sql")),
        }
    };
}

const MIGRATIONS: &[Migration] = &[
    migration!("001_token"),
    migration!("002_server"),
    migration!("003_custom_tool"),
    migration!("004_agent_run"),
    migration!("005_token_lists"),
    migration!("006_tool_pin"),
    migration!("007_tool_rate"),
    migration!("008_audit"),
    migration!("009_console"),
    migration!("010_audit_index"),
    migration!("011_audit_pending"),
    migration!("012_server_protocol"),
];

/// Held while a hub upgrades a PostgreSQL database: "maru" in ASCII.
const ADVISORY_LOCK_ID: i64 = 0x6d61_7275;

/// Applies what is missing in a file.
pub(super) fn migrate_sqlite(connection: &mut Connection) -> Result<(), DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, step) in pending_migrations(done)? {
        transaction.execute_batch(step.sqlite)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    Ok(transaction.commit()?)
}

/// Applies what is missing in a database; another hub that starts waits.
pub(super) async fn migrate_postgres(client: &mut Client) -> Result<(), DatabaseError> {
    // After the wait each statement has to see what the other hub committed.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&ADVISORY_LOCK_ID]).await?;
    for (number, step) in pending_migrations(applied_version(&transaction).await?)? {
        transaction.batch_execute(step.postgres).await?;
        let note = "INSERT INTO maru_schema (step) VALUES ($1)";
        transaction.execute(note, &[&number]).await?;
    }
    Ok(transaction.commit().await?)
}

async fn applied_version(transaction: &Transaction<'_>) -> Result<i64, DatabaseError> {
    // Looking first lets a role that may not create tables use finished ones.
    let look = "SELECT to_regclass('maru_schema') IS NOT NULL";
    if !transaction.query_one(look, &[]).await?.try_get(0)? {
        let make = "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY)";
        transaction.batch_execute(make).await?;
    }
    let last = "SELECT coalesce(max(step), 0) FROM maru_schema";
    Ok(transaction.query_one(last, &[]).await?.try_get(0)?)
}

/// The steps after `done`, with their numbers.
fn pending_migrations(
    done: i64,
) -> Result<impl Iterator<Item = (i64, &'static Migration)>, DatabaseError> {
    let numbered = (1..).zip(MIGRATIONS);
    let known = numbered.clone().any(|(number, _)| number == done);
    if known || done == 0 {
        Ok(numbered.skip_while(move |(number, _)| *number <= done))
    } else {
        Err(DatabaseError::NewerSchema(done))
    }
}
