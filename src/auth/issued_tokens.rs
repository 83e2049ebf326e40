//! Tokens that admins give out and take back.

use std::{collections::HashMap, sync::PoisonError};

use maru_store::TokenRow;
use thiserror::Error;

use super::{
    ADMIN_TOKEN_NAME, AccessControl, AccessRole, BearerToken, Grants, KnownToken, Principal,
};

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct TokenDraft {
    /// Unique: 1 to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`.
    pub name: String,
    /// What it allows.
    pub role: AccessRole,
    /// Servers it is good for; absent means all.
    pub servers: Option<Vec<String>>,
    /// Tools it is good for; absent means all.
    pub tools: Option<Vec<String>>,
    /// When it ends, in milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// A new token, shown this once.
#[derive(Debug)]
pub struct IssuedToken {
    /// The secret.
    pub token: BearerToken,
    /// What was kept of it.
    pub row: TokenRow,
}

/// Why nothing was changed.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The name is in use.
    #[error("a token named {0} exists already; revoke it first")]
    NameTaken(String),
    /// The name cannot be used.
    #[error("use 1 to 63 of a-z, A-Z, 0-9, -, _ and . for a name, and neither admin nor local")]
    InvalidName,
    /// It is the admin's own.
    #[error(
        "the admin token is that of the data directory: remove the file admin-token and start again"
    )]
    AdminToken,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}

impl AccessControl {
    /// Makes a token; it is good from now on.
    pub async fn create_token(&self, draft: &TokenDraft) -> Result<IssuedToken, TokenError> {
        let plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
        let fits = (1..=63).contains(&draft.name.len()) && draft.name.bytes().all(plain);
        if !fits || [ADMIN_TOKEN_NAME, Principal::local().name()].contains(&draft.name.as_str()) {
            return Err(TokenError::InvalidName);
        }
        let token = BearerToken::random();
        let row = TokenRow {
            servers: draft.servers.clone(),
            tools: draft.tools.clone(),
            expires_at: draft.expires_at,
            ..TokenRow::new(&draft.name, draft.role.as_str(), token.hash())
        };
        if !self.store.insert_token(&row).await? {
            return Err(TokenError::NameTaken(draft.name.clone()));
        }
        // Not read from the store again: were that to fail, a token that is good would
        // be reported as not made.
        if let Some((hash, known)) = known_token_from_row(row.clone()) {
            self.update_tokens(|tokens| tokens.insert(hash, known));
        }
        Ok(IssuedToken { token, row })
    }

    /// Every token but its secret, by name.
    pub async fn list_tokens(&self) -> Result<Vec<TokenRow>, maru_store::Error> {
        let mut rows = self.store.tokens().await?;
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// Takes a token back, at once; false if there is none of that name.
    pub async fn revoke_token(&self, name: &str) -> Result<bool, TokenError> {
        if name == ADMIN_TOKEN_NAME {
            return Err(TokenError::AdminToken);
        }
        let removed = self.store.delete_token(name).await?;
        self.update_tokens(|tokens| tokens.retain(|_, it| it.principal.name() != name));
        Ok(removed)
    }

    /// Reads the tokens anew; another hub on the same store may have changed them.
    pub async fn reload_tokens(&self) -> Result<(), maru_store::Error> {
        let rows = self.store.tokens().await?;
        let known: HashMap<_, _> = rows.into_iter().filter_map(known_token_from_row).collect();
        self.update_tokens(|tokens| *tokens = known);
        Ok(())
    }

    fn update_tokens<T>(&self, change: impl FnOnce(&mut HashMap<[u8; 32], KnownToken>) -> T) -> T {
        change(&mut self.tokens.write().unwrap_or_else(PoisonError::into_inner))
    }
}

fn known_token_from_row(row: TokenRow) -> Option<([u8; 32], KnownToken)> {
    let role = AccessRole::parse(&row.role)?;
    let grants = Grants::new(row.servers, row.tools);
    let known = KnownToken {
        principal: Principal::new(&row.name, role, grants),
        expires_at: row.expires_at,
    };
    Some((row.hash, known))
}
