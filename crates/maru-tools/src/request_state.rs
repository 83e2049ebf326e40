//! State that a client returns with its answers: signed, so that it cannot be forged.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

const STATE_LIFETIME: Duration = Duration::from_secs(600);
const TAG_BYTES: usize = 32;

/// Signs and verifies states, with a key of this process.
#[derive(Debug)]
pub struct RequestStateSealer {
    key: [u8; 32],
    started: Instant,
}

/// The request that a state belongs to.
#[derive(Debug)]
pub struct StateBinding<'a> {
    /// The name of the caller.
    pub principal: &'a str,
    /// The method.
    pub method: &'a str,
    /// The tool, prompt or resource.
    pub name: &'a str,
    /// The arguments as text.
    pub arguments: &'a str,
}

/// The state is forged, belongs to another request, or is expired.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidRequestState;

#[derive(Serialize, Deserialize)]
struct SealedState {
    bound: [u8; 32],
    expires: u64,
    state: Option<String>,
}

impl RequestStateSealer {
    /// A sealer with a new key.
    pub fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system gives random bytes");
        Self {
            key,
            started: Instant::now(),
        }
    }

    /// Signs a state for the request that it belongs to.
    pub fn seal(&self, bound: &StateBinding<'_>, state: Option<String>) -> String {
        let sealed = SealedState {
            bound: bound.digest(),
            expires: (self.started.elapsed() + STATE_LIFETIME).as_secs(),
            state,
        };
        let payload = serde_json::to_vec(&sealed).expect("our own values are JSON");
        let mut bytes = self.mac(&payload).finalize().into_bytes().to_vec();
        bytes.extend(payload);
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The state, if it is genuine, not expired, and belongs to this request.
    pub fn unseal(
        &self,
        bound: &StateBinding<'_>,
        text: &str,
    ) -> Result<Option<String>, InvalidRequestState> {
        let bytes = BASE64_URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| InvalidRequestState)?;
        let (tag, payload) = bytes
            .split_at_checked(TAG_BYTES)
            .ok_or(InvalidRequestState)?;
        self.mac(payload)
            .verify_slice(tag)
            .map_err(|_| InvalidRequestState)?;
        let sealed: SealedState =
            serde_json::from_slice(payload).map_err(|_| InvalidRequestState)?;
        let fresh = self.started.elapsed().as_secs() <= sealed.expires;
        if fresh && sealed.bound == bound.digest() {
            Ok(sealed.state)
        } else {
            Err(InvalidRequestState)
        }
    }

    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any key length fits");
        mac.update(payload);
        mac
    }
}

impl Default for RequestStateSealer {
    fn default() -> Self {
        Self::new()
    }
}

impl StateBinding<'_> {
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

    fn bound<'a>(principal: &'a str, arguments: &'a str) -> StateBinding<'a> {
        StateBinding {
            principal,
            method: "tools/call",
            name: "x",
            arguments,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn state_opens_for_its_own_request_only_and_not_for_ever() {
        let seal = RequestStateSealer::new();
        let text = seal.seal(&bound("a", "{}"), Some("s".to_owned()));
        assert_eq!(
            seal.unseal(&bound("a", "{}"), &text),
            Ok(Some("s".to_owned()))
        );
        assert_eq!(
            seal.unseal(&bound("b", "{}"), &text),
            Err(InvalidRequestState)
        );
        assert_eq!(
            seal.unseal(&bound("a", "{\"x\":1}"), &text),
            Err(InvalidRequestState)
        );
        assert_eq!(
            RequestStateSealer::new().unseal(&bound("a", "{}"), &text),
            Err(InvalidRequestState)
        );
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            // The last character has bits that carry nothing.
            assert!(
                at + 1 == text.len() || seal.unseal(&bound("a", "{}"), &forged).is_err(),
                "{at}"
            );
        }
        tokio::time::advance(STATE_LIFETIME + Duration::from_secs(2)).await;
        assert_eq!(
            seal.unseal(&bound("a", "{}"), &text),
            Err(InvalidRequestState)
        );
    }
}
