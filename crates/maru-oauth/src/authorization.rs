//! One sign-in by authorization code: the link, and the check of the redirect that comes
//! back. Pure but for randomness.

use std::fmt;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::{
    Error, metadata::AuthorizationServer, pkce::code_challenge, random_token, scope::ScopeSet,
    transport::is_error_code, web_url::encode_form,
};

const REDIRECT: &str = "the redirect of the sign-in";
/// Longer queries are refused.
const MAX_QUERY_BYTES: usize = 8 << 10;

/// A sign-in in progress. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorizationRequest {
    /// Comes back with the redirect and identifies the sign-in.
    pub state: String,
    /// The secret whose hash is in the link.
    pub verifier: String,
    /// Where the redirect comes back to.
    pub redirect_uri: String,
    /// The requested scopes.
    pub scope: ScopeSet,
    /// The resource that the token is for.
    pub resource: Option<String>,
}

/// The query of a redirect.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthorizationResponse {
    state: Option<String>,
    code: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl AuthorizationRequest {
    /// Starts a sign-in with a new state and verifier.
    pub fn new(redirect_uri: &str, scope: ScopeSet, resource: Option<&str>) -> Self {
        Self {
            state: random_token(),
            verifier: random_token(),
            redirect_uri: redirect_uri.to_owned(),
            scope,
            resource: resource.map(str::to_owned),
        }
    }

    /// Returns the link at which a person signs in.
    pub fn link(&self, issuer: &AuthorizationServer, client_id: &str) -> Result<String, Error> {
        let what = "the metadata of the authorization server";
        let endpoint = issuer.authorization_endpoint.as_deref();
        let endpoint =
            endpoint.ok_or_else(|| Error::invalid(what, "it names no authorization_endpoint"))?;
        if !issuer.supports_s256 {
            return Err(Error::invalid(what, "it does not offer PKCE with S256"));
        }
        let (challenge, scope) = (code_challenge(&self.verifier), self.scope.to_string());
        let mut parameters = vec![
            ("response_type", "code"),
            ("client_id", client_id),
            ("redirect_uri", &self.redirect_uri),
            ("state", &self.state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        if !scope.is_empty() {
            parameters.push(("scope", &scope));
        }
        if self.scope.has_offline_access() {
            // OpenID Connect gives a refresh token only with explicit consent.
            parameters.push(("prompt", "consent"));
        }
        if let Some(resource) = &self.resource {
            parameters.push(("resource", resource));
        }
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{}", encode_form(&parameters)))
    }

    /// Checks that `response` belongs to this sign-in at `issuer`, and returns its code.
    pub fn accept<'a>(
        &self,
        issuer: &AuthorizationServer,
        response: &'a AuthorizationResponse,
    ) -> Result<&'a str, Error> {
        let invalid = |reason: &str| Err(Error::invalid(REDIRECT, reason));
        if response.state.as_deref() != Some(self.state.as_str()) {
            return invalid("its state is that of another sign-in");
        }
        // Compared byte by byte, as RFC 9207 demands, also where it was not announced.
        match &response.issuer {
            Some(named) if *named != issuer.issuer => {
                return invalid("it comes from another authorization server");
            }
            None if issuer.sends_issuer => {
                return invalid("it does not name the authorization server it comes from");
            }
            _ => (),
        }
        match (&response.error, &response.code) {
            (Some(code), _) => Err(Error::Denied {
                what: "the sign-in",
                code: Some(code)
                    .filter(|it| is_error_code(it))
                    .map_or("unknown error", String::as_str)
                    .to_owned(),
            }),
            (None, Some(code)) => Ok(code),
            (None, None) => invalid("it has no code"),
        }
    }
}

impl AuthorizationResponse {
    /// Parses the query of a redirect. A parameter that occurs twice is refused.
    pub fn parse(query: &str) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::invalid(REDIRECT, reason);
        if query.len() > MAX_QUERY_BYTES {
            return Err(invalid("it is too long"));
        }
        let mut response = Self::default();
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "state" => &mut response.state,
                "code" => &mut response.code,
                "iss" => &mut response.issuer,
                "error" => &mut response.error,
                _ => continue,
            };
            let spaced = value.replace('+', " ");
            let decoded = percent_decode_str(&spaced).decode_utf8();
            let decoded = decoded.map_err(|_| invalid("it is not UTF-8"))?;
            if slot.replace(decoded.into_owned()).is_some() {
                return Err(invalid("a parameter occurs twice"));
            }
        }
        Ok(response)
    }

    /// Returns the state, which identifies the sign-in.
    pub fn state(&self) -> Result<&str, Error> {
        let state = self.state.as_deref().filter(|it| !it.is_empty());
        state.ok_or_else(|| Error::invalid(REDIRECT, "it has no state"))
    }
}

impl fmt::Debug for AuthorizationRequest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AuthorizationRequest")
            .field("redirect_uri", &self.redirect_uri)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AuthorizationResponse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("AuthorizationResponse")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer() -> AuthorizationServer {
        AuthorizationServer {
            sends_issuer: true,
            ..AuthorizationServer::default_of("https://i.example")
        }
    }

    #[test]
    fn link_carries_challenge_state_scope_and_resource() {
        let request = AuthorizationRequest::new(
            "http://127.0.0.1:9/oauth/callback",
            ScopeSet::parse("a b"),
            Some("https://a.example/mcp"),
        );
        let link = request.link(&issuer(), "me").unwrap();
        assert!(link.starts_with("https://i.example/authorize?response_type=code&client_id=me&"));
        for part in [
            "code_challenge_method=S256",
            "scope=a%20b",
            "resource=https%3A%2F%2Fa.example%2Fmcp",
            "redirect_uri=http%3A%2F%2F127.0.0.1%3A9%2Foauth%2Fcallback",
            request.state.as_str(),
        ] {
            assert!(link.contains(part), "{part}");
        }
        assert!(!link.contains(&request.verifier));
        let mut without = issuer();
        without.supports_s256 = false;
        assert!(request.link(&without, "me").is_err());
    }

    #[test]
    fn only_the_redirect_of_this_sign_in_is_accepted() {
        let request = AuthorizationRequest {
            state: "s".to_owned(),
            ..AuthorizationRequest::new("http://localhost/", ScopeSet::default(), None)
        };
        let check = |query: &str, announced: bool| {
            let mut issuer = issuer();
            issuer.sends_issuer = announced;
            let response = AuthorizationResponse::parse(query)?;
            request.accept(&issuer, &response).map(str::to_owned)
        };
        assert_eq!(
            check("state=s&code=c%20d&iss=https%3A%2F%2Fi.example", true).unwrap(),
            "c d"
        );
        assert_eq!(check("code=c&state=s", false).unwrap(), "c");
        for (query, announced) in [
            ("code=c", true),
            ("code=c", false),
            ("state=&code=c", false),
            ("state=other&code=c&iss=https://i.example", true),
            ("state=s&code=c", true),
            ("state=s&code=c&iss=https://evil.example", true),
            ("state=s&code=c&iss=https://evil.example", false),
            ("state=s&code=c&iss=https://i.example/", true),
            ("state=s&code=c&iss=HTTPS://i.example", true),
            ("state=s&state=s&code=c&iss=https://i.example", true),
            ("state=s&code=c&code=d&iss=https://i.example", true),
            ("state=s&iss=https://i.example", true),
            (
                "state=s&error=access_denied&code=c&iss=https://i.example",
                true,
            ),
            ("state=s&code=%ff&iss=https://i.example", true),
        ] {
            assert!(check(query, announced).is_err(), "{query}");
        }
        let denied = check("state=s&error=%3Cscript%3E&iss=https://i.example", true);
        assert!(denied.unwrap_err().to_string().ends_with(": unknown error"));
        assert!(AuthorizationResponse::parse(&"x".repeat(9000)).is_err());
    }
}
