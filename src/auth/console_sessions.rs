//! Browsers that are signed in: a cookie that stands for a token.

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
/// How long a link that signs in can be opened.
pub const SIGN_IN_CODE_LIFETIME: Duration = Duration::from_secs(600);
/// How many browsers may be signed in; the one that ends first makes room.
const MAX_CONSOLE_SESSIONS: usize = 200;
/// How many links may be waiting to be opened.
const MAX_PENDING_CODES: usize = 8;

/// Everyone who is signed in, and the links that sign someone in once.
#[derive(Debug)]
pub struct ConsoleSessions {
    store: Store,
    sessions: Mutex<HashMap<[u8; 32], ConsoleSessionRow>>,
    codes: Mutex<Vec<SignInCode>>,
}

/// A link that signs in, until it is used or its time is over.
#[derive(Debug)]
struct SignInCode {
    hash: [u8; 32],
    /// The hash of the token that it stands for.
    token_hash: [u8; 32],
    expires_at: Instant,
}

impl ConsoleSessions {
    /// Reads who is signed in, and forgets whose time is over.
    pub async fn load(store: &Store) -> Result<Self, maru_store::Error> {
        let mut known = HashMap::new();
        for row in store.console_sessions().await? {
            if row.expires_at > now_ms() {
                known.insert(row.hash, row);
            } else {
                store.delete_console_session(&row.hash).await?;
            }
        }
        Ok(Self {
            store: store.clone(),
            sessions: Mutex::new(known),
            codes: Mutex::default(),
        })
    }

    /// A code that signs in once within [`SIGN_IN_CODE_LIFETIME`], for the token of this hash.
    pub fn issue_code(&self, token: [u8; 32]) -> BearerToken {
        let code = BearerToken::random();
        let now = Instant::now();
        let mut codes = lock(&self.codes);
        codes.retain(|it| it.expires_at > now);
        if codes.len() == MAX_PENDING_CODES {
            codes.remove(0);
        }
        codes.push(SignInCode {
            hash: code.hash(),
            token_hash: token,
            expires_at: now + SIGN_IN_CODE_LIFETIME,
        });
        code
    }

    /// The token that `code` stands for; it is worth nothing after that.
    pub fn redeem_code(&self, code: &BearerToken) -> Option<[u8; 32]> {
        let hash = code.hash();
        let mut codes = lock(&self.codes);
        let at = codes.iter().position(|it| it.hash == hash)?;
        let code = codes.remove(at);
        (code.expires_at > Instant::now()).then_some(code.token_hash)
    }

    /// Signs a browser in for the token of this hash; gives what its cookie holds.
    pub async fn sign_in(&self, token_hash: [u8; 32]) -> Result<BearerToken, maru_store::Error> {
        let cookie = BearerToken::random();
        let span = i64::try_from(SESSION_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let row = ConsoleSessionRow {
            hash: cookie.hash(),
            token_hash,
            expires_at: now_ms().saturating_add(span),
        };
        self.store.put_console_session(&row).await?;
        let full = {
            let mut known = lock(&self.sessions);
            known.insert(row.hash, row);
            let first = known.values().min_by_key(|it| it.expires_at);
            let first = first
                .map(|it| it.hash)
                .filter(|_| known.len() > MAX_CONSOLE_SESSIONS);
            if let Some(hash) = first {
                known.remove(&hash);
            }
            first
        };
        if let Some(hash) = full
            && let Err(error) = self.store.delete_console_session(&hash).await
        {
            // The browser is signed in all the same; the next start finds one more.
            tracing::warn!(%error, "an old session of the console could not be removed");
        }
        Ok(cookie)
    }

    /// The hash of the token that this cookie stands for.
    pub fn token_hash_of(&self, cookie: &BearerToken) -> Option<[u8; 32]> {
        let known = lock(&self.sessions);
        let row = known.get(&cookie.hash())?;
        (row.expires_at > now_ms()).then_some(row.token_hash)
    }

    /// Signs a browser out.
    pub async fn sign_out(&self, cookie: &BearerToken) -> Result<(), maru_store::Error> {
        let hash = cookie.hash();
        self.store.delete_console_session(&hash).await?;
        lock(&self.sessions).remove(&hash);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_code_is_worth_nothing_after_ten_minutes() {
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
    async fn a_code_signs_in_once_and_a_browser_stays_signed_in_over_a_restart() {
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
}
