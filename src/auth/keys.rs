//! Public keys of an issuer (JWKS), and what they have signed.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

/// More than any issuer has in use.
const MOST: usize = 64;

/// The keys of an issuer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    material: Material,
}

/// A key is good for one algorithm, whatever a token says.
#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rs256 { n: Vec<u8>, e: Vec<u8> },
    Es256(Vec<u8>),
    EdDsa(Vec<u8>),
}

impl Keys {
    /// Reads a key set; keys of other kinds, and for other uses, are left out.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let text =
            maru_protocol::validate_json(text).map_err(|bad| format!("the key set is {bad}"))?;
        let set: Value = serde_json::from_str(text).map_err(|_| "the key set is not JSON")?;
        let listed = set["keys"]
            .as_array()
            .ok_or("the key set has no list of keys")?;
        // An issuer that lists none has withdrawn all.
        Ok(Self(listed.iter().take(MOST).filter_map(read).collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `id` is one of them. A token without one fits a set of one.
    pub(super) fn has(&self, id: Option<&str>) -> bool {
        self.named(id).next().is_some()
    }

    /// Whether the key `id` made `signature` for `message` with `algorithm`.
    pub(super) fn verify(
        &self,
        (id, algorithm): (Option<&str>, &str),
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        self.named(id)
            .any(|key| key.material.verify(algorithm, message, signature))
    }

    fn named(&self, id: Option<&str>) -> impl Iterator<Item = &Key> {
        let only = self.0.len() == 1;
        self.0.iter().filter(move |key| match id {
            Some(id) => key.id.as_deref() == Some(id),
            None => only,
        })
    }
}

impl Material {
    fn verify(&self, algorithm: &str, message: &[u8], signed: &[u8]) -> bool {
        let checked = match (self, algorithm) {
            (Self::Rs256 { n, e }, "RS256") => RsaPublicKeyComponents { n, e }.verify(
                &signature::RSA_PKCS1_2048_8192_SHA256,
                message,
                signed,
            ),
            (Self::Es256(point), "ES256") => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signed)
            }
            (Self::EdDsa(point), "EdDSA") => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(message, signed)
            }
            _ => return false,
        };
        checked.is_ok()
    }
}

fn read(key: &Value) -> Option<Key> {
    let bytes = |name: &str| BASE64_URL_SAFE_NO_PAD.decode(key[name].as_str()?).ok();
    let signs = key["use"].as_str().is_none_or(|it| it == "sig");
    let is = |algorithm: &str| key["alg"].as_str().is_none_or(|it| it == algorithm);
    let material = match (key["kty"].as_str()?, key["crv"].as_str()) {
        ("RSA", _) if is("RS256") => Material::Rs256 {
            n: bytes("n")?,
            e: bytes("e")?,
        },
        ("EC", Some("P-256")) if is("ES256") => {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == 32 && y.len() == 32).then_some(())?;
            Material::Es256([&[4], x.as_slice(), &y].concat())
        }
        ("OKP", Some("Ed25519")) if is("EdDSA") => Material::EdDsa(bytes("x")?),
        _ => return None,
    };
    let id = key["kid"].as_str().map(str::to_owned);
    signs.then_some(Key { id, material })
}
