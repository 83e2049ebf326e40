//! Tokens at rest: a name, a role and a hash.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{Cause, Error, Row, Statement, Store};

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
            now().into(),
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

/// Milliseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.expect("clocks are past 1970").as_millis();
    i64::try_from(since).expect("the year is below 292 million")
}
