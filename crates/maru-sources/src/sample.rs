//! Sample data, so that a first start has something to show.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior, params};

use super::Error;

/// Makes the sample tables in `path` if they are not there; rows that people
/// changed since are left alone.
pub fn write_sample(path: &Path) -> Result<(), Error> {
    let mut connection = Connection::open(path).map_err(Error::Open)?;
    create_missing_tables(&mut connection).map_err(Error::Query)
}

/// A daily limit that the hub enforces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnforcedLimit {
    /// `USER` or `TOOL`.
    pub target_type: String,
    /// The name of the user or of the tool.
    pub target: String,
    /// Calls a day.
    pub max_count: i64,
}

/// Makes `h_mcp_tool_limit` of the sample data say what the hub enforces; every user with
/// a limit is in `h_user`.
pub fn write_limits(path: &Path, limits: &[EnforcedLimit]) -> Result<(), Error> {
    let mut connection = Connection::open(path).map_err(Error::Open)?;
    replace_limits(&mut connection, limits).map_err(Error::Query)
}

/// The limits of users in the sample data as it was made.
pub fn sample_limits(path: &Path) -> Result<Vec<EnforcedLimit>, Error> {
    let connection = Connection::open(path).map_err(Error::Open)?;
    read_user_limits(&connection).map_err(Error::Query)
}

fn replace_limits(connection: &mut Connection, limits: &[EnforcedLimit]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("DELETE FROM h_mcp_tool_limit", [])?;
    for limit in limits {
        let EnforcedLimit {
            target_type,
            target,
            max_count,
        } = limit;
        if target_type == "USER" {
            let add = "INSERT OR IGNORE INTO h_user (user_nm, dept) VALUES (?1, '')";
            transaction.execute(add, [target])?;
            let put = "INSERT INTO h_mcp_tool_limit (target_type, target_id, max_count)
                       SELECT 'USER', uid, ?2 FROM h_user WHERE user_nm = ?1";
            transaction.execute(put, params![target, max_count])?;
        } else {
            let put = "INSERT INTO h_mcp_tool_limit (target_type, target_id, max_count)
                       VALUES ('TOOL', ?1, ?2)";
            transaction.execute(put, params![target, max_count])?;
        }
    }
    transaction.commit()
}

fn read_user_limits(connection: &Connection) -> rusqlite::Result<Vec<EnforcedLimit>> {
    let sql = "SELECT u.user_nm, l.max_count FROM h_user u
               JOIN h_mcp_tool_limit l ON u.uid = l.target_id AND l.target_type = 'USER'";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(EnforcedLimit {
            target_type: "USER".to_owned(),
            target: row.get(0)?,
            max_count: row.get(1)?,
        })
    })?;
    rows.collect()
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
