//! Sample data, so that a first start has something to show.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::Error;

/// Makes the sample tables in `path` if they are not there; rows that people
/// changed since are left alone.
pub fn write_sample(path: &Path) -> Result<(), Error> {
    let mut connection = Connection::open(path).map_err(Error::Open)?;
    create_missing_tables(&mut connection).map_err(Error::Query)
}

fn create_missing_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Each table that shows whether its script has run, and the script.
    let scripts = [
        ("employees", include_str!("sample.sql")),
        ("h_user", include_str!("sample_limits.sql")),
    ];
    for (table, script) in scripts {
        let look = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
        let there: bool = transaction.query_row(look, [table], |row| row.get(0))?;
        if !there {
            transaction.execute_batch(script)?;
        }
    }
    transaction.commit()
}
