//! What maru is signed in with at servers, and the sign-ins in progress.

use std::{collections::HashMap, fmt};

use maru_runtime::clock;

use super::{CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store, is_sealed};

/// A credential for a server, as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerCredentialRow {
    /// The id of the server.
    pub server_id: String,
    /// Whose credential it is; empty if all callers share it.
    pub subject: String,
    /// Tokens and client as JSON.
    pub data: String,
    /// Grows with each change, also when a deleted credential is added again.
    pub version: i64,
    /// Names the hub that is refreshing the tokens; empty if none is.
    pub lease: String,
}

/// A sign-in in progress.
#[derive(Clone, Copy)]
pub struct SignInRow<'a> {
    /// The hash of its state.
    pub state_hash: &'a str,
    /// Whose credential it is for; empty if all callers share it.
    pub subject: &'a str,
    /// What belongs to it, as JSON.
    pub data: &'a str,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: i64,
}

const GET: PortableStatement = PortableStatement {
    attempted: "read the credential",
    sql: "SELECT server_id, subject, data, version, lease FROM server_credential
          WHERE server_id = $1 AND subject = $2",
};
const LIST: PortableStatement = PortableStatement {
    attempted: "list the credentials",
    sql: "SELECT server_id, subject, data, version, lease FROM server_credential",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the credential",
    sql: "INSERT INTO server_credential (server_id, subject, data, version, lease, updated_at)
          VALUES ($1, $2, $3, $4, '', $4)
          ON CONFLICT (server_id, subject) DO UPDATE SET data = excluded.data,
            version = server_credential.version + 1, lease = '', updated_at = excluded.updated_at
          RETURNING server_id, subject, data, version, lease",
};
const REPLACE: PortableStatement = PortableStatement {
    attempted: "replace the credential",
    sql:
        "UPDATE server_credential SET data = $1, version = version + 1, lease = '', updated_at = $2
          WHERE server_id = $3 AND subject = $4 AND version = $5
          RETURNING server_id, subject, data, version, lease",
};
const LEASE: PortableStatement = PortableStatement {
    attempted: "lock the credential",
    sql: "UPDATE server_credential SET lease = $1
          WHERE server_id = $2 AND subject = $3 AND version = $4 AND lease = $5
          RETURNING server_id",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the credential",
    sql: "DELETE FROM server_credential WHERE server_id = $1 AND subject = $2
          RETURNING server_id",
};
const DELETE_ALL: PortableStatement = PortableStatement {
    attempted: "delete the credentials of the server",
    sql: "DELETE FROM server_credential WHERE server_id = $1 RETURNING server_id",
};
pub(super) const DELETE_OF_SUBJECT: PortableStatement = PortableStatement {
    attempted: "delete the credentials of the caller",
    sql: "DELETE FROM server_credential WHERE subject = $1 RETURNING server_id",
};
const LIST_VERSIONS: PortableStatement = PortableStatement {
    attempted: "list the versions of the credentials",
    sql: "SELECT server_id, subject, version FROM server_credential",
};
const PUT_SIGN_IN: PortableStatement = PortableStatement {
    attempted: "save the sign-in",
    sql: "INSERT INTO server_sign_in (state_hash, subject, data, expires_at)
          VALUES ($1, $2, $3, $4) RETURNING state_hash",
};
const FIND_SIGN_IN: PortableStatement = PortableStatement {
    attempted: "find the sign-in",
    sql: "SELECT COUNT(*) FROM server_sign_in WHERE state_hash = $1 AND expires_at > $2",
};
pub(super) const DELETE_SIGN_INS_OF_SUBJECT: PortableStatement = PortableStatement {
    attempted: "delete the sign-ins of the caller",
    sql: "DELETE FROM server_sign_in WHERE subject = $1 RETURNING state_hash",
};
const TAKE_SIGN_IN: PortableStatement = PortableStatement {
    attempted: "read the sign-in",
    sql: "DELETE FROM server_sign_in WHERE state_hash = $1 AND expires_at > $2 RETURNING data",
};
const EXPIRE_SIGN_INS: PortableStatement = PortableStatement {
    attempted: "delete the expired sign-ins",
    sql: "DELETE FROM server_sign_in WHERE expires_at <= $1 RETURNING state_hash",
};
const COUNT_SIGN_INS: PortableStatement = PortableStatement {
    attempted: "count the sign-ins",
    sql: "SELECT COUNT(*) FROM server_sign_in",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    GET,
    LIST,
    PUT,
    REPLACE,
    LEASE,
    DELETE,
    DELETE_ALL,
    DELETE_OF_SUBJECT,
    LIST_VERSIONS,
    PUT_SIGN_IN,
    FIND_SIGN_IN,
    DELETE_SIGN_INS_OF_SUBJECT,
    TAKE_SIGN_IN,
    EXPIRE_SIGN_INS,
    COUNT_SIGN_INS,
];

impl Store {
    /// Returns the credential of `subject` for a server. Data that cannot be opened stays
    /// sealed.
    pub async fn credential(
        &self,
        server_id: &str,
        subject: &str,
    ) -> Result<Option<ServerCredentialRow>, Error> {
        let values = vec![server_id.into(), subject.into()];
        let rows = self.query_as(GET, values).await?;
        Ok(self.open_credential(rows))
    }

    /// Adds or replaces a credential, whatever its version, and returns it as stored.
    pub async fn put_credential(
        &self,
        server_id: &str,
        subject: &str,
        data: &str,
    ) -> Result<Option<ServerCredentialRow>, Error> {
        let values = vec![
            server_id.into(),
            subject.into(),
            self.seal_text(&credential_data(server_id, subject), data)
                .as_str()
                .into(),
            clock::now_ms().into(),
        ];
        let rows = self.query_as(PUT, values).await?;
        Ok(self.open_credential(rows))
    }

    /// Replaces the data of a credential if it still has the version of `row`, and returns
    /// it as stored; `None` if another hub or sign-in was faster.
    pub async fn replace_credential(
        &self,
        row: &ServerCredentialRow,
        data: &str,
    ) -> Result<Option<ServerCredentialRow>, Error> {
        let sealed = self.seal_text(&credential_data(&row.server_id, &row.subject), data);
        let values = vec![
            sealed.as_str().into(),
            clock::now_ms().into(),
            row.server_id.as_str().into(),
            row.subject.as_str().into(),
            row.version.into(),
        ];
        let rows = self.query_as(REPLACE, values).await?;
        Ok(self.open_credential(rows))
    }

    /// Replaces the lease of a credential if it still has the version and the lease of
    /// `row`; returns false if not.
    pub async fn lease_credential(
        &self,
        row: &ServerCredentialRow,
        lease: &str,
    ) -> Result<bool, Error> {
        let values = vec![
            lease.into(),
            row.server_id.as_str().into(),
            row.subject.as_str().into(),
            row.version.into(),
            row.lease.as_str().into(),
        ];
        self.execute(LEASE, values).await
    }

    /// Deletes a credential; returns false if there is none.
    pub async fn delete_credential(&self, server_id: &str, subject: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![server_id.into(), subject.into()])
            .await
    }

    /// Deletes all credentials for a server.
    pub async fn delete_credentials(&self, server_id: &str) -> Result<(), Error> {
        self.execute(DELETE_ALL, vec![server_id.into()])
            .await
            .map(drop)
    }

    /// Lists the versions of all credentials, by server id and subject.
    pub async fn credential_versions(&self) -> Result<HashMap<(String, String), i64>, Error> {
        let rows: Vec<CredentialVersion> = self.query_as(LIST_VERSIONS, Vec::new()).await?;
        Ok(rows.into_iter().map(|it| (it.key, it.version)).collect())
    }

    /// Saves a sign-in; returns false if `limit` others are in progress.
    pub async fn put_sign_in(&self, row: &SignInRow<'_>, limit: i64) -> Result<bool, Error> {
        self.execute(EXPIRE_SIGN_INS, vec![clock::now_ms().into()])
            .await?;
        let counted: Vec<SignInCount> = self.query_as(COUNT_SIGN_INS, Vec::new()).await?;
        if counted.first().is_some_and(|it| it.0 >= limit) {
            return Ok(false);
        }
        let sealed = self.seal_text(&sign_in_data(row.state_hash), row.data);
        let values = vec![
            row.state_hash.into(),
            row.subject.into(),
            sealed.as_str().into(),
            row.expires_at.into(),
        ];
        self.execute(PUT_SIGN_IN, values).await
    }

    /// Whether the sign-in with this state is in progress.
    pub async fn has_sign_in(&self, state_hash: &str) -> Result<bool, Error> {
        let values: Vec<CellValue> = vec![state_hash.into(), clock::now_ms().into()];
        let found: Vec<SignInCount> = self.query_as(FIND_SIGN_IN, values).await?;
        Ok(found.first().is_some_and(|it| it.0 > 0))
    }

    /// Removes and returns the sign-in with this state; `None` if it was already taken, has
    /// expired or never existed.
    pub async fn take_sign_in(&self, state_hash: &str) -> Result<Option<String>, Error> {
        let values: Vec<CellValue> = vec![state_hash.into(), clock::now_ms().into()];
        let rows: Vec<SignInData> = self.query_as(TAKE_SIGN_IN, values).await?;
        let row = rows.into_iter().next();
        Ok(row.map(|it| self.open_text(&sign_in_data(state_hash), it.0)))
    }

    /// Seals the credentials that are stored as plain text.
    pub(super) async fn seal_credentials(&self) -> Result<(), Error> {
        let rows: Vec<ServerCredentialRow> = self.query_as(LIST, Vec::new()).await?;
        for row in rows.iter().filter(|it| !is_sealed(&it.data)) {
            self.replace_credential(row, &row.data).await?;
        }
        Ok(())
    }

    fn open_credential(&self, rows: Vec<ServerCredentialRow>) -> Option<ServerCredentialRow> {
        let mut row = rows.into_iter().next()?;
        let bound_to = credential_data(&row.server_id, &row.subject);
        row.data = self.open_text(&bound_to, row.data);
        Some(row)
    }

    fn seal_text(&self, bound_to: &str, text: &str) -> String {
        match &self.sealer {
            Some(sealer) if !is_sealed(text) => sealer.seal(bound_to, text),
            _ => text.to_owned(),
        }
    }

    fn open_text(&self, bound_to: &str, text: String) -> String {
        let opened = self.sealer.as_ref().and_then(|it| it.open(bound_to, &text));
        opened.unwrap_or(text)
    }
}

/// What the sealed data of a credential is bound to.
fn credential_data(server_id: &str, subject: &str) -> String {
    format!("server_credential.data of {server_id} for {subject}")
}

/// What the sealed data of a sign-in is bound to.
fn sign_in_data(state_hash: &str) -> String {
    format!("server_sign_in.data of {state_hash}")
}

struct CredentialVersion {
    key: (String, String),
    version: i64,
}

impl TryFrom<ResultRow> for CredentialVersion {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            key: (row.next_cell()?, row.next_cell()?),
            version: row.next_cell()?,
        })
    }
}

struct SignInData(String);

impl TryFrom<ResultRow> for SignInData {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}

struct SignInCount(i64);

impl TryFrom<ResultRow> for SignInCount {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self(row.next_cell()?))
    }
}

impl TryFrom<ResultRow> for ServerCredentialRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            server_id: row.next_cell()?,
            subject: row.next_cell()?,
            data: row.next_cell()?,
            version: row.next_cell()?,
            lease: row.next_cell()?,
        })
    }
}

/// Leaves the data out: it holds tokens.
impl fmt::Debug for ServerCredentialRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerCredentialRow")
            .field("server_id", &self.server_id)
            .field("subject", &self.subject)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
