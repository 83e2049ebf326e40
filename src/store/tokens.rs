//! Tokens at rest: a name, a role and a hash.

use super::{Cause, Error, Row, Statement, Store};
use crate::clock;

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

const LIST: Statement = Statement {
    attempted: "list the tokens",
    sql: "SELECT name, role, hash FROM token",
};
const PUT: Statement = Statement {
    attempted: "save the token",
    sql: "INSERT INTO token (name, role, hash, created_at) VALUES ($1, $2, $3, $4)
          ON CONFLICT (name) DO UPDATE SET role = excluded.role, hash = excluded.hash
          RETURNING name",
};

impl Store {
    /// Every token.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, Error> {
        self.rows(LIST, Vec::new()).await
    }

    /// Adds a token, or replaces the one of that name.
    pub async fn put_token(&self, row: &TokenRow) -> Result<(), Error> {
        let values = vec![
            row.name.as_str().into(),
            row.role.as_str().into(),
            row.hash.as_slice().into(),
            clock::now().into(),
        ];
        self.wrote(PUT, values).await?;
        Ok(())
    }
}

impl TryFrom<Row> for TokenRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            name: row.take()?,
            role: row.take()?,
            hash: row.take()?,
        })
    }
}
