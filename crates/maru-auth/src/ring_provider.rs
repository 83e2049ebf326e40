//! A `jsonwebtoken` crypto provider that verifies signatures with `ring`, which TLS
//! already links. See `docs/adr/0006-jsonwebtoken.md`.

use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind,
    crypto::{CryptoProvider, JwtVerifier, KeyUtils},
    errors::{Error, ErrorKind},
    signature::{self as signature_traits, Verifier},
};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};

/// Only verifies, because maru signs no tokens and reads no private keys.
static RING_PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(unsupported()),
    verifier_factory: |algorithm, key| RingVerifier::create(*algorithm, key),
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use `ring` in this process.
pub(super) fn install() {
    // An error means that a provider is installed already: this one, or that of a program
    // that embeds maru. Any provider can verify.
    let _ = RING_PROVIDER.install_default();
}

/// A key and the algorithm that it verifies with.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl RingVerifier {
    fn create(algorithm: Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
        if key.family() != algorithm.family() {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        let key = key.clone();
        Ok(Box::new(Self { algorithm, key }))
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature_traits::Error> {
        let verified = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => rsa_parameters(self.algorithm)
                .and_then(|parameters| {
                    RsaPublicKeyComponents { n, e }
                        .verify(parameters, message, signature)
                        .ok()
                }),
            DecodingKeyKind::SecretOrDer(point) => curve(self.algorithm).and_then(|curve| {
                UnparsedPublicKey::new(curve, point)
                    .verify(message, signature)
                    .ok()
            }),
        };
        verified.ok_or_else(signature_traits::Error::new)
    }
}

/// The parameters of RSA signatures with keys of 2048 to 8192 bits.
fn rsa_parameters(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn signature::VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &signature::ED25519,
        _ => return None,
    })
}

fn unsupported() -> Error {
    ErrorKind::UnsupportedAlgorithm.into()
}
