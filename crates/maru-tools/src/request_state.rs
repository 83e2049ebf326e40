//! State that a client returns with its answers: signed, so that it cannot be forged.

use std::{fmt, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use maru_runtime::clock;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

const STATE_LIFETIME_SECONDS: i64 = 600;
const TAG_BYTES: usize = 32;

/// Signs and verifies states, with a key of this process or of all hubs of a store.
pub struct RequestStateSealer {
    key: [u8; 32],
    /// The hub that keeps what a state stands for, if others read it.
    hub: Option<Arc<str>>,
    started: Instant,
    /// The wall-clock time at `started`.
    started_at_ms: i64,
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
    expires: i64,
    state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hub: Option<String>,
}

impl RequestStateSealer {
    /// A sealer with a new key.
    pub fn new() -> Self {
        let mut key = [0; 32];
        getrandom::fill(&mut key).expect("the operating system gives random bytes");
        Self::with_key(key, None)
    }

    /// A sealer of the hub `hub` with a key that other hubs have, too.
    pub fn with_key(key: [u8; 32], hub: Option<Arc<str>>) -> Self {
        Self {
            key,
            hub,
            started: Instant::now(),
            started_at_ms: clock::now_ms(),
        }
    }

    /// Signs a state for the request that it belongs to.
    pub fn seal(&self, bound: &StateBinding<'_>, state: Option<String>) -> String {
        let sealed = SealedState {
            bound: bound.digest(),
            expires: self.now_seconds() + STATE_LIFETIME_SECONDS,
            hub: self
                .hub
                .as_deref()
                .filter(|_| state.is_some())
                .map(str::to_owned),
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
        let sealed = self.open(text).ok_or(InvalidRequestState)?;
        if sealed.bound == bound.digest() {
            Ok(sealed.state)
        } else {
            Err(InvalidRequestState)
        }
    }

    /// The hub that keeps what the state stands for, if it is another one.
    pub fn other_owner(&self, text: &str) -> Option<String> {
        let owner = self.open(text)?.hub?;
        (self.hub.as_deref() != Some(&owner)).then_some(owner)
    }

    /// Opens a state that is genuine and not expired.
    fn open(&self, text: &str) -> Option<SealedState> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let (tag, payload) = bytes.split_at_checked(TAG_BYTES)?;
        self.mac(payload).verify_slice(tag).ok()?;
        let sealed: SealedState = serde_json::from_slice(payload).ok()?;
        (self.now_seconds() <= sealed.expires).then_some(sealed)
    }

    fn now_seconds(&self) -> i64 {
        let elapsed = i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX / 2);
        self.started_at_ms.saturating_add(elapsed) / 1000
    }

    fn mac(&self, payload: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any key length fits");
        mac.update(payload);
        mac
    }
}

impl fmt::Debug for RequestStateSealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hub = &self.hub;
        write!(out, "RequestStateSealer({hub:?})")
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
    use std::time::Duration;

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
        tokio::time::advance(Duration::from_secs(602)).await;
        assert_eq!(
            seal.unseal(&bound("a", "{}"), &text),
            Err(InvalidRequestState)
        );
    }
    #[test]
    fn state_of_another_hub_opens_and_names_its_owner() {
        let [one, other] =
            ["one", "other"].map(|hub| RequestStateSealer::with_key([7; 32], Some(hub.into())));
        let text = one.seal(&bound("a", "{}"), Some("s".to_owned()));
        let opened = other.unseal(&bound("a", "{}"), &text);
        assert_eq!(opened, Ok(Some("s".to_owned())));
        assert_eq!(other.other_owner(&text).as_deref(), Some("one"));
        assert_eq!(one.other_owner(&text), None);
        // A state that only the client keeps belongs to no hub.
        assert_eq!(other.other_owner(&one.seal(&bound("a", "{}"), None)), None);
        assert_eq!(RequestStateSealer::new().other_owner(&text), None);
    }
}
