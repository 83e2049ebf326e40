//! Verifies JWT access tokens and their claims. Pure: the caller passes keys and time.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jsonwebtoken::{AlgorithmFamily, Header};
use serde_json::Value;

use super::{
    Error,
    keys::{IssuerKeys, SignedMessage},
};

/// Longer tokens are refused unread.
const MAX_TOKEN_BYTES: usize = 8 << 10;
/// How far the clocks of issuer and hub may differ.
const LEEWAY_SECONDS: i64 = 30;
/// How many claims tools may use, and the longest, in bytes.
const MAX_CLAIMS: usize = 64;
const MAX_CLAIM_BYTES: usize = 1024;

/// The claims that a token must have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedClaims<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// The claims of a valid token that maru uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenClaims {
    pub(super) subject: String,
    pub(super) scopes: Vec<String>,
    /// Seconds since 1970.
    pub(super) expires: i64,
    /// All claims that are one value.
    pub(super) values: BTreeMap<String, String>,
}

/// Whether `text` has the form of a JWT.
pub(super) fn is_jwt(text: &str) -> bool {
    text.len() <= MAX_TOKEN_BYTES && text.bytes().filter(|it| *it == b'.').count() == 2
}

/// Verifies the signature of a token, then its claims. Before the signature is verified,
/// only the header is used.
pub(super) fn verify(
    text: &str,
    keys: &IssuerKeys,
    expected: &ExpectedClaims<'_>,
) -> Result<TokenClaims, Error> {
    validate_claims(&signed_claims(text, keys)?, expected)
}

/// Verifies an id token in the same way, and returns all its claims.
pub(super) fn verified_claims(
    text: &str,
    keys: &IssuerKeys,
    expected: &ExpectedClaims<'_>,
) -> Result<Value, Error> {
    if !is_jwt(text) {
        return Err(Error::UnknownToken);
    }
    let claims = signed_claims(text, keys)?;
    validate_claims(&claims, expected)?;
    Ok(claims)
}

fn signed_claims(text: &str, keys: &IssuerKeys) -> Result<Value, Error> {
    let (message, signature) = text.rsplit_once('.').ok_or(Error::UnknownToken)?;
    let (header, claims) = message.split_once('.').ok_or(Error::UnknownToken)?;
    let header = parse_header(header)?;
    let signed = SignedMessage {
        key_id: header.kid.as_deref(),
        algorithm: header.alg,
        message,
        signature,
    };
    if !keys.contains(signed.key_id) {
        return Err(Error::UnknownKey);
    }
    if !keys.verify(&signed) {
        return Err(Error::UnknownToken);
    }
    parse_object(claims)
}

/// Parses the header. Refuses `none`, which is not an [`Algorithm`](jsonwebtoken::Algorithm),
/// and HMAC, because the issuer's keys are public.
fn parse_header(part: &str) -> Result<Header, Error> {
    let header = parse_object(part)?;
    let is_critical = header.get("crit").is_some();
    let header: Header = serde_json::from_value(header).map_err(|_| Error::UnknownToken)?;
    if is_critical || header.alg.family() == AlgorithmFamily::Hmac {
        return Err(Error::UnknownToken);
    }
    Ok(header)
}

fn validate_claims(claims: &Value, expected: &ExpectedClaims<'_>) -> Result<TokenClaims, Error> {
    if claims["iss"] != expected.issuer {
        return Err(Error::RejectedToken("it is from another issuer"));
    }
    let is_for_us = match &claims["aud"] {
        Value::String(one) => one == expected.audience,
        Value::Array(all) => all.iter().any(|it| it == expected.audience),
        _ => false,
    };
    if !is_for_us {
        return Err(Error::RejectedToken("it is for another audience"));
    }
    let seconds = |name: &str| {
        let number = &claims[name];
        // Some issuers write fractional seconds.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a saturated time is as good"
        )]
        number.as_i64().or(number.as_f64().map(|it| it as i64))
    };
    let expires = seconds("exp").ok_or(Error::RejectedToken("it has no expiry time"))?;
    if expires.saturating_add(LEEWAY_SECONDS) <= expected.now {
        return Err(Error::ExpiredToken);
    }
    if seconds("nbf").is_some_and(|it| it.saturating_sub(LEEWAY_SECONDS) > expected.now) {
        return Err(Error::RejectedToken("it is not valid yet"));
    }
    let subject = claims["sub"].as_str().unwrap_or_default();
    if !(1..=200).contains(&subject.len()) || subject.chars().any(char::is_control) {
        return Err(Error::RejectedToken("it has no valid subject"));
    }
    Ok(TokenClaims {
        subject: subject.to_owned(),
        scopes: scopes(claims),
        expires,
        values: scalar_claims(claims),
    })
}

/// The claims that are a text, a number or a truth value, as texts.
fn scalar_claims(claims: &Value) -> BTreeMap<String, String> {
    let members = claims.as_object().into_iter().flatten();
    let scalars = members.filter_map(|(name, value)| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return None,
        };
        let fits = name.len() <= 64 && text.len() <= MAX_CLAIM_BYTES;
        fits.then(|| (name.clone(), text))
    });
    scalars.take(MAX_CLAIMS).collect()
}

/// Reads the claim `scope`, a space-separated text, or `scp`, which some issuers use
/// instead, as a text or a list.
fn scopes(claims: &Value) -> Vec<String> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match (&claims["scope"], &claims["scp"]) {
        (Value::String(text), _) | (_, Value::String(text)) => words(text),
        (_, Value::Array(all)) => all
            .iter()
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

fn parse_object(part: &str) -> Result<Value, Error> {
    let bytes = BASE64_URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| Error::UnknownToken)?;
    // Refuses duplicate members, which parsers resolve differently.
    let text = maru_protocol::validate_json(&bytes).map_err(|_| Error::UnknownToken)?;
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err(Error::UnknownToken),
    }
}

#[cfg(test)]
mod tests {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    use ring::{
        rand::SystemRandom,
        signature::{
            ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
            EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
            RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
            RsaEncoding, RsaKeyPair, RsaPublicKeyComponents,
        },
    };
    use serde_json::json;

    use super::*;

    const EXPECTED: ExpectedClaims<'_> = ExpectedClaims {
        issuer: "https://idp.example",
        audience: "https://maru.example/mcp",
        now: 1_000_000,
    };
    const RSA_ALGORITHMS: [&str; 6] = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
    const OTHER_ALGORITHMS: [&str; 3] = ["ES256", "ES384", "EdDSA"];

    type SignFn = Box<dyn Fn(&[u8]) -> Vec<u8>>;

    /// A private key, and the public key as an issuer lists it.
    struct SigningKey {
        jwk: Value,
        sign: SignFn,
    }

    impl SigningKey {
        fn for_algorithm(algorithm: &str) -> Self {
            match algorithm {
                "EdDSA" => Self::ed25519(),
                "ES256" => Self::elliptic("P-256", &ECDSA_P256_SHA256_FIXED_SIGNING),
                "ES384" => Self::elliptic("P-384", &ECDSA_P384_SHA384_FIXED_SIGNING),
                "RS256" => Self::rsa(&RSA_PKCS1_SHA256),
                "RS384" => Self::rsa(&RSA_PKCS1_SHA384),
                "RS512" => Self::rsa(&RSA_PKCS1_SHA512),
                "PS256" => Self::rsa(&RSA_PSS_SHA256),
                "PS384" => Self::rsa(&RSA_PSS_SHA384),
                _ => Self::rsa(&RSA_PSS_SHA512),
            }
        }

        fn ed25519() -> Self {
            let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
            let x = encode(pair.public_key());
            Self {
                jwk: json!({"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x}),
                sign: Box::new(move |text| pair.sign(text).as_ref().to_vec()),
            }
        }

        fn elliptic(curve: &str, scheme: &'static EcdsaSigningAlgorithm) -> Self {
            let random = SystemRandom::new();
            let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
            let (x, y) = pair.public_key().as_ref()[1..].split_at(scheme_bytes(curve));
            Self {
                jwk: json!({"kty": "EC", "crv": curve, "kid": "1", "x": encode(x), "y": encode(y)}),
                sign: Box::new(move |text| pair.sign(&random, text).unwrap().as_ref().to_vec()),
            }
        }

        fn rsa(scheme: &'static dyn RsaEncoding) -> Self {
            let document = include_bytes!("../../../tests/fixtures/rsa_test_key.pk8");
            let pair = RsaKeyPair::from_pkcs8(document).unwrap();
            let public: RsaPublicKeyComponents<Vec<u8>> = pair.public().into();
            let (n, e) = (encode(&public.n), encode(&public.e));
            Self {
                jwk: json!({"kty": "RSA", "kid": "1", "use": "sig", "n": n, "e": e}),
                sign: Box::new(move |text| {
                    let mut signature = vec![0; pair.public().modulus_len()];
                    pair.sign(scheme, &SystemRandom::new(), text, &mut signature)
                        .unwrap();
                    signature
                }),
            }
        }

        fn token(&self, header: &Value, claims: &Value) -> String {
            let text = format!("{}.{}", part(header), part(claims));
            format!("{text}.{}", encode((self.sign)(text.as_bytes())))
        }

        fn keys(&self) -> IssuerKeys {
            key_set(&self.jwk)
        }

        /// The same key, listed for one algorithm only.
        fn keys_for(&self, algorithm: &str) -> IssuerKeys {
            let mut jwk = self.jwk.clone();
            jwk["alg"] = algorithm.into();
            key_set(&jwk)
        }
    }

    fn scheme_bytes(curve: &str) -> usize {
        if curve == "P-256" { 32 } else { 48 }
    }

    fn key_set(jwk: &Value) -> IssuerKeys {
        IssuerKeys::parse(json!({"keys": [jwk]}).to_string().as_bytes()).unwrap()
    }

    fn good() -> Value {
        json!({"iss": EXPECTED.issuer, "aud": [EXPECTED.audience], "sub": "kim", "exp": 1_000_100, "scope": "maru:read maru:call"})
    }

    fn encode(bytes: impl AsRef<[u8]>) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    fn part(value: &Value) -> String {
        encode(value.to_string())
    }

    /// Verifies a token that is signed with Ed25519, whatever its header says.
    fn verify_signed(header: &Value, claims: &Value) -> Result<TokenClaims, Error> {
        let key = SigningKey::ed25519();
        verify(&key.token(header, claims), &key.keys(), &EXPECTED)
    }

    #[test]
    fn good_token_is_accepted() {
        let header = json!({"alg": "EdDSA", "kid": "1", "typ": "at+jwt"});
        let claims = verify_signed(&header, &good()).unwrap();
        assert_eq!(claims.subject, "kim");
        assert_eq!(claims.scopes, ["maru:read", "maru:call"]);
        // With a single key, the header needs no key id.
        assert!(verify_signed(&json!({"alg": "EdDSA"}), &good()).is_ok());
    }

    #[test]
    fn every_algorithm_is_accepted_from_a_key_that_is_for_it() {
        for algorithm in RSA_ALGORITHMS.iter().chain(&OTHER_ALGORITHMS) {
            let key = SigningKey::for_algorithm(algorithm);
            let token = key.token(&json!({"alg": algorithm, "kid": "1"}), &good());
            for keys in [key.keys(), key.keys_for(algorithm)] {
                assert!(verify(&token, &keys, &EXPECTED).is_ok(), "{algorithm}");
            }
            let (text, _) = token.rsplit_once('.').unwrap();
            let other = encode((key.sign)(b"something else"));
            let forged = verify(&format!("{text}.{other}"), &key.keys(), &EXPECTED);
            assert_eq!(forged, Err(Error::UnknownToken), "{algorithm}");
        }
    }

    /// The header must not choose how a signature is verified.
    #[test]
    fn algorithm_that_the_key_is_not_for_is_refused() {
        let all: Vec<&str> = [&RSA_ALGORITHMS[..], &OTHER_ALGORITHMS].concat();
        for signed in &all {
            let key = SigningKey::for_algorithm(signed);
            for claimed in all.iter().filter(|it| *it != signed) {
                let token = key.token(&json!({"alg": claimed, "kid": "1"}), &good());
                let refused = verify(&token, &key.keys(), &EXPECTED);
                assert_eq!(refused, Err(Error::UnknownToken), "{signed} as {claimed}");
                // The signature is valid, but the key is listed for another algorithm.
                let token = key.token(&json!({"alg": signed, "kid": "1"}), &good());
                let refused = verify(&token, &key.keys_for(claimed), &EXPECTED);
                assert!(refused.is_err(), "{signed} by a key for {claimed}");
            }
        }
    }

    #[test]
    fn public_key_is_not_used_as_a_shared_secret() {
        let key = SigningKey::rsa(&RSA_PKCS1_SHA256);
        let text = format!("{}.{}", part(&json!({"alg": "HS256"})), part(&good()));
        let secrets = ["n", "e"].map(|it| key.jwk[it].as_str().unwrap());
        for secret in secrets {
            let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
            mac.update(text.as_bytes());
            let token = format!("{text}.{}", encode(mac.finalize().into_bytes()));
            let refused = verify(&token, &key.keys(), &EXPECTED);
            assert_eq!(refused, Err(Error::UnknownToken));
        }
    }

    #[test]
    fn keys_of_other_kinds_are_left_out() {
        let elliptic = SigningKey::for_algorithm("ES256").jwk;
        let with = |name: &str, value: Value| {
            let mut jwk = elliptic.clone();
            jwk[name] = value;
            jwk
        };
        for jwk in [
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "OKP", "crv": "X25519", "x": encode([7; 32])}),
            with("use", json!("enc")),
            with("alg", json!("HS256")),
            with("alg", json!("ES384")),
            with("alg", json!("ES256K")),
            with("crv", json!("P-384")),
            with("x", json!(encode([1; 31]))),
            with("y", json!("not base64, but as long as 32 bytes are in.")),
            json!("a key"),
        ] {
            assert!(key_set(&jwk).is_empty(), "{jwk}");
        }
        assert!(!key_set(&with("use", json!("sig"))).is_empty());
    }

    #[test]
    fn wrong_headers_and_signatures_are_refused() {
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "HS256", "kid": "1"}),
            json!({"alg": "ES256", "kid": "1"}),
            json!({"alg": "HS256", "kid": "2"}),
            json!({"alg": "EdDSA", "kid": "1", "crit": ["x"]}),
            json!({"alg": "EdDSA", "kid": "1", "crit": null}),
            json!({"alg": "EdDSA", "kid": 1}),
            json!({}),
        ] {
            assert_eq!(
                verify_signed(&header, &good()),
                Err(Error::UnknownToken),
                "{header}"
            );
        }
        let unknown = json!({"alg": "EdDSA", "kid": "2"});
        assert_eq!(verify_signed(&unknown, &good()), Err(Error::UnknownKey));
        let key = SigningKey::ed25519();
        let token = key.token(&json!({"alg": "EdDSA"}), &good());
        let (text, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = text.split_once('.').unwrap();
        let mut forged = good();
        forged["sub"] = "admin".into();
        for token in [
            format!("{text}."),
            format!("{text}.{}", &signature[2..]),
            format!("{header}.{}.{signature}", part(&forged)),
            "a.b.c".to_owned(),
            "..".to_owned(),
        ] {
            let refused = verify(&token, &key.keys(), &EXPECTED);
            assert_eq!(refused, Err(Error::UnknownToken), "{token}");
        }
    }

    #[test]
    fn wrong_claims_are_refused() {
        let header = json!({"alg": "EdDSA"});
        for (name, value) in [
            ("iss", json!("https://idp.example/")),
            ("aud", json!("https://other.example/mcp")),
            ("aud", json!([])),
            ("aud", Value::Null),
            ("exp", Value::Null),
            ("exp", json!("never")),
            ("exp", json!(999_970)),
            ("nbf", json!(1_000_031)),
            ("sub", Value::Null),
            ("sub", json!("a\u{7}")),
        ] {
            let mut claims = good();
            claims[name] = value;
            assert!(verify_signed(&header, &claims).is_err(), "{claims}");
        }
    }
}
