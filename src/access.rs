//! Who is asking, and what they may do.

mod admin;
mod session;
mod token;

use std::{collections::HashMap, sync::Arc};

use thiserror::Error;

use crate::store::{self, Store};

pub use admin::admin_token;
pub use session::{SIGNED_IN, Sessions};
pub use token::Token;

/// What a caller may do; each role may do all that the one before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// See what there is.
    Reader,
    /// Call tools.
    Agent,
    /// Change maru.
    Admin,
}

/// Someone who was identified. There is no default.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    name: Arc<str>,
    role: Role,
}

/// The caller could not be identified.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Denied {
    /// A token is needed and none was given.
    #[error("a token is needed: send it as \"Authorization: Bearer TOKEN\"")]
    Missing,
    /// The token is not known.
    #[error(
        "the token is not known; the admin token is in the file admin-token of the data directory"
    )]
    Unknown,
}

/// Everyone who may ask.
#[derive(Debug)]
pub struct Access {
    tokens: HashMap<[u8; 32], Principal>,
    require_token: bool,
    local: Principal,
}

impl Principal {
    /// A program on this machine that showed no token.
    pub fn local() -> Self {
        Self {
            name: "local".into(),
            role: Role::Agent,
        }
    }

    /// The name in logs and audit.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, to be kept.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// What they may do.
    pub fn role(&self) -> Role {
        self.role
    }
}

impl Access {
    /// Reads the tokens.
    pub async fn load(store: &Store, require_token: bool) -> Result<Self, store::Error> {
        let known = store.tokens().await?.into_iter().filter_map(|row| {
            let role = match row.role.as_str() {
                "reader" => Role::Reader,
                "agent" => Role::Agent,
                "admin" => Role::Admin,
                _ => return None,
            };
            let name = row.name.into();
            Some((row.hash, Principal { name, role }))
        });
        Ok(Self {
            tokens: known.collect(),
            require_token,
            local: Principal::local(),
        })
    }

    /// Who sent this `Authorization` header. A wrong token is never taken for none.
    pub fn identify(&self, authorization: Option<&[u8]>) -> Result<Principal, Denied> {
        match authorization {
            None if self.require_token => Err(Denied::Missing),
            None => Ok(self.local.clone()),
            Some(header) => {
                let token = bearer(header).ok_or(Denied::Unknown)?;
                // A lookup by digest gives nothing away through its timing.
                let found = self.tokens.get(&token.hash());
                found.cloned().ok_or(Denied::Unknown)
            }
        }
    }
}

impl Access {
    /// The principal of the token with this hash.
    pub fn of_hash(&self, hash: &[u8; 32]) -> Option<Principal> {
        self.tokens.get(hash).cloned()
    }

    /// The hash of the token in an `Authorization` header.
    pub fn hash_in(authorization: &[u8]) -> Option<[u8; 32]> {
        bearer(authorization).map(|token| token.hash())
    }
}

fn bearer(header: &[u8]) -> Option<Token> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Token::from(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TokenRow;

    #[tokio::test]
    async fn only_the_right_token_is_known_and_a_wrong_one_is_not_anonymous() {
        let store = Store::in_memory().await.unwrap();
        let token = Token::random();
        let row = TokenRow {
            name: "admin".into(),
            role: "admin".into(),
            hash: token.hash(),
        };
        store.put_token(&row).await.unwrap();
        let access = Access::load(&store, false).await.unwrap();
        let header = format!("Bearer {}", token.reveal());
        assert_eq!(
            access.identify(Some(header.as_bytes())).unwrap().role(),
            Role::Admin
        );
        assert_eq!(access.identify(None).unwrap().role(), Role::Agent);
        for wrong in ["Bearer ", "Bearer null", "Basic x", "x", ""] {
            assert_eq!(
                access.identify(Some(wrong.as_bytes())),
                Err(Denied::Unknown),
                "{wrong}"
            );
        }
        let strict = Access::load(&store, true).await.unwrap();
        assert_eq!(strict.identify(None), Err(Denied::Missing));
    }
}
