//! The key that hubs share, and the keys made of it.

use std::fmt;

use maru_store::SecretSealer;
use sha2::{Digest as _, Sha256};

/// The key that all hubs of a store share.
pub struct HubKey([u8; 32]);

impl HubKey {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// A key for one purpose, the same at every hub.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(purpose);
        hash.finalize().into()
    }

    /// Encrypts with the key of one purpose.
    pub fn sealer(&self, purpose: &str) -> SecretSealer {
        SecretSealer::new(&self.derive(purpose))
    }
}

impl fmt::Debug for HubKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HubKey(…)")
    }
}
