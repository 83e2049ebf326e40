//! A secret that stands for a principal.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

/// A bearer token. It is shown only where someone asks to [`reveal`](Self::reveal) it.
pub struct BearerToken(String);

impl BearerToken {
    /// 256 random bits.
    pub fn random() -> Self {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        Self(format!("maru_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// What is stored and compared instead of the token.
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
        out.write_str("Token(…)")
    }
}
