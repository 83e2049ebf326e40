//! Reading a signed token (JWT). Pure: keys and time are given.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{Error, keys::Keys};

/// Longer tokens are not read at all.
const MAX: usize = 8 << 10;
/// By how much clocks may differ, in seconds.
const LEEWAY: i64 = 30;

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) audience: &'a str,
    /// Seconds since 1970.
    pub(super) now: i64,
}

/// What is used of a token that may be believed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) scopes: Vec<String>,
    /// Seconds since 1970.
    pub(super) expires: i64,
}

/// Whether `text` has the form of such a token.
pub(super) fn looks_signed(text: &str) -> bool {
    text.len() <= MAX && text.bytes().filter(|it| *it == b'.').count() == 2
}

/// Believes a token, or says why not. Its signature comes first: nothing of an
/// unsigned token is looked at but the key's name.
pub(super) fn read(text: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Claims, Error> {
    let (signed, signature) = text.rsplit_once('.').ok_or(Error::UnknownToken)?;
    let (header, claims) = signed.split_once('.').ok_or(Error::UnknownToken)?;
    let header = object(header)?;
    let algorithm = header["alg"].as_str().unwrap_or_default();
    if !["RS256", "ES256", "EdDSA"].contains(&algorithm) || header.get("crit").is_some() {
        return Err(Error::UnknownToken);
    }
    let id = match &header["kid"] {
        Value::Null => None,
        id => Some(id.as_str().ok_or(Error::UnknownToken)?),
    };
    if !keys.has(id) {
        return Err(Error::UnknownKey);
    }
    let signature = bytes(signature)?;
    if !keys.verify((id, algorithm), signed.as_bytes(), &signature) {
        return Err(Error::UnknownToken);
    }
    believe(&object(claims)?, expected)
}

fn believe(claims: &Value, expected: &Expected<'_>) -> Result<Claims, Error> {
    if claims["iss"] != expected.issuer {
        return Err(Error::RejectedToken("it is from another issuer"));
    }
    let meant = match &claims["aud"] {
        Value::String(one) => one == expected.audience,
        Value::Array(all) => all.iter().any(|it| it == expected.audience),
        _ => false,
    };
    if !meant {
        return Err(Error::RejectedToken("it is meant for another audience"));
    }
    let seconds = |name: &str| {
        let number = &claims[name];
        // Some issuers write fractions.
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a saturated time is as good"
        )]
        number.as_i64().or(number.as_f64().map(|it| it as i64))
    };
    let expires = seconds("exp").ok_or(Error::RejectedToken("it does not say when it ends"))?;
    if expires.saturating_add(LEEWAY) <= expected.now {
        return Err(Error::ExpiredToken);
    }
    if seconds("nbf").is_some_and(|it| it.saturating_sub(LEEWAY) > expected.now) {
        return Err(Error::RejectedToken("its time has not come"));
    }
    let subject = claims["sub"].as_str().unwrap_or_default();
    if !(1..=200).contains(&subject.len()) || subject.chars().any(char::is_control) {
        return Err(Error::RejectedToken("it does not say whose it is"));
    }
    Ok(Claims {
        subject: subject.to_owned(),
        scopes: scopes(claims),
        expires,
    })
}

/// `scope` is one text; some issuers have a list `scp` instead.
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

fn object(part: &str) -> Result<Value, Error> {
    let bytes = bytes(part)?;
    // Strict: a member that stands twice could mean two things.
    let text = maru_protocol::validate_json(&bytes).map_err(|_| Error::UnknownToken)?;
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err(Error::UnknownToken),
    }
}

fn bytes(part: &str) -> Result<Vec<u8>, Error> {
    BASE64_URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| Error::UnknownToken)
}

#[cfg(test)]
mod tests {
    use ring::{
        rand::SystemRandom,
        signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
    };
    use serde_json::json;

    use super::*;

    const EXPECTED: Expected<'_> = Expected {
        issuer: "https://idp.example",
        audience: "https://maru.example/mcp",
        now: 1_000_000,
    };

    fn good() -> Value {
        json!({"iss": EXPECTED.issuer, "aud": [EXPECTED.audience], "sub": "kim", "exp": 1_000_100, "scope": "maru:read maru:call"})
    }

    fn part(value: &Value) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
    }

    fn ed25519() -> (Ed25519KeyPair, Keys) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let x = BASE64_URL_SAFE_NO_PAD.encode(pair.public_key());
        let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "1", "x": x}]});
        (pair, Keys::read(set.to_string().as_bytes()).unwrap())
    }

    fn signed(header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", part(header), part(claims));
        let signature = ed25519().0.sign(text.as_bytes());
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    fn judge(header: &Value, claims: &Value) -> Result<Claims, Error> {
        read(&signed(header, claims), &ed25519().1, &EXPECTED)
    }

    #[test]
    fn good_token_is_believed() {
        let header = json!({"alg": "EdDSA", "kid": "1", "typ": "at+jwt"});
        let claims = judge(&header, &good()).unwrap();
        assert_eq!(claims.subject, "kim");
        assert_eq!(claims.scopes, ["maru:read", "maru:call"]);
        // A set of one needs no name.
        assert!(judge(&json!({"alg": "EdDSA"}), &good()).is_ok());
    }

    #[test]
    fn ecdsa_is_understood() {
        let random = SystemRandom::new();
        let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(scheme, document.as_ref(), &random).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = (&point[1..33], &point[33..]);
        let encode = |it: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(it);
        let set = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)}]});
        let keys = Keys::read(set.to_string().as_bytes()).unwrap();
        let text = format!("{}.{}", part(&json!({"alg": "ES256"})), part(&good()));
        let signature = pair.sign(&random, text.as_bytes()).unwrap();
        let token = format!("{text}.{}", encode(signature.as_ref()));
        assert!(read(&token, &keys, &EXPECTED).is_ok());
        assert!(read(&token.replace("E", "F"), &keys, &EXPECTED).is_err());
    }

    #[test]
    fn wrong_headers_and_signatures_are_not() {
        for header in [
            json!({"alg": "none"}),
            json!({"alg": "HS256", "kid": "1"}),
            json!({"alg": "ES256", "kid": "1"}),
            json!({"alg": "EdDSA", "kid": "1", "crit": ["x"]}),
            json!({"alg": "EdDSA", "kid": 1}),
            json!({}),
        ] {
            assert_eq!(
                judge(&header, &good()),
                Err(Error::UnknownToken),
                "{header}"
            );
        }
        let unknown = json!({"alg": "EdDSA", "kid": "2"});
        assert_eq!(judge(&unknown, &good()), Err(Error::UnknownKey));
        let token = signed(&json!({"alg": "EdDSA"}), &good());
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
            let refused = read(&token, &ed25519().1, &EXPECTED);
            assert_eq!(refused, Err(Error::UnknownToken), "{token}");
        }
    }

    #[test]
    fn wrong_claims_are_not() {
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
            assert!(judge(&header, &claims).is_err(), "{claims}");
        }
    }
}
