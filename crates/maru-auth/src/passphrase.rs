//! Passphrases of accounts, hashed by Argon2id.

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use maru_runtime::tasks::run_blocking;
use tokio::sync::Semaphore;

/// Shorter passphrases are refused.
const MIN_CHARS: usize = 12;
/// Longer ones are refused unread.
const MAX_BYTES: usize = 1024;
const SALT_BYTES: usize = 16;
/// How many are hashed at once; each takes 19 MiB for some milliseconds.
static HASHING: Semaphore = Semaphore::const_new(2);

/// Checks that a new passphrase is neither too short nor too long.
pub(super) fn is_acceptable(passphrase: &str) -> bool {
    passphrase.chars().count() >= MIN_CHARS && passphrase.len() <= MAX_BYTES
}

/// Hashes a passphrase with a random salt.
pub(super) async fn hash(passphrase: String) -> String {
    in_background(move || {
        let mut salt = [0; SALT_BYTES];
        getrandom::fill(&mut salt).expect("the operating system provides random bytes");
        let hash = Argon2::default().hash_password_with_salt(passphrase.as_bytes(), &salt);
        hash.expect("salt and parameters are valid").to_string()
    })
    .await
}

/// Whether `passphrase` is the one with this hash. Without a hash, the same work is done
/// for nothing, so that the time does not tell which accounts exist.
pub(super) async fn verify(passphrase: String, hash: Option<String>) -> bool {
    if passphrase.len() > MAX_BYTES {
        return false;
    }
    let Some(hash) = hash else {
        self::hash(passphrase).await;
        return false;
    };
    in_background(move || {
        PasswordHash::new(&hash).is_ok_and(|hash| {
            let verified = Argon2::default().verify_password(passphrase.as_bytes(), &hash);
            verified.is_ok()
        })
    })
    .await
}

async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let permit = HASHING.acquire().await;
    let work = move || {
        // Held until the work is done, also if nobody waits for it any more.
        let _permit = permit;
        work()
    };
    match run_blocking(work).await {
        Some(output) => output,
        // The runtime shuts down and drops this future, too.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_passphrase_that_was_hashed_is_right() {
        let right = "correct horse battery";
        let hashed = hash(right.to_owned()).await;
        assert!(
            hashed.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hashed}"
        );
        assert_ne!(hashed, hash(right.to_owned()).await);
        assert!(verify(right.to_owned(), Some(hashed.clone())).await);
        assert!(!verify("correct horse batterz".to_owned(), Some(hashed.clone())).await);
        assert!(!verify(String::new(), Some(hashed)).await);
        assert!(!verify(right.to_owned(), Some("garbage".to_owned())).await);
        assert!(!verify(right.to_owned(), None).await);
    }

    #[test]
    fn passphrase_has_twelve_characters_at_least() {
        assert!(is_acceptable("열두글자가되는암호구절임"));
        assert!(!is_acceptable("short"));
        assert!(!is_acceptable(&"x".repeat(2000)));
    }
}
