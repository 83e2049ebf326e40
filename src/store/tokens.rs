//! Tokens at rest: a name, a role, what it is good for, and a hash.

use super::{Cause, Error, Row, Statement, Store};
use crate::clock;

/// A token as stored. Times are milliseconds since 1970.
#[derive(Clone, Debug)]
pub struct TokenRow {
    /// Unique name.
    pub name: String,
    /// `reader`, `agent` or `admin`.
    pub role: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// Servers it is good for; absent means all.
    pub servers: Option<Vec<String>>,
    /// Tools it is good for; absent means all.
    pub tools: Option<Vec<String>>,
    /// When it was made.
    pub created_at: i64,
    /// When it ends.
    pub expires_at: Option<i64>,
}

const LIST: Statement = Statement {
    attempted: "list the tokens",
    sql: "SELECT name, role, hash, servers, tools, created_at, expires_at FROM token",
};
const PUT: Statement = Statement {
    attempted: "save the token",
    sql: "INSERT INTO token (name, role, hash, created_at) VALUES ($1, $2, $3, $4)
          ON CONFLICT (name) DO UPDATE SET role = excluded.role, hash = excluded.hash
          RETURNING name",
};
const INSERT: Statement = Statement {
    attempted: "save the token",
    sql: "INSERT INTO token (name, role, hash, created_at, servers, tools, expires_at)
          VALUES ($1, $2, $3, $4, $5, $6, $7)
          ON CONFLICT (name) DO NOTHING RETURNING name",
};
const DELETE: Statement = Statement {
    attempted: "delete the token",
    sql: "DELETE FROM token WHERE name = $1 RETURNING name",
};

impl TokenRow {
    /// A token of now that is good for everything its role allows.
    pub fn new(name: &str, role: &str, hash: [u8; 32]) -> Self {
        Self {
            name: name.to_owned(),
            role: role.to_owned(),
            hash,
            servers: None,
            tools: None,
            created_at: clock::now(),
            expires_at: None,
        }
    }
}
/// Every statement of this file that both back ends run.
pub(super) const ALL: &[Statement] = &[LIST, PUT, INSERT, DELETE];

impl Store {
    /// Every token.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, Error> {
        self.rows(LIST, Vec::new()).await
    }

    /// Adds a token, or replaces role and hash of the one of that name.
    pub async fn put_token(&self, row: &TokenRow) -> Result<(), Error> {
        let values = vec![
            row.name.as_str().into(),
            row.role.as_str().into(),
            row.hash.as_slice().into(),
            row.created_at.into(),
        ];
        self.wrote(PUT, values).await?;
        Ok(())
    }

    /// Adds a token; false, and nothing added, when its name is taken.
    pub async fn insert_token(&self, row: &TokenRow) -> Result<bool, Error> {
        let list =
            |it: &Option<Vec<String>>| it.as_ref().map(|it| serde_json::json!(it).to_string());
        let values = vec![
            row.name.as_str().into(),
            row.role.as_str().into(),
            row.hash.as_slice().into(),
            row.created_at.into(),
            list(&row.servers).as_deref().into(),
            list(&row.tools).as_deref().into(),
            row.expires_at.into(),
        ];
        self.wrote(INSERT, values).await
    }

    /// Deletes the token of that name; false when there is none.
    pub async fn delete_token(&self, name: &str) -> Result<bool, Error> {
        self.wrote(DELETE, vec![name.into()]).await
    }
}

impl TryFrom<Row> for TokenRow {
    type Error = Cause;

    fn try_from(mut row: Row) -> Result<Self, Cause> {
        Ok(Self {
            name: row.take()?,
            role: row.take()?,
            hash: row.take()?,
            servers: list(row.take()?),
            tools: list(row.take()?),
            created_at: row.take()?,
            expires_at: row.take()?,
        })
    }
}

/// A list that cannot be read allows nothing.
fn list(text: Option<String>) -> Option<Vec<String>> {
    text.map(|it| serde_json::from_str(&it).unwrap_or_default())
}
