//! The tokens that the hub accepts, and the principals they stand for.

use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use maru_config::ToolListing;
use maru_runtime::clock;
use maru_store::{OAuthGrantRow, Store, TokenRow};
use tokio::sync::Mutex;

use super::{
    ADMIN_TOKEN_NAME, AccessRole, BearerToken, Error, Grants, IssuedToken, OAuthVerifier,
    Principal, TokenDraft, TokenError, TokenIssuer,
};

/// Authenticates callers by their tokens, and creates and revokes tokens.
#[derive(Debug)]
pub struct AccessControl {
    store: Store,
    tokens: RwLock<HashMap<[u8; 32], KnownToken>>,
    /// Held while tokens are changed or read from the store, so that reading does not
    /// bring back what was just changed.
    changing: Mutex<()>,
    require_token: AtomicBool,
    local: Principal,
    /// The principal of a program on this machine on admin routes, if it is an admin.
    local_admin: Option<Principal>,
    oauth: RwLock<Option<Arc<OAuthVerifier>>>,
    /// maru's own authorization server, where it has one.
    token_issuer: Option<Arc<TokenIssuer>>,
}

#[derive(Debug)]
struct KnownToken {
    principal: Principal,
    /// In milliseconds since 1970.
    expires_at: Option<i64>,
}

impl AccessControl {
    /// Loads the tokens from `store`.
    pub async fn load(
        store: Store,
        require_token: bool,
        oauth: Option<OAuthVerifier>,
    ) -> Result<Self, maru_store::Error> {
        let access = Self {
            store,
            tokens: RwLock::default(),
            changing: Mutex::default(),
            require_token: AtomicBool::new(require_token),
            local: Principal::local(),
            local_admin: None,
            oauth: RwLock::new(oauth.map(Arc::new)),
            token_issuer: None,
        };
        access.reload_tokens().await?;
        Ok(access)
    }

    /// Makes programs on this machine that send no token admins, or not.
    #[must_use]
    pub fn with_local_admin(mut self, is_enabled: bool) -> Self {
        self.local_admin = is_enabled.then(Principal::local_admin);
        self
    }

    /// Accepts the tokens of maru's own authorization server.
    #[must_use]
    pub fn with_token_issuer(mut self, issuer: Option<TokenIssuer>) -> Self {
        self.token_issuer = issuer.map(Arc::new);
        self
    }

    /// maru's own authorization server, where it has one.
    pub fn token_issuer(&self) -> Option<&Arc<TokenIssuer>> {
        self.token_issuer.as_ref()
    }

    /// Reads what is needed to identify a token of this `Authorization` header that was not
    /// known yet: its grant, or the issuer's keys.
    pub async fn learn(&self, authorization: Option<&[u8]>) {
        let token = authorization.and_then(BearerToken::from_authorization);
        match (&self.token_issuer, token) {
            (Some(issuer), Some(token)) if issuer.grant_of(&token).is_some() => {
                issuer.learn_grant(&token).await;
            }
            _ => {
                if let Some(oauth) = self.oauth() {
                    oauth.refresh().await;
                }
            }
        }
    }

    /// Returns the principal of a program on this machine that sends no token to an admin
    /// route; `None` if such programs are no admins.
    pub fn local_admin(&self) -> Option<&Principal> {
        self.local_admin.as_ref()
    }

    /// Returns the principal of an `Authorization` header, or the local principal if there
    /// is none and none is required. A wrong token is an error, never anonymous access.
    pub fn identify(&self, authorization: Option<&[u8]>) -> Result<Principal, Error> {
        match authorization {
            None if self.require_token.load(Relaxed) => Err(Error::MissingToken),
            None => Ok(self.local.clone()),
            Some(header) => {
                let token = BearerToken::from_authorization(header).ok_or(Error::UnknownToken)?;
                self.identify_token(&token)
            }
        }
    }

    /// Returns the principal of the issued token with this hash, unless it has expired.
    pub fn principal_of_hash(&self, hash: &[u8; 32]) -> Option<Principal> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let known = tokens.get(hash).filter(|it| !it.has_expired())?;
        Some(known.principal.clone())
    }

    /// Returns the verifier of OAuth access tokens, if one is configured.
    pub fn oauth(&self) -> Option<Arc<OAuthVerifier>> {
        let oauth = self.oauth.read().unwrap_or_else(PoisonError::into_inner);
        oauth.clone()
    }

    /// Applies changed settings to all later requests.
    pub fn configure(&self, require_token: bool, oauth: Option<Arc<OAuthVerifier>>) {
        self.require_token.store(require_token, Relaxed);
        *self.oauth.write().unwrap_or_else(PoisonError::into_inner) = oauth;
    }

    /// Returns the hash of the token with this name, unless it has expired.
    pub fn hash_of_name(&self, name: &str) -> Option<[u8; 32]> {
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let mut known = tokens.iter().filter(|(_, it)| !it.has_expired());
        let (hash, _) = known.find(|(_, it)| it.principal.name() == name)?;
        Some(*hash)
    }

    /// Creates what an account may do: a token whose secret nobody has.
    pub(super) async fn create_account_token(&self, draft: &TokenDraft) -> Result<(), TokenError> {
        let _secret_is_dropped = self.create_token(draft).await?;
        Ok(())
    }

    /// Creates or changes what the account of a person at an issuer may do, which its own
    /// rules name.
    pub(super) async fn put_external_account(
        &self,
        name: &str,
        role: AccessRole,
        expires_at: i64,
    ) -> Result<[u8; 32], maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        let row = TokenRow {
            expires_at: Some(expires_at),
            ..TokenRow::new(name, role.as_str(), BearerToken::random().hash())
        };
        if !self.store.insert_token(&row).await? {
            self.store
                .update_token(name, role.as_str(), expires_at)
                .await?;
        }
        let rows = self.store.tokens().await?;
        let row = rows.into_iter().find(|it| it.name == name).unwrap_or(row);
        if let Some(known) = KnownToken::from_row(&row) {
            self.update_tokens(|tokens| tokens.insert(row.hash, known));
        }
        Ok(row.hash)
    }

    /// Creates a token, which is valid at once.
    pub async fn create_token(&self, draft: &TokenDraft) -> Result<IssuedToken, TokenError> {
        if !is_valid_name(&draft.name) {
            return Err(TokenError::InvalidName);
        }
        let token = BearerToken::random();
        let row = TokenRow {
            servers: draft.servers.clone(),
            tools: draft.tools.clone(),
            toolset: draft.toolset.clone(),
            tool_listing: draft.tool_listing.map(|it| it.as_str().to_owned()),
            expires_at: draft.expires_at,
            ..TokenRow::new(&draft.name, draft.role.as_str(), token.hash())
        };
        let _one_change_at_a_time = self.changing.lock().await;
        if !self.store.insert_token(&row).await? {
            return Err(TokenError::NameTaken(draft.name.clone()));
        }
        // Reading the store again could fail, and a valid token would be reported as not
        // created.
        if let Some(known) = KnownToken::from_row(&row) {
            self.update_tokens(|tokens| tokens.insert(row.hash, known));
        }
        Ok(IssuedToken { token, row })
    }

    /// Returns all issued tokens without their secrets, sorted by name.
    pub async fn list_tokens(&self) -> Result<Vec<TokenRow>, maru_store::Error> {
        let mut rows = self.store.tokens().await?;
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }

    /// Revokes a token at once; returns false if there is none of this name.
    pub async fn revoke_token(&self, name: &str) -> Result<bool, TokenError> {
        if name == ADMIN_TOKEN_NAME {
            return Err(TokenError::AdminToken);
        }
        let _one_change_at_a_time = self.changing.lock().await;
        let exists = self.store.tokens().await?.iter().any(|it| it.name == name);
        self.store.delete_access(name).await?;
        self.update_tokens(|tokens| tokens.retain(|_, it| it.principal.name() != name));
        if let Some(issuer) = &self.token_issuer {
            issuer.forget_account(name).await;
        }
        Ok(exists)
    }

    /// Ends what an account's person allowed, and its browser sessions in the store: a new
    /// passphrase shuts out who knew the old one.
    pub(super) async fn end_account_sessions(&self, name: &str) -> Result<(), maru_store::Error> {
        self.store.end_account_sessions(name).await?;
        if let Some(issuer) = &self.token_issuer {
            issuer.forget_account(name).await;
        }
        Ok(())
    }

    /// Loads the tokens again, because another hub on the same store may have changed them.
    /// Returns the names of those that are gone or allow something else now.
    pub async fn reload_tokens(&self) -> Result<Vec<String>, maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        let rows = self.store.tokens().await?;
        let known: HashMap<_, _> = rows
            .iter()
            .filter_map(|row| Some((row.hash, KnownToken::from_row(row)?)))
            .collect();
        let before = self.update_tokens(|tokens| mem::replace(tokens, known));
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let is_gone = |(hash, token): &(&[u8; 32], &KnownToken)| {
            let now = tokens.get(*hash);
            now.is_none_or(|it| it.principal != token.principal)
        };
        let gone = before.iter().filter(is_gone);
        Ok(gone.map(|(_, it)| it.principal.name().to_owned()).collect())
    }

    /// Returns the principal of a grant: its account, within what was allowed.
    fn principal_of_grant(&self, grant: &OAuthGrantRow) -> Result<Principal, Error> {
        let account = self.principal_of_hash(&grant.account_hash);
        let account = account.ok_or(Error::UnknownGrant)?;
        let role = AccessRole::parse(&grant.role).ok_or(Error::UnknownGrant)?;
        Ok(account.limited_to(role, grant.servers.as_deref(), grant.tools.as_deref()))
    }

    fn identify_token(&self, token: &BearerToken) -> Result<Principal, Error> {
        if let Some(issuer) = &self.token_issuer
            && let Some(grant) = issuer.grant_of(token)
        {
            return grant.and_then(|it| self.principal_of_grant(&it));
        }
        let hash = token.hash();
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        // A look-up by hash does not reveal the token through its timing.
        match tokens.get(&hash) {
            Some(known) if known.has_expired() => Err(Error::ExpiredToken),
            Some(known) => Ok(known.principal.clone()),
            None => match self.oauth() {
                Some(oauth) => oauth.identify(token, hash),
                None => Err(Error::UnknownToken),
            },
        }
    }

    fn update_tokens<T>(&self, change: impl FnOnce(&mut HashMap<[u8; 32], KnownToken>) -> T) -> T {
        change(&mut self.tokens.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KnownToken {
    /// Returns `None` for a role that this version does not know.
    fn from_row(row: &TokenRow) -> Option<Self> {
        let role = AccessRole::parse(&row.role)?;
        let (servers, tools) = (row.servers.clone(), row.tools.clone());
        let grants = Grants::new(servers, tools, row.toolset.clone());
        let tool_listing = row.tool_listing.as_deref().and_then(ToolListing::parse);
        Some(Self {
            principal: Principal::new(&row.name, role, grants).with_tool_listing(tool_listing),
            expires_at: row.expires_at,
        })
    }

    fn has_expired(&self) -> bool {
        self.expires_at.is_some_and(|it| it <= clock::now_ms())
    }
}

/// Whether tokens and accounts may have this name.
pub(super) fn is_valid_name(name: &str) -> bool {
    let is_allowed = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
    (1..=63).contains(&name.len())
        && name.bytes().all(is_allowed)
        && name != ADMIN_TOKEN_NAME
        && name != Principal::local().name()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    async fn token_is_valid_until_it_is_revoked_or_expires() {
        let access = AccessControl::load(Store::in_memory().await.unwrap(), true, None);
        let access = access.await.unwrap();
        let draft = |name: &str| TokenDraft {
            name: name.to_owned(),
            role: AccessRole::Reader,
            servers: Some(Vec::new()),
            tools: None,
            toolset: None,
            tool_listing: None,
            expires_at: None,
        };
        let issued = access.create_token(&draft("ci")).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        let principal = access.identify(Some(header.as_bytes())).unwrap();
        assert_eq!(
            (principal.name(), principal.role()),
            ("ci", AccessRole::Reader)
        );
        assert!(!principal.may_reach("maru"));
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
        let mut expired = draft("expired");
        expired.expires_at = Some(clock::now_ms() - 1);
        let issued = access.create_token(&expired).await.unwrap();
        let header = format!("Bearer {}", issued.token.reveal());
        assert_eq!(
            access.identify(Some(header.as_bytes())),
            Err(Error::ExpiredToken)
        );
        assert!(access.revoke_token("admin").await.is_err());
    }
}
