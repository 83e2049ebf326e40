//! Bringing the store's tables up to date, each step once, in order.

use rusqlite::{Connection, TransactionBehavior, types::Type};

const STEPS: &[&str] = &[include_str!("../../migrations/sqlite/001_token.sql")];

/// Applies what is missing; all of it or nothing.
pub(super) fn run(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let done = done as usize;
    if done > STEPS.len() {
        let why = format!("it was written by a newer maru (schema {done})");
        return Err(rusqlite::Error::FromSqlConversionFailure(
            0,
            Type::Integer,
            why.into(),
        ));
    }
    for step in STEPS.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(
        None,
        "user_version",
        i64::try_from(STEPS.len()).expect("few steps"),
    )?;
    transaction.commit()
}
