//! The public keys of an issuer (JWKS), which verify signatures.

use jsonwebtoken::{
    Algorithm, DecodingKey, crypto,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse},
};
use serde_json::Value;

use super::ring_provider;

/// Further keys of a set are ignored; no issuer uses as many.
const MAX_KEYS: usize = 64;

/// The public signature keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct IssuerKeys(Vec<IssuerKey>);

#[derive(Debug)]
struct IssuerKey {
    jwk: Jwk,
    decoding_key: DecodingKey,
    /// The algorithms that the key may verify, whatever the header of a token says.
    algorithms: Vec<Algorithm>,
}

/// A token split for verification.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedMessage<'a> {
    /// The header's `kid`.
    pub(super) key_id: Option<&'a str>,
    /// The header's `alg`.
    pub(super) algorithm: Algorithm,
    /// Header and claims in Base64, as they were signed.
    pub(super) message: &'a str,
    /// The signature in Base64.
    pub(super) signature: &'a str,
}

impl IssuerKeys {
    /// Parses a key set. Keys of unsupported types and for other uses are left out.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        ring_provider::install();
        let text = maru_protocol::validate_json(text)
            .map_err(|error| format!("the key set is {error}"))?;
        let set: Value = serde_json::from_str(text).map_err(|_| "the key set is not JSON")?;
        let listed = set["keys"]
            .as_array()
            .ok_or("the key set has no list of keys")?;
        let listed = listed.iter().take(MAX_KEYS);
        // An empty list is valid: the issuer has withdrawn all its keys.
        Ok(Self(listed.filter_map(IssuerKey::parse).collect()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a key for this `kid`. A token without one matches a single key.
    pub(super) fn contains(&self, key_id: Option<&str>) -> bool {
        self.matching(key_id).next().is_some()
    }

    /// Whether one of the matching keys verifies the signature, with an algorithm that the
    /// key is for.
    pub(super) fn verify(&self, signed: &SignedMessage<'_>) -> bool {
        self.matching(signed.key_id).any(|key| key.verify(signed))
    }

    fn matching(&self, key_id: Option<&str>) -> impl Iterator<Item = &IssuerKey> {
        let is_single = self.0.len() == 1;
        self.0.iter().filter(move |key| match key_id {
            Some(id) => key.jwk.common.key_id.as_deref() == Some(id),
            None => is_single,
        })
    }
}

impl PartialEq for IssuerKeys {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.0.iter(), other.0.iter());
        own.map(|it| &it.jwk).eq(others.map(|it| &it.jwk))
    }
}

impl IssuerKey {
    fn parse(key: &Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(key.clone()).ok()?;
        let is_for_signatures = match &jwk.common.public_key_use {
            None | Some(PublicKeyUse::Signature) => true,
            Some(PublicKeyUse::Encryption | PublicKeyUse::Other(_)) => false,
        };
        let declared = jwk.common.key_algorithm;
        let is_declared =
            |it: &Algorithm| declared.is_none_or(|alg| alg == KeyAlgorithm::from(*it));
        let algorithms = algorithms_of(&jwk.algorithm)?;
        let algorithms: Vec<Algorithm> = algorithms.iter().copied().filter(is_declared).collect();
        if !is_for_signatures || algorithms.is_empty() {
            return None;
        }
        Some(Self {
            decoding_key: DecodingKey::from_jwk(&jwk).ok()?,
            jwk,
            algorithms,
        })
    }

    fn verify(&self, signed: &SignedMessage<'_>) -> bool {
        let message = signed.message.as_bytes();
        self.algorithms.contains(&signed.algorithm)
            && crypto::verify(
                signed.signature,
                message,
                &self.decoding_key,
                signed.algorithm,
            )
            .unwrap_or(false)
    }
}

/// The algorithms that a key of this type can verify. Shared secrets are left out: anybody
/// who knows a public key could otherwise sign with it as an HMAC secret.
fn algorithms_of(parameters: &AlgorithmParameters) -> Option<&'static [Algorithm]> {
    match parameters {
        AlgorithmParameters::RSA(_) => Some(&[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ]),
        AlgorithmParameters::EllipticCurve(key) => {
            // 43 and 64 are the Base64 lengths of 32 and 48 bytes.
            match (&key.curve, key.x.len(), key.y.len()) {
                (EllipticCurve::P256, 43, 43) => Some(&[Algorithm::ES256]),
                (EllipticCurve::P384, 64, 64) => Some(&[Algorithm::ES384]),
                _ => None,
            }
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(&[Algorithm::EdDSA])
        }
        _ => None,
    }
}
