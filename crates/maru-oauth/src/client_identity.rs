//! maru as a client of an authorization server: how it is known there and how it
//! authenticates.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hyper::header::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Error, OAuthHttp, assertion::SigningKey, metadata::AuthorizationServer, transport::PostBody,
    web_url::encode,
};

const REGISTRATION: &str = "the client registration";
/// Longer ids and secrets are refused.
const MAX_IDENTITY_BYTES: usize = 4096;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// How a client authenticates at the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthMethod {
    /// It does not: a public client.
    None,
    /// Id and secret in the `Authorization` header.
    ClientSecretBasic,
    /// Id and secret in the form.
    ClientSecretPost,
    /// A signed JWT (RFC 7523).
    PrivateKeyJwt,
}

/// A client of an authorization server. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// The client id.
    pub client_id: String,
    /// The client secret, if the client has one.
    pub client_secret: Option<String>,
    /// How it authenticates.
    pub method: ClientAuthMethod,
}

/// How maru may be known at an authorization server that does not know it yet.
#[derive(Clone, Copy, Debug)]
pub struct ClientRegistration<'a> {
    /// Where the authorization server sends people back to.
    pub redirect_uri: &'a str,
    /// The public URL of maru's client metadata document.
    pub document_url: Option<&'a str>,
}

impl ClientIdentity {
    /// The client of the settings, with the method that the authorization server accepts.
    pub fn configured(issuer: &AuthorizationServer, id: &str, secret: Option<&str>) -> Self {
        Self {
            client_id: id.to_owned(),
            client_secret: secret.map(str::to_owned),
            method: secret_method(issuer, secret.is_some()),
        }
    }

    /// A client that authenticates with a private key.
    pub fn with_private_key(id: &str) -> Self {
        Self {
            client_id: id.to_owned(),
            client_secret: None,
            method: ClientAuthMethod::PrivateKeyJwt,
        }
    }

    /// Makes maru known to `issuer`: by its metadata document where both sides can, else
    /// by dynamic registration.
    pub async fn register(
        http: &OAuthHttp,
        issuer: &AuthorizationServer,
        registration: ClientRegistration<'_>,
    ) -> Result<Self, Error> {
        if let (true, Some(url)) = (issuer.supports_client_documents, registration.document_url) {
            return Ok(Self {
                client_id: url.to_owned(),
                client_secret: None,
                method: ClientAuthMethod::None,
            });
        }
        let endpoint = issuer.registration_endpoint.as_deref();
        let endpoint = endpoint.ok_or(Error::NoRegistration)?;
        let mut request = client_metadata(registration.redirect_uri);
        request["token_endpoint_auth_method"] = preferred_method(issuer).into();
        let response = http
            .post(REGISTRATION, endpoint, None, PostBody::Json(request))
            .await?;
        Self::parse(issuer, &response.into_success(REGISTRATION)?)
    }

    fn parse(issuer: &AuthorizationServer, response: &Value) -> Result<Self, Error> {
        let text = |name: &str| response[name].as_str();
        let is_short = |it: &&str| (1..=MAX_IDENTITY_BYTES).contains(&it.len());
        let id = text("client_id").filter(is_short);
        let id = id.ok_or_else(|| Error::invalid(REGISTRATION, "it has no valid client_id"))?;
        let secret = text("client_secret").filter(is_short);
        let method = match (text("token_endpoint_auth_method"), secret) {
            (Some("client_secret_basic"), Some(_)) => ClientAuthMethod::ClientSecretBasic,
            (Some("client_secret_post"), Some(_)) => ClientAuthMethod::ClientSecretPost,
            (Some("none"), _) => ClientAuthMethod::None,
            (_, secret) => secret_method(issuer, secret.is_some()),
        };
        Ok(Self {
            client_id: id.to_owned(),
            client_secret: secret.map(str::to_owned),
            method,
        })
    }

    /// Authenticates a request to the token or revocation endpoint: adds form parameters,
    /// and returns the `Authorization` header if there is one.
    pub(super) fn authenticate(
        &self,
        issuer: &AuthorizationServer,
        key: Option<&SigningKey>,
        form: &mut Vec<(&'static str, String)>,
    ) -> Result<Option<HeaderValue>, Error> {
        let invalid = |reason: &str| Error::invalid("the client of the server's settings", reason);
        let secret = self.client_secret.as_deref().unwrap_or_default();
        match self.method {
            ClientAuthMethod::ClientSecretBasic => {
                let pair = format!("{}:{}", encode(&self.client_id), encode(secret));
                let header = format!("Basic {}", BASE64_STANDARD.encode(pair));
                let header = HeaderValue::from_str(&header);
                return header.map(Some).map_err(|_| invalid("it cannot be sent"));
            }
            ClientAuthMethod::ClientSecretPost => form.push(("client_secret", secret.to_owned())),
            ClientAuthMethod::PrivateKeyJwt => {
                let key = key.ok_or_else(|| invalid("auth.private_key is missing"))?;
                let assertion = key.sign_assertion(&self.client_id, &issuer.issuer)?;
                form.push(("client_assertion_type", ASSERTION_TYPE.to_owned()));
                form.push(("client_assertion", assertion));
            }
            ClientAuthMethod::None => (),
        }
        form.push(("client_id", self.client_id.clone()));
        Ok(None)
    }
}

/// The client metadata document that maru serves, whose URL is its client id.
pub fn client_document(document_url: &str, redirect_uri: &str) -> Value {
    let mut document = client_metadata(redirect_uri);
    document["client_id"] = document_url.into();
    document["token_endpoint_auth_method"] = "none".into();
    document
}

fn client_metadata(redirect_uri: &str) -> Value {
    // OpenID Connect lets only native clients return to this machine by http.
    let kind = if redirect_uri.starts_with("https://") {
        "web"
    } else {
        "native"
    };
    json!({
        "client_name": "maru",
        "application_type": kind,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    })
}

fn preferred_method(issuer: &AuthorizationServer) -> &'static str {
    ["client_secret_basic", "client_secret_post", "none"]
        .into_iter()
        .find(|it| issuer.accepts(it))
        .unwrap_or("client_secret_basic")
}

fn secret_method(issuer: &AuthorizationServer, has_secret: bool) -> ClientAuthMethod {
    if !has_secret {
        ClientAuthMethod::None
    } else if issuer.accepts("client_secret_post") && !issuer.accepts("client_secret_basic") {
        ClientAuthMethod::ClientSecretPost
    } else {
        ClientAuthMethod::ClientSecretBasic
    }
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ClientIdentity")
            .field("client_id", &self.client_id)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(methods: Option<&[&str]>) -> AuthorizationServer {
        AuthorizationServer {
            auth_methods: methods.map(|it| it.iter().map(|it| (*it).to_owned()).collect()),
            ..AuthorizationServer::default_of("https://i.example")
        }
    }

    #[test]
    fn registered_client_authenticates_as_both_sides_can() {
        use ClientAuthMethod::{ClientSecretBasic, ClientSecretPost, None as Public};
        let check = |methods: Option<&[&str]>, response: Value, expected| {
            let client = ClientIdentity::parse(&issuer(methods), &response).unwrap();
            assert_eq!(client.method, expected, "{response}");
        };
        check(
            None,
            json!({"client_id": "a", "client_secret": "b"}),
            ClientSecretBasic,
        );
        check(
            Some(&["client_secret_post"]),
            json!({"client_id": "a", "client_secret": "b"}),
            ClientSecretPost,
        );
        check(
            Some(&["client_secret_post"]),
            json!({"client_id": "a"}),
            Public,
        );
        let stated =
            json!({"client_id": "a", "client_secret": "b", "token_endpoint_auth_method": "none"});
        check(None, stated, Public);
        let without_secret =
            json!({"client_id": "a", "token_endpoint_auth_method": "client_secret_basic"});
        check(None, without_secret, Public);
        for bad in [
            json!({}),
            json!({"client_id": ""}),
            json!({"client_id": "x".repeat(5000)}),
        ] {
            assert!(ClientIdentity::parse(&issuer(None), &bad).is_err());
        }
    }

    #[test]
    fn secrets_are_escaped_in_the_header_and_not_shown() {
        let client = ClientIdentity::configured(&issuer(None), "a:b", Some("s&cret"));
        let mut form = Vec::new();
        let header = client
            .authenticate(&issuer(None), None, &mut form)
            .unwrap()
            .unwrap();
        let expected = format!("Basic {}", BASE64_STANDARD.encode("a%3Ab:s%26cret"));
        assert_eq!(header.to_str().unwrap(), expected);
        assert!(form.is_empty());
        assert!(!format!("{client:?}").contains("s&cret"));
    }
}
