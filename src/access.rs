//! Who is asking, and what they may do.

mod admin;
mod grants;
mod jwt;
mod keys;
mod oauth;
mod principal;
mod session;
mod token;
mod tokens;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use thiserror::Error;

use crate::{
    clock,
    store::{self, Store},
};

pub use admin::{ADMIN, ADMIN_TOKEN_FILE, admin_token};
pub use grants::Grants;
pub use oauth::OAuth;
pub use principal::{Principal, Role};
pub use session::{CODE_LIFETIME, SIGNED_IN, Sessions};
pub use token::Token;
pub use tokens::{Draft, Issued, Refused};

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
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// It was signed with a key that is not known yet; the keys may have changed.
    #[error("the token was signed with an unknown key")]
    UnknownKey,
    /// It was given out by the issuer, but not for this.
    #[error("the token cannot be used here: {0}")]
    Unfit(&'static str),
}

/// Everyone who may ask. Tokens come and go while the hub runs.
#[derive(Debug)]
pub struct Access {
    store: Store,
    tokens: RwLock<HashMap<[u8; 32], Known>>,
    require_token: AtomicBool,
    local: Principal,
    oauth: RwLock<Option<Arc<OAuth>>>,
}

#[derive(Debug)]
struct Known {
    principal: Principal,
    expires_at: Option<i64>,
}

impl Access {
    /// Reads the tokens.
    pub async fn load(
        store: Store,
        require_token: bool,
        oauth: Option<OAuth>,
    ) -> Result<Self, store::Error> {
        let access = Self {
            store,
            tokens: RwLock::default(),
            require_token: AtomicBool::new(require_token),
            local: Principal::local(),
            oauth: RwLock::new(oauth.map(Arc::new)),
        };
        access.reload().await?;
        Ok(access)
    }

    /// Who sent this `Authorization` header. A wrong token is never taken for none.
    pub fn identify(&self, authorization: Option<&[u8]>) -> Result<Principal, Denied> {
        match authorization {
            None if self.require_token.load(Relaxed) => Err(Denied::Missing),
            None => Ok(self.local.clone()),
            Some(header) => self.known(&bearer(header).ok_or(Denied::Unknown)?),
        }
    }

    /// Who may be asked for tokens instead of us.
    pub fn oauth(&self) -> Option<Arc<OAuth>> {
        let oauth = self.oauth.read().unwrap_or_else(PoisonError::into_inner);
        oauth.clone()
    }

    /// Uses these settings from now on.
    pub fn configure(&self, require_token: bool, oauth: Option<Arc<OAuth>>) {
        self.require_token.store(require_token, Relaxed);
        *self.oauth.write().unwrap_or_else(PoisonError::into_inner) = oauth;
    }

    fn known(&self, token: &Token) -> Result<Principal, Denied> {
        let hash = token.hash();
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        // A lookup by digest gives nothing away through its timing.
        match tokens.get(&hash) {
            Some(known) if known.expires_at.is_some_and(|it| it <= clock::now()) => {
                Err(Denied::Expired)
            }
            Some(known) => Ok(known.principal.clone()),
            None => match self.oauth() {
                Some(oauth) => oauth.identify(token, hash),
                None => Err(Denied::Unknown),
            },
        }
    }
}

impl Access {
    /// The principal of the token with this hash.
    pub fn of_hash(&self, hash: &[u8; 32]) -> Option<Principal> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let known = tokens.get(hash)?;
        let expired = known.expires_at.is_some_and(|it| it <= clock::now());
        (!expired).then(|| known.principal.clone())
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
        store
            .put_token(&TokenRow::new("admin", "admin", token.hash()))
            .await
            .unwrap();
        let access = Access::load(store.clone(), false, None).await.unwrap();
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
        let strict = Access::load(store, true, None).await.unwrap();
        assert_eq!(strict.identify(None), Err(Denied::Missing));
    }

    #[tokio::test]
    async fn token_works_from_its_making_to_its_end_and_no_longer() {
        let access = Access::load(Store::in_memory().await.unwrap(), true, None);
        let access = access.await.unwrap();
        let draft = |name: &str| Draft {
            name: name.to_owned(),
            role: Role::Reader,
            servers: Some(Vec::new()),
            tools: None,
            expires_at: None,
        };
        let issued = access.create(&draft("ci")).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        let who = access.identify(Some(header.as_bytes())).unwrap();
        assert_eq!((who.name(), who.role()), ("ci", Role::Reader));
        assert!(!who.may_reach("maru"));
        assert!(matches!(
            access.create(&draft("ci")).await,
            Err(Refused::Taken(_))
        ));
        assert!(access.create(&draft("admin")).await.is_err());
        assert!(access.revoke("ci").await.unwrap());
        assert_eq!(
            access.identify(Some(header.as_bytes())),
            Err(Denied::Unknown)
        );
        let mut late = draft("late");
        late.expires_at = Some(clock::now() - 1);
        let issued = access.create(&late).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        assert_eq!(
            access.identify(Some(header.as_bytes())),
            Err(Denied::Expired)
        );
        assert!(access.revoke("admin").await.is_err());
    }
}
