//! Secrets that carry what they stand for: a subject, a number and a signature. The store
//! keeps none of them. Pure.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// What a secret is for. A secret of one kind is never accepted as one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretKind {
    /// The subject is a grant, the number the time of expiry.
    AccessToken,
    /// The subject is a grant, the number its generation.
    Code,
    /// The subject is a grant, the number its generation.
    RefreshToken,
    /// The subject is a client.
    ClientSecret,
    /// The subject is a browser session and the request that its form is for.
    Form,
}

/// Signs secrets, with a key that the hubs of a store share.
pub(super) struct SecretSigner {
    key: [u8; 32],
}

/// What a valid secret stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecretContent<'a> {
    pub(super) subject: &'a str,
    pub(super) number: i64,
}

impl SecretKind {
    fn prefix(self) -> &'static str {
        match self {
            Self::AccessToken => "maru_at_",
            Self::Code => "maru_ac_",
            Self::RefreshToken => "maru_rt_",
            Self::ClientSecret => "maru_cs_",
            Self::Form => "maru_ft_",
        }
    }

    /// Whether `text` claims to be of this kind.
    pub(super) fn is_claimed_by(self, text: &str) -> bool {
        text.starts_with(self.prefix())
    }
}

impl SecretSigner {
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// A signer with a key of its own, made of one that serves other purposes too.
    pub(super) fn derived_from(shared_key: &[u8; 32]) -> Self {
        let derived = Self::new(*shared_key).mac_of("maru authorization server");
        Self::new(derived.finalize().into_bytes().into())
    }

    /// Writes a secret. A subject has no dots.
    pub(super) fn sign(&self, kind: SecretKind, subject: &str, number: i64) -> String {
        let signed = format!("{}{subject}.{number}", kind.prefix());
        let signature = self.mac_of(&signed).finalize().into_bytes();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// Verifies a secret of this kind; the time that takes says nothing about it.
    pub(super) fn verify<'a>(&self, kind: SecretKind, text: &'a str) -> Option<SecretContent<'a>> {
        let (signed, signature) = text.rsplit_once('.')?;
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        self.mac_of(signed).verify_slice(&signature).ok()?;
        let (subject, number) = signed.strip_prefix(kind.prefix())?.split_once('.')?;
        let number = number.parse().ok()?;
        Some(SecretContent { subject, number })
    }

    fn mac_of(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any key length fits");
        mac.update(text.as_bytes());
        mac
    }
}

impl std::fmt::Debug for SecretSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SecretSigner(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unchanged_secret_of_the_same_kind_and_key_is_valid() {
        let signer = SecretSigner::new([7; 32]);
        let text = signer.sign(SecretKind::RefreshToken, "abc", 12);
        let content = SecretContent {
            subject: "abc",
            number: 12,
        };
        assert_eq!(
            signer.verify(SecretKind::RefreshToken, &text),
            Some(content)
        );
        assert_eq!(signer.verify(SecretKind::Code, &text), None);
        let other = SecretSigner::new([8; 32]);
        assert_eq!(other.verify(SecretKind::RefreshToken, &text), None);
        for changed in [
            text.replace("abc", "abd"),
            text.replace(".12.", ".13."),
            text.replace("maru_rt_", "maru_at_"),
            format!("{text}A"),
            text[..text.len() - 1].to_owned(),
            "maru_rt_abc.12.".to_owned(),
            "maru_rt_".to_owned(),
            String::new(),
        ] {
            for kind in [SecretKind::RefreshToken, SecretKind::AccessToken] {
                assert_eq!(signer.verify(kind, &changed), None, "{changed}");
            }
        }
    }
}
