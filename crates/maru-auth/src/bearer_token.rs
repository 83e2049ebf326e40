//! Bearer tokens: secrets that identify a principal.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// A bearer token. Only [`reveal`](Self::reveal) shows the secret.
pub struct BearerToken(String);

impl BearerToken {
    /// Creates a token of 256 random bits.
    pub fn random() -> Self {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
        Self(format!("maru_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Parses an `Authorization` header with the scheme `Bearer`.
    pub fn from_authorization(header: &[u8]) -> Option<Self> {
        let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Self::from(token))
    }

    /// The SHA-256 hash, which is stored and compared instead of the token.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for BearerToken {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BearerToken(…)")
    }
}
