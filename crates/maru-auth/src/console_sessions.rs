//! Console sessions: cookies of signed-in browsers, each standing for a token.
//!
//! The code of a sign-in link is kept as a session of ten minutes under a hash that no
//! cookie has, so that every hub of the store can redeem it, and one of them does.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_runtime::clock::now_ms;
use maru_store::{ConsoleSessionRow, Store};
use sha2::{Digest as _, Sha256};

use super::BearerToken;

/// How long a browser stays signed in.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a sign-in link is valid.
pub const SIGN_IN_CODE_LIFETIME: Duration = Duration::from_secs(600);
/// How many browsers may be signed in. Beyond that, the session that expires first ends.
const MAX_CONSOLE_SESSIONS: usize = 200;
/// How many of them, and of unused sign-in links, one token or account may have, so that it
/// signs nobody else out.
const MAX_SESSIONS_OF_TOKEN: usize = 20;

/// The signed-in browsers, and the codes of sign-in links that were not used yet.
#[derive(Debug)]
pub struct ConsoleSessions {
    store: Store,
    sessions: Mutex<HashMap<[u8; 32], ConsoleSessionRow>>,
}

impl ConsoleSessions {
    /// Loads the sessions from `store` and deletes expired ones.
    pub async fn load(store: &Store) -> Result<Self, maru_store::Error> {
        let mut sessions = HashMap::new();
        for row in store.console_sessions().await? {
            if row.expires_at > now_ms() {
                sessions.insert(row.hash, row);
            } else {
                store.delete_console_session(&row.hash).await?;
            }
        }
        Ok(Self {
            store: store.clone(),
            sessions: Mutex::new(sessions),
        })
    }

    /// Loads the sessions again, because browsers may have signed in at another hub.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let rows = self.store.console_sessions().await?.into_iter();
        let current = rows.filter(|it| it.expires_at > now_ms());
        *lock(&self.sessions) = current.map(|it| (it.hash, it)).collect();
        Ok(())
    }

    /// Issues a code that signs a browser in once within [`SIGN_IN_CODE_LIFETIME`], for the
    /// token with this hash.
    pub async fn issue_code(&self, token_hash: [u8; 32]) -> Result<BearerToken, maru_store::Error> {
        let code = BearerToken::random();
        self.add(code_hash(&code), token_hash, SIGN_IN_CODE_LIFETIME)
            .await?;
        Ok(code)
    }

    /// Returns the hash of the token that `code` was issued for, and invalidates the code.
    pub async fn redeem_code(
        &self,
        code: &BearerToken,
    ) -> Result<Option<[u8; 32]>, maru_store::Error> {
        let row = self.remove(&code_hash(code)).await?;
        Ok(row
            .filter(|it| it.expires_at > now_ms())
            .map(|it| it.token_hash))
    }

    /// Signs a browser in for the token with this hash; returns the value of its cookie.
    pub async fn sign_in(&self, token_hash: [u8; 32]) -> Result<BearerToken, maru_store::Error> {
        let cookie = BearerToken::random();
        self.add(cookie.hash(), token_hash, SESSION_LIFETIME)
            .await?;
        Ok(cookie)
    }

    async fn add(
        &self,
        hash: [u8; 32],
        token_hash: [u8; 32],
        lifetime: Duration,
    ) -> Result<(), maru_store::Error> {
        let lifetime_ms = i64::try_from(lifetime.as_millis()).unwrap_or(i64::MAX);
        let row = ConsoleSessionRow {
            hash,
            token_hash,
            expires_at: now_ms().saturating_add(lifetime_ms),
        };
        self.store.put_console_session(&row).await?;
        if let Some(evicted) = self.insert(row)
            && let Err(error) = self.store.delete_console_session(&evicted).await
        {
            // The browser is signed in all the same; the next start loads one session more.
            tracing::warn!(%error, "failed to delete an old console session");
        }
        Ok(())
    }

    async fn remove(
        &self,
        hash: &[u8; 32],
    ) -> Result<Option<ConsoleSessionRow>, maru_store::Error> {
        let row = self.store.delete_console_session(hash).await?;
        lock(&self.sessions).remove(hash);
        Ok(row)
    }

    /// Returns the hash of the token that this cookie stands for, unless it has expired.
    pub fn token_hash_of(&self, cookie: &BearerToken) -> Option<[u8; 32]> {
        let sessions = lock(&self.sessions);
        let row = sessions.get(&cookie.hash())?;
        (row.expires_at > now_ms()).then_some(row.token_hash)
    }

    /// Signs a browser out by ending the session of its cookie.
    pub async fn sign_out(&self, cookie: &BearerToken) -> Result<(), maru_store::Error> {
        self.remove(&cookie.hash()).await.map(drop)
    }

    /// Forgets the sessions of the token with this hash, which were deleted.
    pub(super) fn forget_token(&self, token_hash: &[u8; 32]) {
        lock(&self.sessions).retain(|_, it| it.token_hash != *token_hash);
    }

    /// Adds a session; returns the hash of the session that was removed to make room.
    fn insert(&self, row: ConsoleSessionRow) -> Option<[u8; 32]> {
        let mut sessions = lock(&self.sessions);
        let token_hash = row.token_hash;
        sessions.insert(row.hash, row);
        let own = || sessions.values().filter(|it| it.token_hash == token_hash);
        let first_to_expire = if own().count() > MAX_SESSIONS_OF_TOKEN {
            own().min_by_key(|it| it.expires_at)?.hash
        } else if sessions.len() > MAX_CONSOLE_SESSIONS {
            sessions.values().min_by_key(|it| it.expires_at)?.hash
        } else {
            return None;
        };
        sessions.remove(&first_to_expire);
        Some(first_to_expire)
    }
}

/// The hash under which a code is stored; its cookie would be another one.
fn code_hash(code: &BearerToken) -> [u8; 32] {
    Sha256::new()
        .chain_update("sign-in code ")
        .chain_update(code.hash())
        .finalize()
        .into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn code_expires_after_ten_minutes() {
        let store = Store::in_memory().await.unwrap();
        let sessions = ConsoleSessions::load(&store).await.unwrap();
        let before = now_ms();
        let code = sessions.issue_code([7; 32]).await.unwrap();
        let mut row = store.console_sessions().await.unwrap().remove(0);
        assert!((before..=now_ms()).contains(&(row.expires_at - 600_000)));
        store.delete_console_session(&row.hash).await.unwrap();
        row.expires_at = now_ms();
        store.put_console_session(&row).await.unwrap();
        assert_eq!(sessions.redeem_code(&code).await.unwrap(), None);
    }

    #[tokio::test]
    async fn code_works_once_at_any_hub_and_session_survives_a_restart() {
        let store = Store::in_memory().await.unwrap();
        let sessions = ConsoleSessions::load(&store).await.unwrap();
        let other = ConsoleSessions::load(&store).await.unwrap();
        let code = sessions.issue_code([7; 32]).await.unwrap();
        // A code is no cookie.
        sessions.reload().await.unwrap();
        assert_eq!(sessions.token_hash_of(&code), None);
        assert_eq!(other.redeem_code(&code).await.unwrap(), Some([7; 32]));
        for hub in [&sessions, &other] {
            assert_eq!(hub.redeem_code(&code).await.unwrap(), None);
        }
        let cookie = sessions.sign_in([7; 32]).await.unwrap();
        let again = ConsoleSessions::load(&store).await.unwrap();
        assert_eq!(again.token_hash_of(&cookie), Some([7; 32]));
        assert_eq!(again.token_hash_of(&BearerToken::random()), None);
        again.sign_out(&cookie).await.unwrap();
        assert_eq!(again.token_hash_of(&cookie), None);
        let last = ConsoleSessions::load(&store).await.unwrap();
        assert_eq!(last.token_hash_of(&cookie), None);
    }

    #[tokio::test]
    async fn one_account_signs_nobody_else_out() {
        let store = Store::in_memory().await.unwrap();
        let sessions = ConsoleSessions::load(&store).await.unwrap();
        let admin = sessions.sign_in([1; 32]).await.unwrap();
        for _ in 0..=MAX_CONSOLE_SESSIONS {
            sessions.sign_in([2; 32]).await.unwrap();
        }
        assert_eq!(sessions.token_hash_of(&admin), Some([1; 32]));
        let kept = store.console_sessions().await.unwrap();
        assert_eq!(kept.len(), MAX_SESSIONS_OF_TOKEN + 1);
        sessions.forget_token(&[2; 32]);
        assert_eq!(sessions.token_hash_of(&admin), Some([1; 32]));
    }
}
