//! The request with which a client sends a person to maru. Pure.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::form::{FormFields, encode_value};

/// A valid request for a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRequest {
    /// Where the person is sent back to.
    pub redirect_uri: String,
    /// Comes back with the redirect.
    pub state: Option<String>,
    /// The requested scopes.
    pub scope: Vec<String>,
    /// The SHA-256 of the verifier (RFC 7636).
    pub code_challenge: String,
    /// The resource that the token is for (RFC 8707).
    pub resource: Option<String>,
}

/// A request that is refused, with the error code of RFC 6749. The client learns of it by
/// a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRequestError {
    /// The error code.
    pub code: &'static str,
    /// What is wrong.
    pub description: &'static str,
}

impl CodeRequest {
    /// Parses the query of a client whose id and redirect were checked before. `base_url`
    /// is where maru is reached.
    pub(super) fn parse(query: &FormFields, base_url: &str) -> Result<Self, CodeRequestError> {
        let refused = |code, description| CodeRequestError { code, description };
        if query.get("response_type") != Some("code") {
            let message = "response_type must be code";
            return Err(refused("unsupported_response_type", message));
        }
        let invalid = |description| refused("invalid_request", description);
        if query.get("code_challenge_method") != Some("S256") {
            return Err(invalid("code_challenge_method must be S256"));
        }
        let challenge = query.get("code_challenge").filter(|it| is_challenge(it));
        let challenge =
            challenge.ok_or(invalid("code_challenge must be a SHA-256 in base64url"))?;
        let resource = query.get("resource");
        if resource.is_some_and(|it| !is_own_resource(it, base_url)) {
            return Err(refused("invalid_target", "the resource is not this server"));
        }
        let scope = query.get("scope").unwrap_or_default();
        Ok(Self {
            redirect_uri: query.get("redirect_uri").unwrap_or_default().to_owned(),
            state: query.get("state").map(str::to_owned),
            scope: scope.split(' ').map(str::to_owned).collect(),
            code_challenge: challenge.to_owned(),
            resource: resource.map(str::to_owned),
        })
    }

    /// Whether `verifier` is the one whose hash the request had.
    pub(super) fn is_verified_by(&self, verifier: &str) -> bool {
        let is_allowed = |it: u8| it.is_ascii_alphanumeric() || b"-._~".contains(&it);
        (43..=128).contains(&verifier.len())
            && verifier.bytes().all(is_allowed)
            && code_challenge(verifier) == self.code_challenge
    }

    /// The server that the resource names, where it is that of one server only.
    pub fn only_server(&self) -> Option<&str> {
        let (_, name) = self.resource.as_deref()?.rsplit_once("/mcp/s/")?;
        Some(name.trim_end_matches('/')).filter(|it| !it.is_empty())
    }
}

/// Returns the address that a person is sent back to: `redirect_uri` with these
/// parameters, the state and the issuer (RFC 9207).
pub fn redirect_url(
    redirect_uri: &str,
    parameters: &[(&str, &str)],
    state: Option<&str>,
    issuer: &str,
) -> String {
    let all = parameters.iter().copied();
    let all = all.chain(state.map(|it| ("state", it)));
    let all = all.chain([("iss", issuer)]);
    let pairs = all.map(|(name, value)| format!("{name}={}", encode_value(value)));
    let separator = if redirect_uri.contains('?') { '&' } else { '?' };
    let query = pairs.collect::<Vec<_>>().join("&");
    format!("{redirect_uri}{separator}{query}")
}

/// Whether `resource` is the hub at `base_url` or one of its endpoints.
pub(super) fn is_own_resource(resource: &str, base_url: &str) -> bool {
    let path = resource.strip_prefix(base_url);
    path.is_some_and(|it| it.is_empty() || it.starts_with('/')) && !resource.contains(['#', '?'])
}

fn code_challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

fn is_challenge(text: &str) -> bool {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(text);
    decoded.is_ok_and(|it| it.len() == 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "https://maru.example";
    /// Those of the RFC.
    const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn parse(changes: &str) -> Result<CodeRequest, CodeRequestError> {
        let query = format!(
            "redirect_uri=https://a.example/cb&state=s&code_challenge={CHALLENGE}&{changes}"
        );
        CodeRequest::parse(&FormFields::parse(&query).unwrap(), BASE)
    }

    #[test]
    fn request_needs_code_s256_and_this_resource() {
        let good = "response_type=code&code_challenge_method=S256";
        let request = parse(&format!("{good}&scope=a+b&resource={BASE}/mcp/s/files")).unwrap();
        assert_eq!(request.scope, ["a", "b"]);
        assert_eq!(request.only_server(), Some("files"));
        assert!(request.is_verified_by(VERIFIER));
        for wrong in ["", "x", &VERIFIER.replace('d', "e"), CHALLENGE] {
            assert!(!request.is_verified_by(wrong), "{wrong}");
        }
        assert_eq!(parse(good).unwrap().only_server(), None);
        for (bad, code) in [
            ("code_challenge_method=S256", "unsupported_response_type"),
            (
                "response_type=token&code_challenge_method=S256",
                "unsupported_response_type",
            ),
            ("response_type=code", "invalid_request"),
            (
                "response_type=code&code_challenge_method=plain",
                "invalid_request",
            ),
            (
                &format!("{good}&resource=https://evil.example/mcp"),
                "invalid_target",
            ),
            (
                &format!("{good}&resource={BASE}.evil.example/mcp"),
                "invalid_target",
            ),
            (&format!("{good}&resource={BASE}/mcp%23x"), "invalid_target"),
        ] {
            assert_eq!(parse(bad).unwrap_err().code, code, "{bad}");
        }
        let without_hash = format!("{good}&redirect_uri=x&code_challenge=short");
        let query = FormFields::parse(&without_hash).unwrap();
        assert!(CodeRequest::parse(&query, BASE).is_err());
    }

    #[test]
    fn redirect_names_state_and_issuer() {
        assert_eq!(
            redirect_url(
                "https://a.example/cb?x=1",
                &[("code", "a b")],
                Some("s&t"),
                BASE
            ),
            "https://a.example/cb?x=1&code=a%20b&state=s%26t&iss=https%3A%2F%2Fmaru.example"
        );
        assert_eq!(
            redirect_url("app:/cb", &[("error", "access_denied")], None, BASE),
            "app:/cb?error=access_denied&iss=https%3A%2F%2Fmaru.example"
        );
    }
}
