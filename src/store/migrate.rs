//! Bringing the tables up to date: each step once, in order, all or nothing.

use deadpool_postgres::{Client, Transaction};
use rusqlite::{Connection, TransactionBehavior};
use tokio_postgres::IsolationLevel;

use super::Cause;

/// The same step for each back end.
struct Step {
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! step {
    ($name:literal) => {
        Step {
            sqlite: include_str!(concat!("../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../migrations/postgres/", $name, ".sql")),
        }
    };
}

const STEPS: &[Step] = &[
    step!("001_token"),
    step!("002_server"),
    step!("003_custom_tool"),
    step!("004_agent_run"),
    step!("005_token_lists"),
    step!("006_tool_pin"),
    step!("007_tool_rate"),
    step!("008_audit"),
    step!("009_console"),
    step!("010_audit_index"),
    step!("011_audit_pending"),
    step!("012_server_protocol"),
];

/// Held while a hub upgrades a PostgreSQL database: "maru" in ASCII.
const LOCK: i64 = 0x6d61_7275;

/// Applies what is missing in a file.
pub(super) fn sqlite(connection: &mut Connection) -> Result<(), Cause> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, step) in missing(done)? {
        transaction.execute_batch(step.sqlite)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    Ok(transaction.commit()?)
}

/// Applies what is missing in a database; another hub that starts waits.
pub(super) async fn postgres(client: &mut Client) -> Result<(), Cause> {
    // After the wait each statement has to see what the other hub committed.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&LOCK]).await?;
    for (number, step) in missing(steps_done(&transaction).await?)? {
        transaction.batch_execute(step.postgres).await?;
        let note = "INSERT INTO maru_schema (step) VALUES ($1)";
        transaction.execute(note, &[&number]).await?;
    }
    Ok(transaction.commit().await?)
}

async fn steps_done(transaction: &Transaction<'_>) -> Result<i64, Cause> {
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
fn missing(done: i64) -> Result<impl Iterator<Item = (i64, &'static Step)>, Cause> {
    let numbered = (1..).zip(STEPS);
    let known = numbered.clone().any(|(number, _)| number == done);
    match known || done == 0 {
        true => Ok(numbered.skip_while(move |(number, _)| *number <= done)),
        false => Err(Cause::Newer(done)),
    }
}
