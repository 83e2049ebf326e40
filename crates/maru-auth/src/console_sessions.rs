//! Console sessions: cookies of signed-in browsers, each standing for a token.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_runtime::clock::now_ms;
use maru_store::{ConsoleSessionRow, Store};
use tokio::time::Instant;

use super::BearerToken;

/// How long a browser stays signed in.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a sign-in link is valid.
pub const SIGN_IN_CODE_LIFETIME: Duration = Duration::from_secs(600);
/// How many browsers may be signed in. Beyond that, the session that expires first ends.
const MAX_CONSOLE_SESSIONS: usize = 200;
/// How many of them one token or account may have, so that it signs nobody else out.
const MAX_SESSIONS_OF_TOKEN: usize = 20;
/// How many unused sign-in links may be valid at a time.
const MAX_PENDING_CODES: usize = 8;

/// The signed-in browsers, and the codes of sign-in links that were not used yet.
#[derive(Debug)]
pub struct ConsoleSessions {
    store: Store,
    sessions: Mutex<HashMap<[u8; 32], ConsoleSessionRow>>,
    codes: Mutex<Vec<SignInCode>>,
}

/// The code of a sign-in link. It works once.
#[derive(Debug)]
struct SignInCode {
    hash: [u8; 32],
    /// The hash of the token that the browser gets access with.
    token_hash: [u8; 32],
    expires_at: Instant,
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
            codes: Mutex::default(),
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
    pub fn issue_code(&self, token_hash: [u8; 32]) -> BearerToken {
        let code = BearerToken::random();
        let now = Instant::now();
        let mut codes = lock(&self.codes);
        codes.retain(|it| it.expires_at > now);
        if codes.len() == MAX_PENDING_CODES {
            codes.remove(0);
        }
        codes.push(SignInCode {
            hash: code.hash(),
            token_hash,
            expires_at: now + SIGN_IN_CODE_LIFETIME,
        });
        code
    }

    /// Returns the hash of the token that `code` was issued for, and invalidates the code.
    pub fn redeem_code(&self, code: &BearerToken) -> Option<[u8; 32]> {
        let hash = code.hash();
        let mut codes = lock(&self.codes);
        let position = codes.iter().position(|it| it.hash == hash)?;
        let code = codes.remove(position);
        (code.expires_at > Instant::now()).then_some(code.token_hash)
    }

    /// Signs a browser in for the token with this hash; returns the value of its cookie.
    pub async fn sign_in(&self, token_hash: [u8; 32]) -> Result<BearerToken, maru_store::Error> {
        let cookie = BearerToken::random();
        let lifetime_ms = i64::try_from(SESSION_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let row = ConsoleSessionRow {
            hash: cookie.hash(),
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
        Ok(cookie)
    }

    /// Returns the hash of the token that this cookie stands for, unless it has expired.
    pub fn token_hash_of(&self, cookie: &BearerToken) -> Option<[u8; 32]> {
        let sessions = lock(&self.sessions);
        let row = sessions.get(&cookie.hash())?;
        (row.expires_at > now_ms()).then_some(row.token_hash)
    }

    /// Signs a browser out by ending the session of its cookie.
    pub async fn sign_out(&self, cookie: &BearerToken) -> Result<(), maru_store::Error> {
        let hash = cookie.hash();
        self.store.delete_console_session(&hash).await?;
        lock(&self.sessions).remove(&hash);
        Ok(())
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
        tokio::time::pause();
        let (early, late) = (sessions.issue_code([7; 32]), sessions.issue_code([7; 32]));
        tokio::time::advance(Duration::from_secs(599)).await;
        assert_eq!(sessions.redeem_code(&early), Some([7; 32]));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(sessions.redeem_code(&late), None);
    }

    #[tokio::test]
    async fn code_works_once_and_session_survives_a_restart() {
        let store = Store::in_memory().await.unwrap();
        let sessions = ConsoleSessions::load(&store).await.unwrap();
        let code = sessions.issue_code([7; 32]);
        assert_eq!(sessions.redeem_code(&code), Some([7; 32]));
        assert_eq!(sessions.redeem_code(&code), None);
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
