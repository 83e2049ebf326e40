//! maru's own authorization server: people allow clients to use maru, and clients get
//! tokens for that.
//!
//! An [`OAuthGrantRow`] in the store says what a person allowed. Codes and tokens are signed
//! texts that name their grant, so the store holds none of them, and any hub that shares
//! the store can check them. A grant has a generation: each use of its code or of its
//! refresh token raises it, and whoever presents an older one ends the grant.

mod authorization_request;
mod client;
mod client_registry;
mod error;
mod form;
mod redirect_uri;
mod renewal;
mod signed_secret;

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, PoisonError, RwLock},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru_oauth::OAuthHttp;
use maru_runtime::clock;
use maru_store::{OAuthGrantRow, Store};
use serde_json::{Value, json};
use tracing::warn;

pub use authorization_request::{CodeRequest, CodeRequestError, redirect_url};
pub use client::{ClientAuthentication, ClientMetadata, MetadataError, OAuthClient};
pub use client_registry::{ClientRegistry, DocumentReader};
pub use error::{ClientError, ClientRegistrationError, GrantError};
pub use form::{FormFields, encode_value};
pub use redirect_uri::{redirect_host, redirect_source};

use super::{AccessRole, BearerToken};
use maru_config::OAuthSettings;
use renewal::{CODE_GENERATION, Renewal};
use signed_secret::{SecretContent, SecretKind, SecretSigner};

/// How long a code may take from the browser to the token endpoint.
const CODE_LIFETIME_MS: i64 = 60_000;
/// How long a refresh token is valid after it was issued.
const REFRESH_LIFETIME_MS: i64 = 30 * clock::DAY_MS;
/// How many grants an account may have; the one that was not renewed for longest ends.
const MAX_GRANTS_OF_ACCOUNT: i64 = 100;

/// Issues codes and tokens.
#[derive(Debug)]
pub struct TokenIssuer {
    store: Store,
    signer: Arc<SecretSigner>,
    clients: ClientRegistry,
    base_url: String,
    scopes: [(AccessRole, Vec<String>); 3],
    access_lifetime_ms: i64,
    /// The grants that were used here.
    grants: RwLock<HashMap<String, Arc<OAuthGrantRow>>>,
    /// Held while grants are read from the store or forgotten, so that reading does not
    /// bring back one that was just revoked.
    changing: tokio::sync::Mutex<()>,
}

/// What a person decided for a client.
#[derive(Clone, Debug)]
pub struct Consent<'a> {
    /// The name of the person's account.
    pub account: &'a str,
    /// The hash of the account's token.
    pub account_hash: [u8; 32],
    /// The role at most.
    pub role: AccessRole,
    /// The servers; `None` for those of the account.
    pub servers: Option<Vec<String>>,
    /// The tools, as `server.tool`; `None` for those of the account on these servers.
    pub tools: Option<Vec<String>>,
}

/// The tokens of a response.
#[derive(Debug)]
pub struct IssuedTokens {
    /// The body of the response (RFC 6749, section 5.1).
    pub body: Value,
    /// The grant that they belong to.
    pub grant: OAuthGrantRow,
}

impl TokenIssuer {
    /// Opens the authorization server of a hub that is reached at `base_url`. The hubs of
    /// a store share the signing key.
    pub async fn open(
        store: Store,
        settings: &OAuthSettings,
        base_url: &str,
        http: OAuthHttp,
    ) -> Result<Self, maru_store::Error> {
        let signer = SecretSigner::derived_from(&store.shared_key().await?);
        let signer = Arc::new(signer);
        let reads_documents = !settings.client_hosts.is_empty();
        let clients =
            ClientRegistry::new(store.clone(), Arc::clone(&signer), http, reads_documents);
        let issuer = Self {
            store,
            signer,
            clients,
            base_url: base_url.to_owned(),
            scopes: [
                (AccessRole::Admin, settings.admin_scopes.clone()),
                (AccessRole::Agent, settings.agent_scopes.clone()),
                (AccessRole::Reader, settings.reader_scopes.clone()),
            ],
            access_lifetime_ms: i64::try_from(settings.access_token_ms).unwrap_or(i64::MAX),
            grants: RwLock::default(),
            changing: tokio::sync::Mutex::default(),
        };
        issuer.reload_grants().await?;
        Ok(issuer)
    }

    /// The issuer identifier, where the hub is reached.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The clients.
    pub fn clients(&self) -> &ClientRegistry {
        &self.clients
    }

    /// The metadata of the authorization server (RFC 8414).
    pub fn server_metadata(&self) -> Value {
        let base = &self.base_url;
        let scopes: Vec<&String> = self.scopes.iter().rev().flat_map(|(_, it)| it).collect();
        json!({
            "issuer": base,
            "authorization_endpoint": format!("{base}/oauth/authorize"),
            "token_endpoint": format!("{base}/oauth/token"),
            "registration_endpoint": format!("{base}/oauth/register"),
            "revocation_endpoint": format!("{base}/oauth/revoke"),
            "scopes_supported": scopes,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ClientAuthentication::ALL.map(ClientAuthentication::as_str),
            "revocation_endpoint_auth_methods_supported": ClientAuthentication::ALL.map(ClientAuthentication::as_str),
            "code_challenge_methods_supported": ["S256"],
            "client_id_metadata_document_supported": self.clients.reads_documents(),
            "authorization_response_iss_parameter_supported": true,
        })
    }

    /// The metadata of the resource at `path` (RFC 9728). Clients that ask for all scopes
    /// ask for what an agent may; an admin's is asked for by its name.
    pub fn resource_metadata(&self, path: &str) -> Value {
        let scopes = self.scopes.iter().rev();
        let scopes = scopes.filter(|(role, _)| *role < AccessRole::Admin);
        let scopes: Vec<&String> = scopes.flat_map(|(_, it)| it).collect();
        json!({
            "resource": format!("{}{path}", self.base_url),
            "authorization_servers": [self.base_url],
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "maru",
        })
    }

    /// The URL of the metadata of the resource at `path`.
    pub fn resource_metadata_url(&self, path: &str) -> String {
        format!(
            "{}/.well-known/oauth-protected-resource{path}",
            self.base_url
        )
    }

    /// The role that scopes ask for; an agent's where they name none.
    pub fn role_of(&self, scopes: &[String]) -> AccessRole {
        let is_named =
            |(_, own): &&(AccessRole, Vec<String>)| own.iter().any(|it| scopes.contains(it));
        let found = self.scopes.iter().find(is_named);
        found.map_or(AccessRole::Agent, |(role, _)| *role)
    }

    /// The scopes that map to `role`.
    pub fn scopes_of(&self, role: AccessRole) -> &[String] {
        let entry = self.scopes.iter().find(|(it, _)| *it == role);
        entry.map_or(&[], |(_, scopes)| scopes.as_slice())
    }

    fn scope_text(&self, role: AccessRole) -> String {
        let lower = self.scopes.iter().rev().filter(|(it, _)| *it <= role);
        let words: Vec<&str> = lower
            .flat_map(|(_, it)| it.iter().map(String::as_str))
            .collect();
        words.join(" ")
    }
}

/// Requests, consent and forms.
impl TokenIssuer {
    /// Parses a request whose redirect was checked.
    pub fn parse_request(&self, query: &FormFields) -> Result<CodeRequest, CodeRequestError> {
        CodeRequest::parse(query, &self.base_url)
    }

    /// Returns what a form must carry that belongs to the browser session with this hash
    /// and to this request.
    pub fn form_token(&self, session: &[u8; 32], query: &str) -> String {
        self.signer
            .sign(SecretKind::Form, &form_subject(session, query), 0)
    }

    /// Whether `token` is that of the form for this session and request.
    pub fn is_form_token(&self, token: &str, session: &[u8; 32], query: &str) -> bool {
        let content = self.signer.verify(SecretKind::Form, token);
        content.is_some_and(|it| it.subject == form_subject(session, query))
    }

    /// Records what a person allowed a client, and returns the code for it.
    pub async fn grant(
        &self,
        client: &OAuthClient,
        request: &CodeRequest,
        consent: &Consent<'_>,
    ) -> Result<String, maru_store::Error> {
        let now = clock::now_ms();
        let row = OAuthGrantRow {
            id: random_id(),
            account: consent.account.to_owned(),
            account_hash: consent.account_hash,
            client_id: client.id.clone(),
            client_name: client.metadata.name.clone(),
            role: consent.role.as_str().to_owned(),
            servers: consent.servers.clone(),
            tools: consent.tools.clone(),
            code_request: json!(request).to_string(),
            generation: CODE_GENERATION,
            renewed_at: now,
            expires_at: now + CODE_LIFETIME_MS,
            created_at: now,
        };
        self.store
            .expire_grants(consent.account, now, MAX_GRANTS_OF_ACCOUNT - 1)
            .await?;
        // One that another hub renewed is read again when it is used.
        self.forget(|it| it.expires_at <= now).await;
        self.store.add_grant(&row).await?;
        Ok(self.signer.sign(SecretKind::Code, &row.id, CODE_GENERATION))
    }
}

/// Tokens.
impl TokenIssuer {
    /// Answers a request to the token endpoint of an authenticated client.
    pub async fn issue_tokens(
        &self,
        client: &OAuthClient,
        form: &FormFields,
    ) -> Result<IssuedTokens, GrantError> {
        let (kind, field) = match form.get("grant_type") {
            Some("authorization_code") => (SecretKind::Code, "code"),
            Some("refresh_token") => (SecretKind::RefreshToken, "refresh_token"),
            Some(_) => return Err(GrantError::UnsupportedGrantType),
            None => return Err(GrantError::InvalidRequest("grant_type is missing")),
        };
        let secret = form.get(field);
        let secret = secret.ok_or(GrantError::InvalidRequest("the code or token is missing"))?;
        let resource = form.get("resource");
        if resource.is_some_and(|it| !authorization_request::is_own_resource(it, &self.base_url)) {
            return Err(GrantError::InvalidTarget);
        }
        let invalid = GrantError::InvalidGrant("it is not valid, was revoked, or has expired");
        let Some(content) = self.signer.verify(kind, secret) else {
            return Err(invalid);
        };
        loop {
            let row = self.store.grant(content.subject).await?;
            let now = clock::now_ms();
            let row = row.filter(|it| it.client_id == client.id && it.expires_at > now);
            let Some(row) = row else {
                return Err(invalid);
            };
            let renewal = Renewal::decide(content.number, row.generation, row.renewed_at, now);
            match renewal {
                Renewal::Replay => {
                    self.revoke_grant(&row.id).await?;
                    warn!(grant = %row.id, client = %row.client_id, "a code or refresh token of {} was used again; its access to {} has ended", row.client_name, row.account);
                    return Err(GrantError::Replayed(Box::new(row)));
                }
                Renewal::Repeat => return Ok(self.tokens_of(row, now)),
                Renewal::Renew => {
                    if kind == SecretKind::Code {
                        check_code(&row, form)?;
                    }
                    let expires_at = now + REFRESH_LIFETIME_MS;
                    if self.store.renew_grant(&row, now, expires_at).await? {
                        let generation = row.generation + 1;
                        return Ok(self.tokens_of(OAuthGrantRow { generation, ..row }, now));
                    }
                    // Another request was faster; the grant says by which token.
                }
            }
        }
    }

    fn tokens_of(&self, row: OAuthGrantRow, now: i64) -> IssuedTokens {
        let expires_at = now.saturating_add(self.access_lifetime_ms);
        let role = AccessRole::parse(&row.role).unwrap_or(AccessRole::Reader);
        let body = json!({
            "access_token": self.signer.sign(SecretKind::AccessToken, &row.id, expires_at),
            "token_type": "Bearer",
            "expires_in": self.access_lifetime_ms / 1000,
            "refresh_token": self.signer.sign(SecretKind::RefreshToken, &row.id, row.generation),
            "scope": self.scope_text(role),
        });
        IssuedTokens { body, grant: row }
    }

    /// Revokes the grant of an access or refresh token, where it belongs to the client
    /// (RFC 7009); returns it.
    pub async fn revoke_token(
        &self,
        client: &OAuthClient,
        token: &str,
    ) -> Result<Option<OAuthGrantRow>, maru_store::Error> {
        let kinds = [SecretKind::RefreshToken, SecretKind::AccessToken];
        let verified = kinds.iter().find_map(|it| self.signer.verify(*it, token));
        let Some(content) = verified else {
            return Ok(None);
        };
        let row = self.store.grant(content.subject).await?;
        let Some(row) = row.filter(|it| it.client_id == client.id) else {
            return Ok(None);
        };
        self.revoke_grant(&row.id).await?;
        Ok(Some(row))
    }

    /// Returns the grant of an access token that is valid now; `None` if it is no access
    /// token of this kind.
    pub(super) fn grant_of(
        &self,
        token: &BearerToken,
    ) -> Option<Result<Arc<OAuthGrantRow>, super::Error>> {
        let text = token.reveal();
        if !SecretKind::AccessToken.is_claimed_by(text) {
            return None;
        }
        Some(match self.signer.verify(SecretKind::AccessToken, text) {
            None => Err(super::Error::UnknownToken),
            Some(content) if content.number <= clock::now_ms() => Err(super::Error::ExpiredToken),
            Some(content) => {
                let grants = self.grants.read().unwrap_or_else(PoisonError::into_inner);
                let grant = grants.get(content.subject).cloned();
                grant.ok_or(super::Error::UnknownGrant)
            }
        })
    }

    /// Reads the grant of a signed token from the store, because another hub may have
    /// created it.
    pub(super) async fn learn_grant(&self, token: &BearerToken) {
        let verified = self.signer.verify(SecretKind::AccessToken, token.reveal());
        let Some(SecretContent { subject, .. }) = verified else {
            return;
        };
        let _one_change_at_a_time = self.changing.lock().await;
        match self.store.grant(subject).await {
            Ok(Some(row)) => {
                let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
                grants.insert(row.id.clone(), Arc::new(row));
            }
            Ok(None) => (),
            Err(error) => warn!(%error, "the grant of a token could not be read"),
        }
    }
}

/// Grants.
impl TokenIssuer {
    /// Lists the grants whose code was used, the newest first.
    pub async fn list_grants(&self) -> Result<Vec<OAuthGrantRow>, maru_store::Error> {
        let mut rows = self.store.grants().await?;
        let now = clock::now_ms();
        rows.retain(|it| it.generation > CODE_GENERATION && it.expires_at > now);
        Ok(rows)
    }

    /// Ends a grant at once; returns false if there is none.
    pub async fn revoke_grant(&self, id: &str) -> Result<bool, maru_store::Error> {
        let deleted = self.store.delete_grant(id).await?;
        self.forget(|grant| grant.id == id).await;
        Ok(deleted)
    }

    /// Deletes a client with all its grants; false if there is neither.
    pub async fn remove_client(&self, id: &str) -> Result<bool, maru_store::Error> {
        let had_grants = self.store.delete_grants_of_client(id).await?;
        self.forget(|grant| grant.client_id == id).await;
        let was_registered = self.clients.remove(id).await?;
        Ok(had_grants || was_registered)
    }

    /// Forgets the grants of an account, which were deleted.
    pub(super) async fn forget_account(&self, account: &str) {
        self.forget(|grant| grant.account == account).await;
    }

    /// Loads the grants again, because another hub may have changed them. Returns the
    /// accounts of those that ended early.
    pub async fn reload_grants(&self) -> Result<Vec<String>, maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        let rows = self.store.grants().await?.into_iter();
        let known = rows.map(|it| (it.id.clone(), Arc::new(it))).collect();
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        let before = mem::replace(&mut *grants, known);
        let now = clock::now_ms();
        let is_gone = |it: &Arc<OAuthGrantRow>| it.expires_at > now && !grants.contains_key(&it.id);
        let gone = before.into_values().filter(is_gone);
        Ok(gone.map(|it| it.account.clone()).collect())
    }

    async fn forget(&self, is_gone: impl Fn(&OAuthGrantRow) -> bool) {
        let _one_change_at_a_time = self.changing.lock().await;
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|_, it| !is_gone(it));
    }
}

/// Checks that the request which uses a code is that of the client which asked for it.
fn check_code(row: &OAuthGrantRow, form: &FormFields) -> Result<(), GrantError> {
    let request: CodeRequest = serde_json::from_str(&row.code_request)
        .map_err(|_| GrantError::InvalidGrant("the code is not valid"))?;
    let verifier = form.get("code_verifier").unwrap_or_default();
    if !request.is_verified_by(verifier) {
        return Err(GrantError::InvalidGrant("code_verifier is wrong"));
    }
    let redirect_uri = form.get("redirect_uri");
    if redirect_uri.is_some_and(|it| it != request.redirect_uri) {
        return Err(GrantError::InvalidGrant("redirect_uri is another one"));
    }
    Ok(())
}

/// What a form token is for, without dots.
fn form_subject(session: &[u8; 32], query: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::new_with_prefix(session)
        .chain_update(query)
        .finalize();
    BASE64_URL_SAFE_NO_PAD.encode(hash)
}

/// A random id for clients and grants.
fn random_id() -> String {
    BASE64_URL_SAFE_NO_PAD.encode(&BearerToken::random().hash()[..16])
}
