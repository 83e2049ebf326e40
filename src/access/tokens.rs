//! Tokens that admins give out and take back.

use std::{collections::HashMap, sync::PoisonError};

use thiserror::Error;

use super::{ADMIN, Access, Grants, Known, Principal, Role, Token};
use crate::store::{self, TokenRow};

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Unique: 1 to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// Servers it is good for; absent means all.
    pub servers: Option<Vec<String>>,
    /// Tools it is good for; absent means all.
    pub tools: Option<Vec<String>>,
    /// When it ends, in milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// A new token, shown this once.
#[derive(Debug)]
pub struct Issued {
    /// The secret.
    pub token: Token,
    /// What was kept of it.
    pub row: TokenRow,
}

/// Why nothing was changed.
#[derive(Debug, Error)]
pub enum Refused {
    /// The name is in use.
    #[error("a token named {0} exists already; revoke it first")]
    Taken(String),
    /// The name cannot be used.
    #[error("use 1 to 63 of a-z, A-Z, 0-9, -, _ and . for a name, and neither admin nor local")]
    Name,
    /// It is the admin's own.
    #[error(
        "the admin token is that of the data directory: remove the file admin-token and start again"
    )]
    Admin,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Access {
    /// Makes a token; it is good from now on.
    pub async fn create(&self, draft: &Draft) -> Result<Issued, Refused> {
        let plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
        let fits = (1..=63).contains(&draft.name.len()) && draft.name.bytes().all(plain);
        if !fits || [ADMIN, Principal::local().name()].contains(&draft.name.as_str()) {
            return Err(Refused::Name);
        }
        let token = Token::random();
        let row = TokenRow {
            servers: draft.servers.clone(),
            tools: draft.tools.clone(),
            expires_at: draft.expires_at,
            ..TokenRow::new(&draft.name, draft.role.name(), token.hash())
        };
        if !self.store.insert_token(&row).await? {
            return Err(Refused::Taken(draft.name.clone()));
        }
        // Not read from the store again: were that to fail, a token that is good would
        // be reported as not made.
        if let Some((hash, known)) = known(row.clone()) {
            self.edit(|tokens| tokens.insert(hash, known));
        }
        Ok(Issued { token, row })
    }

    /// Every token but its secret, by name.
    pub async fn list(&self) -> Result<Vec<TokenRow>, store::Error> {
        let mut rows = self.store.tokens().await?;
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// Takes a token back, at once; false if there is none of that name.
    pub async fn revoke(&self, name: &str) -> Result<bool, Refused> {
        if name == ADMIN {
            return Err(Refused::Admin);
        }
        let removed = self.store.delete_token(name).await?;
        self.edit(|tokens| tokens.retain(|_, it| it.principal.name() != name));
        Ok(removed)
    }

    /// Reads the tokens anew; another hub on the same store may have changed them.
    pub async fn reload(&self) -> Result<(), store::Error> {
        let rows = self.store.tokens().await?;
        let known: HashMap<_, _> = rows.into_iter().filter_map(known).collect();
        self.edit(|tokens| *tokens = known);
        Ok(())
    }

    fn edit<T>(&self, change: impl FnOnce(&mut HashMap<[u8; 32], Known>) -> T) -> T {
        change(&mut self.tokens.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn known(row: TokenRow) -> Option<([u8; 32], Known)> {
    let role = Role::read(&row.role)?;
    let grants = Grants::new(row.servers, row.tools);
    let known = Known {
        principal: Principal::new(&row.name, role, grants),
        expires_at: row.expires_at,
    };
    Some((row.hash, known))
}
