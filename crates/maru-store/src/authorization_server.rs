//! The tables of maru's own authorization server: accounts, registered clients and grants.
//! A grant holds no token: tokens are signed, and name their grant.

use super::{
    CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store,
    tokens::{format_name_list, parse_name_list},
};

/// An account. Its role and lists are those of the token of the same name.
#[derive(Clone, Debug)]
pub struct AccountRow {
    /// The name of the account, and of its token.
    pub name: String,
    /// How the issuer calls the person, for accounts of an issuer.
    pub label: Option<String>,
    /// Whether a passphrase was chosen.
    pub has_passphrase: bool,
    /// When the invitation that is open expires.
    pub invitation_expires_at: Option<i64>,
    /// When the account was created.
    pub created_at: i64,
}

/// A client that registered itself.
#[derive(Clone, Debug)]
pub struct OAuthClientRow {
    /// The client id.
    pub id: String,
    /// Its metadata as JSON.
    pub metadata: String,
    /// When it registered.
    pub created_at: i64,
}

/// What a person allowed a client to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuthGrantRow {
    /// The id, which the tokens name.
    pub id: String,
    /// The name of the account.
    pub account: String,
    /// The hash of the account's token.
    pub account_hash: [u8; 32],
    /// The client.
    pub client_id: String,
    /// The client's name when it was allowed.
    pub client_name: String,
    /// The role at most.
    pub role: String,
    /// The servers that it is limited to; absent means those of the account.
    pub servers: Option<Vec<String>>,
    /// The tools that it is limited to, as `server.tool`; absent means those of the account.
    pub tools: Option<Vec<String>>,
    /// What the authorization code is bound to, as JSON.
    pub code_request: String,
    /// The refresh token that may be used next; 0 is the authorization code.
    pub generation: i64,
    /// When the generation was last raised.
    pub renewed_at: i64,
    /// When the code or the refresh token expires.
    pub expires_at: i64,
    /// When it was allowed.
    pub created_at: i64,
}

const LIST_ACCOUNTS: PortableStatement = PortableStatement {
    attempted: "list the accounts",
    sql: "SELECT name, label, passphrase_hash IS NOT NULL, invitation_expires_at, created_at
          FROM account ORDER BY name",
};
const PUT_ACCOUNT: PortableStatement = PortableStatement {
    attempted: "save the account",
    sql: "INSERT INTO account (name, label, created_at) VALUES ($1, $2, $3)
          ON CONFLICT (name) DO UPDATE SET label = excluded.label RETURNING name",
};
const INVITE: PortableStatement = PortableStatement {
    attempted: "save the invitation",
    sql: "UPDATE account SET invitation_hash = $1, invitation_expires_at = $2
          WHERE name = $3 RETURNING name",
};
const FIND_INVITATION: PortableStatement = PortableStatement {
    attempted: "read the invitation",
    sql: "SELECT name FROM account WHERE invitation_hash = $1 AND invitation_expires_at > $2",
};
const ACCEPT_INVITATION: PortableStatement = PortableStatement {
    attempted: "accept the invitation",
    sql: "UPDATE account SET passphrase_hash = $1, invitation_hash = NULL,
            invitation_expires_at = NULL
          WHERE invitation_hash = $2 AND invitation_expires_at > $3 RETURNING name",
};
const PASSPHRASE_HASH: PortableStatement = PortableStatement {
    attempted: "read the account",
    sql: "SELECT passphrase_hash FROM account WHERE name = $1 AND passphrase_hash IS NOT NULL",
};
const DELETE_ACCOUNT: PortableStatement = PortableStatement {
    attempted: "delete the account",
    sql: "DELETE FROM account WHERE name = $1 RETURNING name",
};
const ADD_CLIENT: PortableStatement = PortableStatement {
    attempted: "register the client",
    sql: "INSERT INTO oauth_client (id, metadata, created_at) VALUES ($1, $2, $3) RETURNING id",
};
const GET_CLIENT: PortableStatement = PortableStatement {
    attempted: "read the client",
    sql: "SELECT id, metadata, created_at FROM oauth_client WHERE id = $1",
};
const LIST_CLIENTS: PortableStatement = PortableStatement {
    attempted: "list the clients",
    sql: "SELECT id, metadata, created_at FROM oauth_client ORDER BY created_at",
};
const DELETE_CLIENT: PortableStatement = PortableStatement {
    attempted: "delete the client",
    sql: "DELETE FROM oauth_client WHERE id = $1 RETURNING id",
};
/// Deletes the clients that nobody allowed anything: those that are too old, and the oldest
/// of those that are too many.
const EXPIRE_CLIENTS: PortableStatement = PortableStatement {
    attempted: "delete the unused clients",
    sql: "DELETE FROM oauth_client
          WHERE id NOT IN (SELECT client_id FROM oauth_grant)
            AND (created_at <= $1 OR id NOT IN
              (SELECT id FROM oauth_client ORDER BY created_at DESC, id LIMIT $2))
          RETURNING id",
};
const ADD_GRANT: PortableStatement = PortableStatement {
    attempted: "save the grant",
    sql: "INSERT INTO oauth_grant (id, account, account_hash, client_id, client_name, role,
            servers, tools, code_request, generation, renewed_at, expires_at, created_at)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $10) RETURNING id",
};
const GET_GRANT: PortableStatement = PortableStatement {
    attempted: "read the grant",
    sql: "SELECT id, account, account_hash, client_id, client_name, role, servers,
            tools, code_request, generation, renewed_at, expires_at, created_at
          FROM oauth_grant WHERE id = $1",
};
const LIST_GRANTS: PortableStatement = PortableStatement {
    attempted: "list the grants",
    sql: "SELECT id, account, account_hash, client_id, client_name, role, servers,
            tools, code_request, generation, renewed_at, expires_at, created_at
          FROM oauth_grant ORDER BY created_at DESC",
};
const RENEW_GRANT: PortableStatement = PortableStatement {
    attempted: "renew the grant",
    sql: "UPDATE oauth_grant SET generation = generation + 1, renewed_at = $1, expires_at = $2
          WHERE id = $3 AND generation = $4 RETURNING id",
};
const DELETE_GRANT: PortableStatement = PortableStatement {
    attempted: "delete the grant",
    sql: "DELETE FROM oauth_grant WHERE id = $1 RETURNING id",
};
const DELETE_GRANTS_OF_CLIENT: PortableStatement = PortableStatement {
    attempted: "delete the grants of the client",
    sql: "DELETE FROM oauth_grant WHERE client_id = $1 RETURNING id",
};
const DELETE_GRANTS_OF_ACCOUNT: PortableStatement = PortableStatement {
    attempted: "delete the grants of the account",
    sql: "DELETE FROM oauth_grant WHERE account = $1 RETURNING id",
};
/// Deletes the expired grants, and those of an account beyond the newest.
const EXPIRE_GRANTS: PortableStatement = PortableStatement {
    attempted: "delete the expired grants",
    sql: "DELETE FROM oauth_grant WHERE expires_at <= $1 OR (account = $2 AND id NOT IN
            (SELECT id FROM oauth_grant WHERE account = $2
             ORDER BY renewed_at DESC, id LIMIT $3))
          RETURNING id",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    LIST_ACCOUNTS,
    PUT_ACCOUNT,
    INVITE,
    FIND_INVITATION,
    ACCEPT_INVITATION,
    PASSPHRASE_HASH,
    DELETE_ACCOUNT,
    ADD_CLIENT,
    GET_CLIENT,
    LIST_CLIENTS,
    DELETE_CLIENT,
    EXPIRE_CLIENTS,
    ADD_GRANT,
    GET_GRANT,
    LIST_GRANTS,
    RENEW_GRANT,
    DELETE_GRANT,
    DELETE_GRANTS_OF_CLIENT,
    DELETE_GRANTS_OF_ACCOUNT,
    EXPIRE_GRANTS,
];

/// Accounts.
impl Store {
    /// Lists the accounts by name.
    pub async fn accounts(&self) -> Result<Vec<AccountRow>, Error> {
        self.query_as(LIST_ACCOUNTS, Vec::new()).await
    }

    /// Adds an account, or replaces its label.
    pub async fn put_account(
        &self,
        name: &str,
        label: Option<&str>,
        now: i64,
    ) -> Result<(), Error> {
        let values = vec![name.into(), label.into(), now.into()];
        self.execute(PUT_ACCOUNT, values).await.map(drop)
    }

    /// Opens an invitation, which replaces the one before; false if there is no such
    /// account.
    pub async fn invite(
        &self,
        name: &str,
        hash: &[u8; 32],
        expires_at: i64,
    ) -> Result<bool, Error> {
        let values = vec![hash.as_slice().into(), expires_at.into(), name.into()];
        self.execute(INVITE, values).await
    }

    /// Returns the account that the invitation is for.
    pub async fn invited_account(
        &self,
        hash: &[u8; 32],
        now: i64,
    ) -> Result<Option<String>, Error> {
        let values = vec![hash.as_slice().into(), now.into()];
        self.first_text(FIND_INVITATION, values).await
    }

    /// Sets the passphrase of the invited account; the invitation works once.
    pub async fn accept_invitation(
        &self,
        hash: &[u8; 32],
        passphrase_hash: &str,
        now: i64,
    ) -> Result<Option<String>, Error> {
        let values = vec![passphrase_hash.into(), hash.as_slice().into(), now.into()];
        self.first_text(ACCEPT_INVITATION, values).await
    }

    /// Returns the hash of an account's passphrase.
    pub async fn passphrase_hash(&self, name: &str) -> Result<Option<String>, Error> {
        self.first_text(PASSPHRASE_HASH, vec![name.into()]).await
    }

    /// Deletes a token with its account, grants, browser sessions and what its holder is
    /// signed in with at servers, or nothing. The next holder of the name inherits nothing.
    pub async fn delete_access(&self, name: &str) -> Result<(), Error> {
        let statements = [
            super::console::DELETE_SESSIONS_OF_TOKEN,
            super::credentials::DELETE_SIGN_INS_OF_SUBJECT,
            super::credentials::DELETE_OF_SUBJECT,
            DELETE_GRANTS_OF_ACCOUNT,
            DELETE_ACCOUNT,
            super::tokens::DELETE,
        ];
        let work = statements.map(|it| (it, vec![name.into()]));
        self.execute_in_transaction(super::tokens::DELETE, work)
            .await
    }

    /// Ends the grants and browser sessions of an account, all or none.
    pub async fn end_account_sessions(&self, name: &str) -> Result<(), Error> {
        let statements = [
            super::console::DELETE_SESSIONS_OF_TOKEN,
            DELETE_GRANTS_OF_ACCOUNT,
        ];
        let work = statements.map(|it| (it, vec![name.into()]));
        self.execute_in_transaction(DELETE_GRANTS_OF_ACCOUNT, work)
            .await
    }

    async fn first_text(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<Option<String>, Error> {
        let rows: Vec<TextRow> = self.query_as(statement, values).await?;
        Ok(rows.into_iter().next().map(|it| it.0))
    }
}

/// Clients.
impl Store {
    /// Adds a client.
    pub async fn add_oauth_client(&self, row: &OAuthClientRow) -> Result<(), Error> {
        let values = vec![
            row.id.as_str().into(),
            row.metadata.as_str().into(),
            row.created_at.into(),
        ];
        self.execute(ADD_CLIENT, values).await.map(drop)
    }

    /// Returns a registered client.
    pub async fn oauth_client(&self, id: &str) -> Result<Option<OAuthClientRow>, Error> {
        let rows = self.query_as(GET_CLIENT, vec![id.into()]).await?;
        Ok(rows.into_iter().next())
    }

    /// Lists the registered clients, the oldest first.
    pub async fn oauth_clients(&self) -> Result<Vec<OAuthClientRow>, Error> {
        self.query_as(LIST_CLIENTS, Vec::new()).await
    }

    /// Deletes a client; false if there is none.
    pub async fn delete_oauth_client(&self, id: &str) -> Result<bool, Error> {
        self.execute(DELETE_CLIENT, vec![id.into()]).await
    }

    /// Deletes clients without grants: those registered until `created_until`, and the
    /// oldest while there are more than `limit`.
    pub async fn expire_oauth_clients(&self, created_until: i64, limit: i64) -> Result<(), Error> {
        let values = vec![created_until.into(), limit.into()];
        self.execute(EXPIRE_CLIENTS, values).await.map(drop)
    }
}

/// Grants.
impl Store {
    /// Adds a grant, with its code unused.
    pub async fn add_grant(&self, row: &OAuthGrantRow) -> Result<(), Error> {
        let values = vec![
            row.id.as_str().into(),
            row.account.as_str().into(),
            row.account_hash.as_slice().into(),
            row.client_id.as_str().into(),
            row.client_name.as_str().into(),
            row.role.as_str().into(),
            format_name_list(row.servers.as_deref()).into(),
            format_name_list(row.tools.as_deref()).into(),
            row.code_request.as_str().into(),
            row.created_at.into(),
            row.expires_at.into(),
        ];
        self.execute(ADD_GRANT, values).await.map(drop)
    }

    /// Returns a grant.
    pub async fn grant(&self, id: &str) -> Result<Option<OAuthGrantRow>, Error> {
        let rows = self.query_as(GET_GRANT, vec![id.into()]).await?;
        Ok(rows.into_iter().next())
    }

    /// Lists the grants, the newest first.
    pub async fn grants(&self) -> Result<Vec<OAuthGrantRow>, Error> {
        self.query_as(LIST_GRANTS, Vec::new()).await
    }

    /// Raises the generation of a grant if it is still that of `row`; false if another
    /// request was faster.
    pub async fn renew_grant(
        &self,
        row: &OAuthGrantRow,
        now: i64,
        expires_at: i64,
    ) -> Result<bool, Error> {
        let values = vec![
            now.into(),
            expires_at.into(),
            row.id.as_str().into(),
            row.generation.into(),
        ];
        self.execute(RENEW_GRANT, values).await
    }

    /// Deletes a grant; false if there is none.
    pub async fn delete_grant(&self, id: &str) -> Result<bool, Error> {
        self.execute(DELETE_GRANT, vec![id.into()]).await
    }

    /// Deletes the grants of a client; false if there are none.
    pub async fn delete_grants_of_client(&self, id: &str) -> Result<bool, Error> {
        self.execute(DELETE_GRANTS_OF_CLIENT, vec![id.into()]).await
    }

    /// Deletes the expired grants, and those of `account` beyond the newest `limit`.
    pub async fn expire_grants(&self, account: &str, now: i64, limit: i64) -> Result<(), Error> {
        let values = vec![now.into(), account.into(), limit.into()];
        self.execute(EXPIRE_GRANTS, values).await.map(drop)
    }
}

struct TextRow(String);

impl TryFrom<ResultRow> for TextRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}

impl TryFrom<ResultRow> for AccountRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            label: row.next_cell()?,
            has_passphrase: row.next_cell()?,
            invitation_expires_at: row.next_cell()?,
            created_at: row.next_cell()?,
        })
    }
}

impl TryFrom<ResultRow> for OAuthClientRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.next_cell()?,
            metadata: row.next_cell()?,
            created_at: row.next_cell()?,
        })
    }
}

impl TryFrom<ResultRow> for OAuthGrantRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            id: row.next_cell()?,
            account: row.next_cell()?,
            account_hash: row.next_cell()?,
            client_id: row.next_cell()?,
            client_name: row.next_cell()?,
            role: row.next_cell()?,
            servers: parse_name_list(row.next_cell()?),
            tools: parse_name_list(row.next_cell()?),
            code_request: row.next_cell()?,
            generation: row.next_cell()?,
            renewed_at: row.next_cell()?,
            expires_at: row.next_cell()?,
            created_at: row.next_cell()?,
        })
    }
}
