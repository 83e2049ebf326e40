//! Schema migrations: each runs once, in order, in one transaction.
//!
//! While hubs that share a database are updated one after the other, older ones work on
//! tables that a newer one has migrated. So a migration should be additive: it adds tables,
//! and columns that have a default. One that is not makes older hubs refuse to start.

use deadpool_postgres::{Client, Transaction};
use rusqlite::{Connection, TransactionBehavior};
use tokio_postgres::IsolationLevel;

use super::DatabaseError;

/// One migration in the SQL of each back end.
struct Migration {
    sqlite: &'static str,
    postgres: &'static str,
    /// Whether a hub that does not know it may use the tables.
    is_additive: bool,
}

macro_rules! migration {
    ($name:literal) => {
        migration!($name, is_additive: false)
    };
    ($name:literal, is_additive: $is_additive:literal) => {
        Migration {
            sqlite: include_str!(concat!("../../../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../../../migrations/postgres/", $name, ".sql")),
            is_additive: $is_additive,
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
    migration!("013_custom_tool_draft"),
    migration!("014_source"),
    migration!("015_model_usage"),
    migration!("016_custom_tool_limits"),
    migration!("017_call_history"),
    migration!("018_change_feed"),
    migration!("019_server_credential"),
    migration!("020_model"),
    migration!("021_hub_envelope"),
    migration!("022_authorization_server"),
    migration!("023_toolset"),
    migration!("024_rate_bucket"),
    migration!("025_sign_in_subject"),
    migration!("026_grant_tools"),
    migration!("027_audit_hub", is_additive: true),
];

/// Id of the advisory lock that a hub holds while it migrates PostgreSQL: "maru" in
/// ASCII.
const ADVISORY_LOCK_ID: i64 = 0x6d61_7275;

/// Applies the pending migrations to an SQLite database.
pub(super) fn migrate_sqlite(connection: &mut Connection) -> Result<(), DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, migration) in pending_migrations(applied)? {
        transaction.execute_batch(migration.sqlite)?;
        transaction.pragma_update(None, "user_version", number)?;
    }
    Ok(transaction.commit()?)
}

/// Applies the pending migrations to a PostgreSQL database. Another hub that starts
/// meanwhile waits.
pub(super) async fn migrate_postgres(client: &mut Client) -> Result<(), DatabaseError> {
    // After waiting for the lock, each statement must see what the other hub committed.
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .start()
        .await?;
    let lock = "SELECT pg_advisory_xact_lock($1)";
    transaction.execute(lock, &[&ADVISORY_LOCK_ID]).await?;
    let pending: Vec<_> = pending_migrations(applied_version(&transaction).await?)?.collect();
    if !pending.is_empty() {
        let add_column = "ALTER TABLE maru_schema
            ADD COLUMN IF NOT EXISTS is_additive BOOLEAN NOT NULL DEFAULT FALSE";
        transaction.batch_execute(add_column).await?;
    }
    for (number, migration) in pending {
        transaction.batch_execute(migration.postgres).await?;
        let record_step = "INSERT INTO maru_schema (step, is_additive) VALUES ($1, $2)";
        let is_additive = migration.is_additive;
        transaction
            .execute(record_step, &[&number, &is_additive])
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Returns the number of the last migration that this hub must know.
async fn applied_version(transaction: &Transaction<'_>) -> Result<i64, DatabaseError> {
    // Checking first lets a role without the right to create tables use a migrated
    // database.
    let table_exists = "SELECT to_regclass('maru_schema') IS NOT NULL";
    if !transaction.query_one(table_exists, &[]).await?.try_get(0)? {
        let create_table = "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY)";
        transaction.batch_execute(create_table).await?;
    }
    // The column is missing where an older maru migrated last.
    let last_step = "SELECT coalesce(max(step), 0) FROM maru_schema applied
        WHERE step <= $1 OR NOT coalesce((to_jsonb(applied) ->> 'is_additive')::BOOLEAN, FALSE)";
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    Ok(transaction
        .query_one(last_step, &[&known])
        .await?
        .try_get(0)?)
}

/// Returns the migrations after number `applied`, with their numbers.
fn pending_migrations(
    applied: i64,
) -> Result<impl Iterator<Item = (i64, &'static Migration)>, DatabaseError> {
    let numbered = (1..).zip(MIGRATIONS);
    let is_known = numbered.clone().any(|(number, _)| number == applied);
    if is_known || applied == 0 {
        Ok(numbered.skip_while(move |(number, _)| *number <= applied))
    } else {
        Err(DatabaseError::NewerSchema(applied))
    }
}
