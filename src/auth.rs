//! Who is asking, and what they may do.

mod admin_token;
mod bearer_token;
mod console_sessions;
mod grants;
mod issued_tokens;
mod jwt;
mod keys;
mod oauth;
mod principal;
mod ring_provider;

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use maru_runtime::clock;
use maru_store::Store;
use thiserror::Error;

pub use admin_token::{ADMIN_TOKEN_FILE, ADMIN_TOKEN_NAME, load_or_create_admin_token};
pub use bearer_token::BearerToken;
pub use console_sessions::{ConsoleSessions, SESSION_LIFETIME, SIGN_IN_CODE_LIFETIME};
pub use grants::Grants;
pub use issued_tokens::{IssuedToken, TokenDraft, TokenError};
pub use oauth::OAuthVerifier;
pub use principal::{AccessRole, Principal};

/// The caller could not be identified.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// A token is needed and none was given.
    #[error("a token is needed: send it as \"Authorization: Bearer TOKEN\"")]
    MissingToken,
    /// The token is not known.
    #[error(
        "the token is not known; the admin token is in the file admin-token of the data directory"
    )]
    UnknownToken,
    /// Its time is over.
    #[error("the token has expired")]
    ExpiredToken,
    /// It was signed with a key that is not known yet; the keys may have changed.
    #[error("the token was signed with an unknown key")]
    UnknownKey,
    /// It was given out by the issuer, but not for this.
    #[error("the token cannot be used here: {0}")]
    RejectedToken(&'static str),
}

/// Everyone who may ask. Tokens come and go while the hub runs.
#[derive(Debug)]
pub struct AccessControl {
    store: Store,
    tokens: RwLock<HashMap<[u8; 32], KnownToken>>,
    require_token: AtomicBool,
    local: Principal,
    oauth: RwLock<Option<Arc<OAuthVerifier>>>,
}

#[derive(Debug)]
struct KnownToken {
    principal: Principal,
    expires_at: Option<i64>,
}

impl AccessControl {
    /// Reads the tokens.
    pub async fn load(
        store: Store,
        require_token: bool,
        oauth: Option<OAuthVerifier>,
    ) -> Result<Self, maru_store::Error> {
        let access = Self {
            store,
            tokens: RwLock::default(),
            require_token: AtomicBool::new(require_token),
            local: Principal::local(),
            oauth: RwLock::new(oauth.map(Arc::new)),
        };
        access.reload_tokens().await?;
        Ok(access)
    }

    /// Who sent this `Authorization` header. A wrong token is never taken for none.
    pub fn identify(&self, authorization: Option<&[u8]>) -> Result<Principal, Error> {
        match authorization {
            None if self.require_token.load(Relaxed) => Err(Error::MissingToken),
            None => Ok(self.local.clone()),
            Some(header) => self.identify_token(&parse_bearer(header).ok_or(Error::UnknownToken)?),
        }
    }

    /// Who may be asked for tokens instead of us.
    pub fn oauth(&self) -> Option<Arc<OAuthVerifier>> {
        let oauth = self.oauth.read().unwrap_or_else(PoisonError::into_inner);
        oauth.clone()
    }

    /// Uses these settings from now on.
    pub fn configure(&self, require_token: bool, oauth: Option<Arc<OAuthVerifier>>) {
        self.require_token.store(require_token, Relaxed);
        *self.oauth.write().unwrap_or_else(PoisonError::into_inner) = oauth;
    }

    fn identify_token(&self, token: &BearerToken) -> Result<Principal, Error> {
        let hash = token.hash();
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        // A lookup by digest gives nothing away through its timing.
        match tokens.get(&hash) {
            Some(known) if known.expires_at.is_some_and(|it| it <= clock::now_ms()) => {
                Err(Error::ExpiredToken)
            }
            Some(known) => Ok(known.principal.clone()),
            None => match self.oauth() {
                Some(oauth) => oauth.identify(token, hash),
                None => Err(Error::UnknownToken),
            },
        }
    }
}

impl AccessControl {
    /// The principal of the token with this hash.
    pub fn principal_of_hash(&self, hash: &[u8; 32]) -> Option<Principal> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let known = tokens.get(hash)?;
        let expired = known.expires_at.is_some_and(|it| it <= clock::now_ms());
        (!expired).then(|| known.principal.clone())
    }

    /// The hash of the token in an `Authorization` header.
    pub fn hash_of_header(authorization: &[u8]) -> Option<[u8; 32]> {
        parse_bearer(authorization).map(|token| token.hash())
    }
}

fn parse_bearer(header: &[u8]) -> Option<BearerToken> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| BearerToken::from(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use maru_store::TokenRow;

    #[tokio::test]
    async fn only_the_right_token_is_known_and_a_wrong_one_is_not_anonymous() {
        let store = Store::in_memory().await.unwrap();
        let token = BearerToken::random();
        store
            .put_token(&TokenRow::new("admin", "admin", token.hash()))
            .await
            .unwrap();
        let access = AccessControl::load(store.clone(), false, None)
            .await
            .unwrap();
        let header = format!("Bearer {}", token.reveal());
        assert_eq!(
            access.identify(Some(header.as_bytes())).unwrap().role(),
            AccessRole::Admin
        );
        assert_eq!(access.identify(None).unwrap().role(), AccessRole::Agent);
        for wrong in ["Bearer ", "Bearer null", "Basic x", "x", ""] {
            assert_eq!(
                access.identify(Some(wrong.as_bytes())),
                Err(Error::UnknownToken),
                "{wrong}"
            );
        }
        let strict = AccessControl::load(store, true, None).await.unwrap();
        assert_eq!(strict.identify(None), Err(Error::MissingToken));
    }

    #[tokio::test]
    async fn token_works_from_its_making_to_its_end_and_no_longer() {
        let access = AccessControl::load(Store::in_memory().await.unwrap(), true, None);
        let access = access.await.unwrap();
        let draft = |name: &str| TokenDraft {
            name: name.to_owned(),
            role: AccessRole::Reader,
            servers: Some(Vec::new()),
            tools: None,
            expires_at: None,
        };
        let issued = access.create_token(&draft("ci")).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        let who = access.identify(Some(header.as_bytes())).unwrap();
        assert_eq!((who.name(), who.role()), ("ci", AccessRole::Reader));
        assert!(!who.may_reach("maru"));
        assert!(matches!(
            access.create_token(&draft("ci")).await,
            Err(TokenError::NameTaken(_))
        ));
        assert!(access.create_token(&draft("admin")).await.is_err());
        assert!(access.revoke_token("ci").await.unwrap());
        assert_eq!(
            access.identify(Some(header.as_bytes())),
            Err(Error::UnknownToken)
        );
        let mut late = draft("late");
        late.expires_at = Some(clock::now_ms() - 1);
        let issued = access.create_token(&late).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        assert_eq!(
            access.identify(Some(header.as_bytes())),
            Err(Error::ExpiredToken)
        );
        assert!(access.revoke_token("admin").await.is_err());
    }
}
