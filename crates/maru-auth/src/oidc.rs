//! People sign in at the company's issuer (`OpenID` Connect), and get an account by their
//! groups.

use std::fmt;

use maru_config::OidcSettings;
use maru_http::{AddressPolicy, ClientTls};
use maru_oauth::{
    AuthorizationRequest, AuthorizationResponse, AuthorizationServer, ClientIdentity, OAuthHttp,
    ScopeSet, TokenRequest, find_authorization_server,
};
use maru_runtime::clock;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::{
    AccessRole,
    jwt::{self, ExpectedClaims},
    keys::IssuerKeys,
};

/// The claims that may say how a person is called, the most readable first.
const LABEL_CLAIMS: [&str; 3] = ["email", "preferred_username", "name"];
const MAX_LABEL_CHARS: usize = 200;
/// Stands for everybody in a list of groups.
const EVERYBODY: &str = "*";

/// Signs people in at an issuer.
pub struct OidcSignIn {
    settings: OidcSettings,
    http: OAuthHttp,
    redirect_uri: String,
}

/// A sign-in that was started in a browser, which keeps it until it comes back.
#[derive(Debug)]
pub struct OidcRequest {
    /// Where the person signs in.
    pub url: String,
    /// What belongs to the sign-in.
    pub request: AuthorizationRequest,
}

/// A person that the issuer signed in.
#[derive(Debug, PartialEq, Eq)]
pub struct OidcPerson {
    /// The name of the account: `oidc:` and the issuer's identifier.
    pub name: String,
    /// How the issuer calls the person.
    pub label: String,
    /// The highest role of the person's groups.
    pub role: AccessRole,
}

/// Why a sign-in failed.
#[derive(Debug, Error)]
pub enum OidcError {
    /// The issuer refused, or is refused.
    #[error("{0}")]
    OAuth(#[from] maru_oauth::Error),
    /// The redirect belongs to no sign-in of this browser.
    #[error("this sign-in was not started in this browser, or is too old; start again")]
    UnknownState,
    /// The id token is not valid.
    #[error("the issuer's id token is refused: {0}")]
    IdToken(String),
    /// No group of the person has a role.
    #[error("none of your groups may use this hub")]
    NoRole {
        /// The name of the account that the person may have from before.
        account: String,
    },
}

impl OidcSignIn {
    /// Creates the sign-in of a hub that is reached at `base_url`; `None` if the settings
    /// name no issuer.
    pub fn new(settings: &OidcSettings, base_url: &str, mut policy: AddressPolicy) -> Option<Self> {
        let issuer = settings.issuer.as_deref()?;
        // The administrator wrote it.
        policy.allowed_hosts.extend(host_of(issuer));
        Some(Self {
            settings: settings.clone(),
            http: OAuthHttp::new(policy, ClientTls::default()),
            redirect_uri: format!("{base_url}/oauth/oidc/callback"),
        })
    }

    /// Starts a sign-in.
    pub async fn begin(&self) -> Result<OidcRequest, OidcError> {
        let server = self.server().await?;
        let scope = ScopeSet::parse(&self.settings.scopes.join(" "));
        let request = AuthorizationRequest::new(&self.redirect_uri, scope, None);
        let link = request.link(&server, self.client_id())?;
        let nonce = nonce_of(&request);
        Ok(OidcRequest {
            url: format!("{link}&nonce={nonce}"),
            request,
        })
    }

    /// Completes `request` with the query of its redirect.
    pub async fn complete(
        &self,
        request: &AuthorizationRequest,
        query: &str,
    ) -> Result<OidcPerson, OidcError> {
        let response = AuthorizationResponse::parse(query)?;
        if response.state()? != request.state {
            return Err(OidcError::UnknownState);
        }
        let server = self.server().await?;
        let code = request.accept(&server, &response)?;
        let secret = self.settings.client_secret.as_ref().map(|it| it.reveal());
        let client = ClientIdentity::configured(&server, self.client_id(), secret);
        let exchange = TokenRequest {
            issuer: &server,
            client: &client,
            key: None,
            resource: None,
        };
        let now = clock::now_ms();
        let tokens = exchange
            .exchange_code(&self.http, request, code, now)
            .await?;
        let refused = |reason: &str| OidcError::IdToken(reason.to_owned());
        let token = tokens.id_token.ok_or_else(|| refused("there is none"))?;
        let jwks = server.jwks_uri.as_deref();
        let jwks = jwks.ok_or_else(|| refused("the issuer publishes no keys"))?;
        let keys = self
            .http
            .read_document("the keys of the issuer", jwks)
            .await?;
        let keys = IssuerKeys::parse(keys.to_string().as_bytes()).map_err(OidcError::IdToken)?;
        let expected = ExpectedClaims {
            issuer: &server.issuer,
            audience: self.client_id(),
            now: now / 1000,
        };
        let claims = jwt::verified_claims(&token, &keys, &expected)
            .map_err(|error| refused(&error.to_string()))?;
        if claims["nonce"] != nonce_of(request) {
            return Err(refused("it is that of another sign-in"));
        }
        self.person_of(&claims)
    }

    fn person_of(&self, claims: &Value) -> Result<OidcPerson, OidcError> {
        let subject = claims["sub"].as_str().unwrap_or_default();
        let groups = texts(&claims[self.settings.groups_claim.as_str()]);
        let account = format!("oidc:{subject}");
        let Some(role) = role_of(&groups, &self.settings) else {
            return Err(OidcError::NoRole { account });
        };
        let label = LABEL_CLAIMS.iter().find_map(|it| claims[*it].as_str());
        let label = label.unwrap_or(subject).chars();
        let label = label.filter(|it| !it.is_control()).take(MAX_LABEL_CHARS);
        Ok(OidcPerson {
            name: account,
            label: label.collect(),
            role,
        })
    }

    async fn server(&self) -> Result<AuthorizationServer, OidcError> {
        let issuer = self.settings.issuer.as_deref().unwrap_or_default();
        let mut server = find_authorization_server(&self.http, issuer).await?;
        // Several issuers check proof keys without saying so, and others ignore them: the
        // nonce binds the token to the sign-in as well.
        server.supports_s256 = true;
        Ok(server)
    }

    fn client_id(&self) -> &str {
        self.settings.client_id.as_deref().unwrap_or_default()
    }
}

/// The highest role that one of `groups` has.
fn role_of(groups: &[&str], settings: &OidcSettings) -> Option<AccessRole> {
    let has = |listed: &[String]| {
        let mut listed = listed.iter();
        listed.any(|it| it == EVERYBODY || groups.contains(&it.as_str()))
    };
    let lists = [
        (AccessRole::Admin, &settings.admin_groups),
        (AccessRole::Agent, &settings.agent_groups),
        (AccessRole::Reader, &settings.reader_groups),
    ];
    let found = lists.into_iter().find(|(_, listed)| has(listed));
    found.map(|(role, _)| role)
}

/// The texts of a claim that is one or a list of them.
fn texts(claim: &Value) -> Vec<&str> {
    match claim {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The nonce of a sign-in, by which its id token is told from others.
fn nonce_of(request: &AuthorizationRequest) -> String {
    let hash = Sha256::digest(request.verifier.as_bytes());
    let hash = Sha256::digest(hash);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(authority.to_owned()).filter(|it| !it.contains('@'))
}

impl fmt::Debug for OidcSignIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OidcSignIn")
            .field("issuer", &self.settings.issuer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_role_of_the_groups_counts_and_no_group_means_no_role() {
        let list = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let settings = OidcSettings {
            admin_groups: list(&["platform"]),
            agent_groups: list(&["staff", "platform"]),
            reader_groups: Vec::new(),
            ..OidcSettings::default()
        };
        let check = |groups: &[&str], role| assert_eq!(role_of(groups, &settings), role);
        check(&["staff"], Some(AccessRole::Agent));
        check(&["staff", "platform"], Some(AccessRole::Admin));
        check(&["Staff", "guests"], None);
        check(&[], None);
        let open = OidcSettings {
            reader_groups: list(&["*"]),
            ..settings
        };
        assert_eq!(role_of(&[], &open), Some(AccessRole::Reader));
    }
}
