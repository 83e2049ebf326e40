//! State that a client carries for us: sealed, so that it can be trusted again.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

const LIFE: Duration = Duration::from_secs(600);
const TAG: usize = 32;

/// The key of one process, and its clock.
#[derive(Debug)]
pub(super) struct Seal {
    key: [u8; 32],
    began: Instant,
}

/// What the state may be used for.
#[derive(Debug)]
pub(super) struct Bound<'a> {
    pub(super) principal: &'a str,
    pub(super) method: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

/// The state is not ours, not for this request, or too old.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Foreign;

#[derive(Serialize, Deserialize)]
struct Sealed {
    bound: [u8; 32],
    expires: u64,
    state: Option<String>,
}

impl Seal {
    pub(super) fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system gives random bytes");
        Self {
            key,
            began: Instant::now(),
        }
    }

    pub(super) fn close(&self, bound: &Bound<'_>, state: Option<String>) -> String {
        let sealed = Sealed {
            bound: bound.digest(),
            expires: (self.began.elapsed() + LIFE).as_secs(),
            state,
        };
        let payload = serde_json::to_vec(&sealed).expect("our own values are JSON");
        let mut bytes = self.mac(&payload).finalize().into_bytes().to_vec();
        bytes.extend(payload);
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The state, if it is ours, fresh, and for this very request.
    pub(super) fn open(&self, bound: &Bound<'_>, text: &str) -> Result<Option<String>, Foreign> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Foreign)?;
        let (tag, payload) = bytes.split_at_checked(TAG).ok_or(Foreign)?;
        self.mac(payload).verify_slice(tag).map_err(|_| Foreign)?;
        let sealed: Sealed = serde_json::from_slice(payload).map_err(|_| Foreign)?;
        let fresh = self.began.elapsed().as_secs() <= sealed.expires;
        match fresh && sealed.bound == bound.digest() {
            true => Ok(sealed.state),
            false => Err(Foreign),
        }
    }

    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any key length fits");
        mac.update(payload);
        mac
    }
}

impl Bound<'_> {
    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in [self.principal, self.method, self.name, self.arguments] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound<'a>(principal: &'a str, arguments: &'a str) -> Bound<'a> {
        Bound {
            principal,
            method: "tools/call",
            name: "x",
            arguments,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn state_opens_for_its_own_request_only_and_not_for_ever() {
        let seal = Seal::new();
        let text = seal.close(&bound("a", "{}"), Some("s".to_owned()));
        assert_eq!(
            seal.open(&bound("a", "{}"), &text),
            Ok(Some("s".to_owned()))
        );
        assert_eq!(seal.open(&bound("b", "{}"), &text), Err(Foreign));
        assert_eq!(seal.open(&bound("a", "{\"x\":1}"), &text), Err(Foreign));
        assert_eq!(Seal::new().open(&bound("a", "{}"), &text), Err(Foreign));
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            // The last character has bits that carry nothing.
            assert!(
                at + 1 == text.len() || seal.open(&bound("a", "{}"), &forged).is_err(),
                "{at}"
            );
        }
        tokio::time::advance(LIFE + Duration::from_secs(2)).await;
        assert_eq!(seal.open(&bound("a", "{}"), &text), Err(Foreign));
    }
}
