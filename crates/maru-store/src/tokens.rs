//! The table of access tokens, which are stored as hashes.

use maru_runtime::clock;

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store};

/// An access token. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct TokenRow {
    /// The unique name.
    pub name: String,
    /// `reader`, `agent` or `admin`.
    pub role: String,
    /// SHA-256 of the token.
    pub hash: [u8; 32],
    /// The servers that it may use; absent means all.
    pub servers: Option<Vec<String>>,
    /// The tools that it may use; absent means all.
    pub tools: Option<Vec<String>>,
    /// The toolset that it is limited to; absent means all tools.
    pub toolset: Option<String>,
    /// `list`, `search` or `auto`; absent means what the endpoint does.
    pub tool_listing: Option<String>,
    /// When it was created.
    pub created_at: i64,
    /// When it expires.
    pub expires_at: Option<i64>,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the tokens",
    sql: "SELECT name, role, hash, servers, tools, created_at, expires_at,
            toolset, tool_listing FROM token",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the token",
    sql: "INSERT INTO token (name, role, hash, created_at) VALUES ($1, $2, $3, $4)
          ON CONFLICT (name) DO UPDATE SET role = excluded.role, hash = excluded.hash
          RETURNING name",
};
const INSERT: PortableStatement = PortableStatement {
    attempted: "save the token",
    sql: "INSERT INTO token (name, role, hash, created_at, servers, tools, expires_at,
            toolset, tool_listing)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
          ON CONFLICT (name) DO NOTHING RETURNING name",
};
const UPDATE: PortableStatement = PortableStatement {
    attempted: "change the token",
    sql: "UPDATE token SET role = $1, expires_at = $2 WHERE name = $3 RETURNING name",
};
pub(super) const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the token",
    sql: "DELETE FROM token WHERE name = $1 RETURNING name",
};
/// The statements of this table.
pub(super) const STATEMENTS: &[PortableStatement] = &[LIST, PUT, INSERT, UPDATE, DELETE];

impl TokenRow {
    /// Creates a token that may do everything its role allows and does not expire.
    pub fn new(name: &str, role: &str, hash: [u8; 32]) -> Self {
        Self {
            name: name.to_owned(),
            role: role.to_owned(),
            hash,
            servers: None,
            tools: None,
            toolset: None,
            tool_listing: None,
            created_at: clock::now_ms(),
            expires_at: None,
        }
    }
}
impl Store {
    /// Lists the tokens.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, Error> {
        self.query_as(LIST, Vec::new()).await
    }

    /// Inserts a token, or replaces role and hash of the one of that name.
    pub async fn put_token(&self, row: &TokenRow) -> Result<(), Error> {
        let values = vec![
            row.name.as_str().into(),
            row.role.as_str().into(),
            row.hash.as_slice().into(),
            row.created_at.into(),
        ];
        self.execute(PUT, values).await?;
        Ok(())
    }

    /// Inserts a token; false if its name is taken.
    pub async fn insert_token(&self, row: &TokenRow) -> Result<bool, Error> {
        let values = vec![
            row.name.as_str().into(),
            row.role.as_str().into(),
            row.hash.as_slice().into(),
            row.created_at.into(),
            format_name_list(row.servers.as_deref()).into(),
            format_name_list(row.tools.as_deref()).into(),
            row.expires_at.into(),
            row.toolset.as_deref().into(),
            row.tool_listing.as_deref().into(),
        ];
        self.execute(INSERT, values).await
    }

    /// Changes role and expiry of a token; false if there is none of this name.
    pub async fn update_token(
        &self,
        name: &str,
        role: &str,
        expires_at: i64,
    ) -> Result<bool, Error> {
        let values = vec![role.into(), expires_at.into(), name.into()];
        self.execute(UPDATE, values).await
    }

    /// Deletes a token; returns false if it does not exist.
    pub async fn delete_token(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![name.into()]).await
    }
}

impl TryFrom<ResultRow> for TokenRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            role: row.next_cell()?,
            hash: row.next_cell()?,
            servers: parse_name_list(row.next_cell()?),
            tools: parse_name_list(row.next_cell()?),
            created_at: row.next_cell()?,
            expires_at: row.next_cell()?,
            toolset: row.next_cell()?,
            tool_listing: row.next_cell()?,
        })
    }
}

/// Writes a list of names as JSON.
pub(super) fn format_name_list(names: Option<&[String]>) -> Option<String> {
    names.map(|it| serde_json::json!(it).to_string())
}

/// Parses a JSON list of names. An invalid list is empty and allows nothing.
pub(super) fn parse_name_list(text: Option<String>) -> Option<Vec<String>> {
    text.map(|it| serde_json::from_str(&it).unwrap_or_default())
}
