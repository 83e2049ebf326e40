//! Accounts of people: an admin invites somebody by a link, and that person chooses a
//! passphrase. What an account may do is the token of the same name, whose secret nobody
//! has.

use std::net::IpAddr;

use maru_runtime::clock;
use maru_store::{AccountRow, Store};
use thiserror::Error;

use super::{
    AccessControl, AccessRole, BearerToken, ConsoleSessions, TokenDraft, TokenError,
    access_control::is_valid_name,
    passphrase,
    rate_limit::{AttemptLimit, client_prefix},
};

/// How long an invitation is open.
const INVITATION_LIFETIME_MS: i64 = 3 * clock::DAY_MS;
/// How long the account of a person at an issuer is valid after each sign-in there.
const EXTERNAL_LIFETIME_MS: i64 = 7 * clock::DAY_MS;
/// How many wrong passphrases may be tried in a minute: for one account, and from one
/// address. All together are limited by how many are hashed at once.
const ATTEMPTS_PER_ACCOUNT: u32 = 5;
const ATTEMPTS_PER_ADDRESS: u32 = 10;

/// Creates accounts, and signs people in to them.
#[derive(Debug)]
pub struct Accounts {
    store: Store,
    by_account: AttemptLimit<String>,
    by_address: AttemptLimit<IpAddr>,
}

/// A link by which somebody chooses a passphrase.
#[derive(Debug)]
pub struct Invitation {
    /// The secret of the link.
    pub code: BearerToken,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: i64,
}

/// Why an account could not be created or signed in to.
#[derive(Debug, Error)]
pub enum AccountError {
    /// The token of the account could not be created.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// There is no such account, or it is one of an issuer.
    #[error("no account that signs in with a passphrase has this name")]
    Unknown,
    /// The invitation was used, has expired or never existed.
    #[error("this invitation was already used, or has expired; ask for a new one")]
    InvalidInvitation,
    /// The passphrase is too short or too long.
    #[error("use a passphrase of 12 to 1024 characters")]
    Passphrase,
    /// Name or passphrase are wrong.
    #[error("name or passphrase are wrong")]
    WrongPassphrase,
    /// Too many attempts.
    #[error("too many attempts; try again in a minute")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}

impl Accounts {
    /// The accounts of `store`.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            by_account: AttemptLimit::new(
                "wrong passphrases for one account",
                ATTEMPTS_PER_ACCOUNT,
            ),
            by_address: AttemptLimit::new(
                "wrong passphrases from one address",
                ATTEMPTS_PER_ADDRESS,
            ),
        }
    }

    /// Creates an account and invites its person.
    pub async fn create(
        &self,
        access: &AccessControl,
        draft: &TokenDraft,
    ) -> Result<Invitation, AccountError> {
        access.create_account_token(draft).await?;
        self.store
            .put_account(&draft.name, None, clock::now_ms())
            .await?;
        self.invite(&draft.name).await
    }

    /// Opens an invitation for an account, also to replace a forgotten passphrase.
    pub async fn invite(&self, name: &str) -> Result<Invitation, AccountError> {
        let rows = self.store.accounts().await?;
        let account = rows.iter().find(|it| it.name == name);
        if account.is_none_or(|it| it.label.is_some()) {
            return Err(AccountError::Unknown);
        }
        let code = BearerToken::random();
        let expires_at = clock::now_ms() + INVITATION_LIFETIME_MS;
        if !self.store.invite(name, &code.hash(), expires_at).await? {
            return Err(AccountError::Unknown);
        }
        Ok(Invitation { code, expires_at })
    }

    /// Returns the name of the account that an invitation is for.
    pub async fn invited(&self, code: &BearerToken) -> Result<String, AccountError> {
        let hash = code.hash();
        let found = self.store.invited_account(&hash, clock::now_ms()).await?;
        found.ok_or(AccountError::InvalidInvitation)
    }

    /// Whether a new passphrase is neither too short nor too long.
    pub fn is_acceptable(passphrase: &str) -> bool {
        passphrase::is_acceptable(passphrase)
    }

    /// Sets the passphrase of the invited account, ends its browser sessions and grants, and
    /// returns its name.
    pub async fn accept(
        &self,
        access: &AccessControl,
        sessions: &ConsoleSessions,
        code: &BearerToken,
        passphrase: String,
    ) -> Result<String, AccountError> {
        if !passphrase::is_acceptable(&passphrase) {
            return Err(AccountError::Passphrase);
        }
        // Guessing an invitation must not have passphrases hashed.
        self.invited(code).await?;
        let (invitation, hash) = (code.hash(), passphrase::hash(passphrase).await);
        let accepted = self
            .store
            .accept_invitation(&invitation, &hash, clock::now_ms());
        let name = accepted.await?.ok_or(AccountError::InvalidInvitation)?;
        access.end_account_sessions(&name).await?;
        if let Some(hash) = access.hash_of_name(&name) {
            sessions.forget_token(&hash);
        }
        Ok(name)
    }

    /// Signs a person in; returns the hash that stands for the account in browser sessions.
    pub async fn sign_in(
        &self,
        access: &AccessControl,
        from: Option<IpAddr>,
        name: &str,
        passphrase: String,
    ) -> Result<[u8; 32], AccountError> {
        let from = from.map(client_prefix);
        let account: String = name.chars().take(100).collect();
        let may_try = from.is_none_or(|it| self.by_address.try_attempt(it))
            && self.by_account.try_attempt(account.clone());
        if !may_try {
            return Err(AccountError::TooMany);
        }
        let hash = if is_valid_name(name) {
            self.store.passphrase_hash(name).await?
        } else {
            None
        };
        if !passphrase::verify(passphrase, hash).await {
            return Err(AccountError::WrongPassphrase);
        }
        // Only failures count.
        self.by_account.forgive(&account);
        if let Some(from) = &from {
            self.by_address.forgive(from);
        }
        access
            .hash_of_name(name)
            .ok_or(AccountError::WrongPassphrase)
    }

    /// Creates or renews the account of a person that an issuer signed in; returns the hash
    /// that stands for it.
    pub async fn sign_in_external(
        &self,
        access: &AccessControl,
        name: &str,
        label: &str,
        role: AccessRole,
    ) -> Result<[u8; 32], maru_store::Error> {
        let now = clock::now_ms();
        let expires_at = now + EXTERNAL_LIFETIME_MS;
        let hash = access.put_external_account(name, role, expires_at).await?;
        self.store.put_account(name, Some(label), now).await?;
        Ok(hash)
    }

    /// Lists the accounts by name.
    pub async fn list(&self) -> Result<Vec<AccountRow>, maru_store::Error> {
        self.store.accounts().await
    }
}
