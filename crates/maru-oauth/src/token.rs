//! Requests to the token and revocation endpoints, and their responses.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    AuthorizationRequest, ClientIdentity, Error, OAuthHttp, SigningKey,
    metadata::AuthorizationServer, scope::ScopeSet, transport::PostBody, web_url::encode_form,
};

const TOKEN_RESPONSE: &str = "the token response";
/// Longer tokens are refused, because they would not fit into a request's head.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// Longer lifetimes are cut to this.
const MAX_LIFETIME_SECONDS: f64 = 366.0 * 86_400.0;

/// The tokens of one credential. `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSet {
    /// The access token.
    pub access_token: String,
    /// The refresh token, if the authorization server gave one.
    pub refresh_token: Option<String>,
    /// When the access token was issued, in milliseconds since 1970.
    pub issued_at: i64,
    /// When the access token expires, in milliseconds since 1970, if that is known.
    pub expires_at: Option<i64>,
    /// The granted scopes, if the response names them.
    pub scope: Option<ScopeSet>,
    /// Who signed in, of an `OpenID` issuer; it is used at once and not stored.
    #[serde(skip)]
    pub id_token: Option<String>,
}

/// A request to the token endpoint.
#[derive(Clone, Copy, Debug)]
pub struct TokenRequest<'a> {
    /// The authorization server.
    pub issuer: &'a AuthorizationServer,
    /// The client.
    pub client: &'a ClientIdentity,
    /// The key of a client that authenticates by one.
    pub key: Option<&'a SigningKey>,
    /// The resource that the token is for.
    pub resource: Option<&'a str>,
}

impl TokenSet {
    /// Parses a token response that arrived at `now`, in milliseconds since 1970.
    fn parse(response: &Value, now: i64) -> Result<Self, Error> {
        let invalid = |reason: &str| Error::invalid(TOKEN_RESPONSE, reason);
        let token = |name: &str| match response[name].as_str() {
            Some(token) if !is_token(token) => Err(invalid("a token in it is not valid")),
            token => Ok(token.map(str::to_owned)),
        };
        let kind = response["token_type"].as_str().unwrap_or_default();
        if !kind.eq_ignore_ascii_case("bearer") {
            return Err(invalid("its token_type is not Bearer"));
        }
        let access_token = token("access_token")?;
        let lifetime = match &response["expires_in"] {
            Value::String(text) => text.parse().ok(),
            number => number.as_f64(),
        };
        let lifetime = lifetime.filter(|it| *it >= 0.0);
        let lifetime = lifetime.map(|it| (it.min(MAX_LIFETIME_SECONDS) * 1000.0) as i64);
        Ok(Self {
            access_token: access_token.ok_or_else(|| invalid("it has no access_token"))?,
            refresh_token: token("refresh_token")?,
            issued_at: now,
            expires_at: lifetime.map(|it| now + it),
            scope: response["scope"].as_str().map(ScopeSet::parse),
            id_token: token("id_token")?,
        })
    }

    /// When the token should be refreshed, in milliseconds since 1970: before it expires,
    /// by a fifth of its life, at most half a minute.
    pub fn renew_at(&self) -> Option<i64> {
        let expires_at = self.expires_at?;
        let life = expires_at - self.issued_at;
        Some(expires_at - (life / 5).clamp(0, 30_000))
    }
}

impl TokenRequest<'_> {
    /// Exchanges the code of `sign_in`.
    pub async fn exchange_code(
        &self,
        http: &OAuthHttp,
        sign_in: &AuthorizationRequest,
        code: &str,
        now: i64,
    ) -> Result<TokenSet, Error> {
        let form = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code.to_owned()),
            ("code_verifier", sign_in.verifier.clone()),
            ("redirect_uri", sign_in.redirect_uri.clone()),
        ];
        self.send(http, form, now).await
    }

    /// Exchanges a refresh token. A response without a new one keeps the old one.
    pub async fn refresh(
        &self,
        http: &OAuthHttp,
        refresh_token: &str,
        now: i64,
    ) -> Result<TokenSet, Error> {
        let form = vec![
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh_token.to_owned()),
        ];
        let mut tokens = self.send(http, form, now).await?;
        tokens
            .refresh_token
            .get_or_insert_with(|| refresh_token.to_owned());
        Ok(tokens)
    }

    /// Requests a token for the client itself.
    pub async fn client_credentials(
        &self,
        http: &OAuthHttp,
        scope: &ScopeSet,
        now: i64,
    ) -> Result<TokenSet, Error> {
        let mut form = vec![("grant_type", "client_credentials".to_owned())];
        if !scope.is_empty() {
            form.push(("scope", scope.to_string()));
        }
        self.send(http, form, now).await
    }

    /// Revokes a token where the authorization server offers that (RFC 7009). Returns
    /// whether it was revoked.
    pub async fn revoke(&self, http: &OAuthHttp, token: &str, hint: &str) -> Result<bool, Error> {
        let what = "the revocation";
        let Some(endpoint) = &self.issuer.revocation_endpoint else {
            return Ok(false);
        };
        let mut form = vec![
            ("token", token.to_owned()),
            ("token_type_hint", hint.to_owned()),
        ];
        let header = self.client.authenticate(self.issuer, self.key, &mut form)?;
        let body = PostBody::Form(to_form(&form));
        let response = http.post(what, endpoint, header, body).await?;
        match response.status {
            200..=299 => Ok(true),
            _ => response.into_success(what).map(|_| true),
        }
    }

    async fn send(
        &self,
        http: &OAuthHttp,
        mut form: Vec<(&'static str, String)>,
        now: i64,
    ) -> Result<TokenSet, Error> {
        if let Some(resource) = self.resource {
            form.push(("resource", resource.to_owned()));
        }
        let header = self.client.authenticate(self.issuer, self.key, &mut form)?;
        let body = PostBody::Form(to_form(&form));
        let what = "the token";
        let response = http
            .post(what, &self.issuer.token_endpoint, header, body)
            .await?;
        TokenSet::parse(&response.into_success(what)?, now)
    }
}

fn to_form(form: &[(&'static str, String)]) -> String {
    let pairs: Vec<(&str, &str)> = form
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    encode_form(&pairs)
}

/// Whether a token can be sent in a header.
fn is_token(token: &str) -> bool {
    (1..=MAX_TOKEN_BYTES).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Debug for TokenSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TokenSet")
            .field("expires_at", &self.expires_at)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn token_responses_are_parsed_strictly() {
        let parse = |response: Value| TokenSet::parse(&response, 1000);
        let good = json!({"access_token": "a", "token_type": "bearer", "expires_in": 5, "refresh_token": "r"});
        let tokens = parse(good).unwrap();
        assert_eq!(
            (tokens.expires_at, tokens.renew_at()),
            (Some(6000), Some(5000))
        );
        assert!(!format!("{tokens:?}").contains("\"r\""));
        let text = json!({"access_token": "a", "token_type": "Bearer", "expires_in": "3600"});
        assert_eq!(parse(text).unwrap().renew_at(), Some(1000 + 3_570_000));
        let eternal = json!({"access_token": "a", "token_type": "Bearer"});
        assert_eq!(parse(eternal).unwrap().renew_at(), None);
        for bad in [
            json!({"token_type": "Bearer"}),
            json!({"access_token": "a"}),
            json!({"access_token": "a", "token_type": "DPoP"}),
            json!({"access_token": "a\r\nx: y", "token_type": "Bearer"}),
            json!({"access_token": "", "token_type": "Bearer"}),
            json!({"access_token": "x".repeat(20_000), "token_type": "Bearer"}),
            json!({"access_token": "a", "token_type": "Bearer", "refresh_token": "한"}),
        ] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
        for odd in [json!(-1), json!("x"), json!(null), json!([])] {
            let response = json!({"access_token": "a", "token_type": "Bearer", "expires_in": odd});
            assert_eq!(parse(response).unwrap().expires_at, None);
        }
        let long = json!({"access_token": "a", "token_type": "Bearer", "expires_in": 1e300});
        assert!(parse(long).unwrap().expires_at.is_some());
    }
}
