//! Tokens at rest: a name, a role and a hash.

use rusqlite::params;

use super::{Error, Store};

/// A token as stored.
#[derive(Debug)]
pub struct TokenRow {
    /// Unique name.
    pub name: String,
    /// `reader`, `agent` or `admin`.
    pub role: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
}

impl Store {
    /// Every token.
    pub fn tokens(&self) -> Result<Vec<TokenRow>, Error> {
        self.with("list the tokens", |connection| {
            let mut statement = connection.prepare("SELECT name, role, hash FROM token")?;
            let rows = statement.query_map([], |row| {
                Ok(TokenRow {
                    name: row.get(0)?,
                    role: row.get(1)?,
                    hash: row.get(2)?,
                })
            })?;
            rows.collect()
        })
    }

    /// Adds a token, or replaces the one of that name.
    pub fn put_token(&self, row: &TokenRow) -> Result<(), Error> {
        self.with("save the token", |connection| {
            connection.execute(
                "INSERT INTO token (name, role, hash, created_at)
                 VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000 AS INTEGER))
                 ON CONFLICT (name) DO UPDATE SET role = ?2, hash = ?3",
                params![row.name, row.role, row.hash],
            )?;
            Ok(())
        })
    }
}
