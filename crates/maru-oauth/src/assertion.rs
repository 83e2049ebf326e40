//! The signed JWT with which a client authenticates instead of a secret (RFC 7523).

use std::{fmt, sync::Arc};

use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use maru_runtime::clock;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use serde_json::json;

use super::{Error, random_token};

/// How long an assertion is valid.
const ASSERTION_SECONDS: i64 = 120;

/// A private key in PKCS #8, for `ES256`, `EdDSA` or `RS256`.
#[derive(Clone)]
pub struct SigningKey(Arc<KeyPair>);

enum KeyPair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// Parses `-----BEGIN PRIVATE KEY-----`.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::invalid("the private key", reason);
        let body = pem
            .trim()
            .strip_prefix("-----BEGIN PRIVATE KEY-----")
            .and_then(|it| it.strip_suffix("-----END PRIVATE KEY-----"))
            .ok_or_else(|| {
                invalid("it does not begin with -----BEGIN PRIVATE KEY----- (PKCS #8)")
            })?;
        let text: String = body.split_whitespace().collect();
        let der = BASE64_STANDARD.decode(text);
        let der = der.map_err(|_| invalid("it is not Base64"))?;
        let ecdsa = || {
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            EcdsaKeyPair::from_pkcs8(algorithm, &der, &SystemRandom::new()).ok()
        };
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).ok();
        let rsa = || RsaKeyPair::from_pkcs8(&der).ok();
        ecdsa()
            .map(KeyPair::Ecdsa)
            .or_else(|| ed25519().map(KeyPair::Ed25519))
            .or_else(|| rsa().map(KeyPair::Rsa))
            .map(|pair| Self(Arc::new(pair)))
            .ok_or_else(|| invalid("use a P-256, Ed25519 or RSA key"))
    }

    /// Signs an assertion of `client_id` for the authorization server `audience`.
    pub(super) fn sign_assertion(&self, client_id: &str, audience: &str) -> Result<String, Error> {
        let now = clock::now_ms() / 1000;
        let header = json!({"alg": self.algorithm(), "typ": "JWT"});
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": audience,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
            "jti": random_token(),
        });
        let part = |it: &serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(it.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.sign(message.as_bytes())?;
        Ok(format!(
            "{message}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    fn algorithm(&self) -> &'static str {
        match &*self.0 {
            KeyPair::Ecdsa(_) => "ES256",
            KeyPair::Ed25519(_) => "EdDSA",
            KeyPair::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |_| Error::invalid("the private key", "it cannot sign");
        let random = SystemRandom::new();
        match &*self.0 {
            KeyPair::Ecdsa(pair) => {
                let signature = pair.sign(&random, message).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            KeyPair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            KeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SigningKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    #[test]
    fn assertion_is_signed_and_names_client_and_audience() {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let document = document.unwrap();
        let body = BASE64_STANDARD.encode(document.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        let key = SigningKey::from_pem(&pem).unwrap();
        let assertion = key.sign_assertion("me", "https://i.example").unwrap();
        let (message, signature) = assertion.rsplit_once('.').unwrap();
        let KeyPair::Ecdsa(pair) = &*key.0 else {
            panic!("a P-256 key");
        };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref())
            .verify(
                message.as_bytes(),
                &BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap(),
            )
            .unwrap();
        let claims = message.split_once('.').unwrap().1;
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&json!("me"), &json!("me"))
        );
        assert_eq!(claims["aud"], "https://i.example");
        assert!(!format!("{key:?}").contains(&body[..20]));
        for bad in [
            "",
            "-----BEGIN RSA PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----AAAA-----END PRIVATE KEY-----",
        ] {
            assert!(SigningKey::from_pem(bad).is_err());
        }
    }
}
