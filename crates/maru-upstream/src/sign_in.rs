//! Signing in to servers: the link, the redirect that comes back, and signing out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_oauth::{
    AuthorizationRequest, AuthorizationResponse, ClientIdentity, ClientRegistration, Discovery,
    OAuthHttp, ScopeSet, TokenRequest,
};
use maru_runtime::{clock, tasks::Tasks};
use maru_store::{SignInRow, Store};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    RegistrationError, ServerManager,
    credential::{Credential, CredentialKey, StoredCredential, store_error},
    remote_auth::{RemoteAuth, SignInSettings},
    server::RegisteredServer,
};

/// How long a person has to sign in.
const SIGN_IN_LIFETIME: Duration = Duration::from_secs(600);
/// A link is handed out again for this long, so that callers who repeat a call start no
/// further sign-ins.
const LINK_REUSE: Duration = Duration::from_secs(300);
/// The most sign-ins in progress.
const MAX_SIGN_INS: i64 = 1000;
/// The most credentials that are kept in memory.
const MAX_CREDENTIALS: usize = 10_000;

/// Where people reach the hub when they sign in.
#[derive(Clone, Debug)]
pub struct SignInOptions {
    /// The URL of the hub, without a slash at the end.
    pub base_url: String,
    /// The URL of the client metadata document, if authorization servers can read it.
    pub document_url: Option<String>,
}

/// What signing in needs: the store, and HTTP under the address policy.
#[derive(Debug)]
pub(super) struct SignInServices {
    pub(super) store: Store,
    pub(super) http: OAuthHttp,
    pub(super) tasks: Tasks,
    options: SignInOptions,
}

/// The credentials of all servers, each with one owner in this hub.
#[derive(Debug)]
pub(super) struct CredentialRegistry {
    services: Arc<SignInServices>,
    credentials: Mutex<HashMap<CredentialKey, KnownCredential>>,
}

#[derive(Debug)]
struct KnownCredential {
    credential: Arc<Credential>,
    /// The link of the sign-in in progress.
    link: Option<(String, Instant)>,
}

/// A sign-in in progress, in the store.
#[derive(Serialize, Deserialize)]
struct PendingSignIn {
    server_name: String,
    server_id: String,
    subject: String,
    request: AuthorizationRequest,
    credential: StoredCredential,
}

/// Why a sign-in could not be started or completed.
#[derive(Debug, Error)]
pub enum SignInError {
    /// The server is unknown.
    #[error(transparent)]
    Server(#[from] RegistrationError),
    /// People do not sign in to this server.
    #[error(
        "maru does not sign in to server {0}: its auth setting or an Authorization header says how it authenticates"
    )]
    NotOffered(String),
    /// The redirect belongs to no sign-in in progress.
    #[error(
        "this sign-in was already completed, is older than ten minutes, or was never started; start again"
    )]
    UnknownState,
    /// The sign-in belongs to somebody else.
    #[error(
        "this sign-in was started elsewhere; start and complete it in one browser, or with: maru servers login NAME --own"
    )]
    OtherSubject,
    /// Too many sign-ins are in progress.
    #[error("too many sign-ins are in progress; try again in some minutes")]
    TooMany,
    /// The server or its authorization server refused or is refused.
    #[error("{0}")]
    OAuth(#[from] maru_oauth::Error),
    /// The store does not answer.
    #[error("the store of credentials does not answer; try again later")]
    Store,
}

/// Who brings the redirect of a sign-in back. Otherwise a caller could send the link of an
/// own sign-in to somebody else, and would get that person's account.
#[derive(Clone, Copy, Debug)]
pub enum SignInReturn<'a> {
    /// An authenticated caller, by the name of its credential.
    Caller(&'a str),
    /// The browser in which the sign-in was started, by a cookie.
    SameBrowser,
    /// Some browser, which only completes a sign-in for all callers.
    AnyBrowser,
}

/// A sign-in at a server.
#[derive(Clone, Debug)]
pub struct ServerSignIn {
    /// The server's name.
    pub server: String,
    /// Where the person signs in.
    pub authorization_url: String,
}

impl SignInOptions {
    /// Returns where the redirect of a sign-in comes back to.
    pub fn redirect_uri(&self) -> String {
        format!("{}/oauth/callback", self.base_url)
    }

    /// Returns the page of the hub at which a caller starts to sign in to `server`.
    pub(super) fn start_url(&self, server: &str) -> String {
        format!("{}/oauth/start/{server}", self.base_url)
    }
}

impl Default for SignInOptions {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:20006".to_owned(),
            document_url: None,
        }
    }
}

impl SignInServices {
    pub(super) fn new(store: Store, http: OAuthHttp, tasks: Tasks, options: SignInOptions) -> Self {
        Self {
            store,
            http,
            tasks,
            options,
        }
    }

    pub(super) fn options(&self) -> &SignInOptions {
        &self.options
    }
}

impl CredentialRegistry {
    pub(super) fn new(services: Arc<SignInServices>) -> Self {
        Self {
            services,
            credentials: Mutex::default(),
        }
    }

    pub(super) fn services(&self) -> &Arc<SignInServices> {
        &self.services
    }

    /// Returns the credential of `subject` for a server; `None` where maru does not sign
    /// in.
    pub(super) fn of(&self, server: &RegisteredServer, subject: &str) -> Option<Arc<Credential>> {
        let auth = server.managed_auth()?;
        let key = (server.id.clone(), subject.to_owned());
        let mut known = self
            .credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CREDENTIALS {
            // Those in use have other owners too.
            known.retain(|_, it| Arc::strong_count(&it.credential) > 1);
        }
        let entry = known.entry(key).or_insert_with(|| KnownCredential {
            credential: Credential::new(server, auth, subject, &self.services),
            link: None,
        });
        let url = server.transport.url().unwrap_or_default();
        if entry.credential.server_url != url || entry.credential.auth != *auth {
            entry.credential = Credential::new(server, auth, subject, &self.services);
            entry.link = None;
        }
        Some(Arc::clone(&entry.credential))
    }

    /// Forgets the credentials of a removed server.
    pub(super) async fn remove_server(&self, server_id: &str) -> Result<(), maru_store::Error> {
        {
            let known = self.credentials.lock();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            known.retain(|(id, _), _| id != server_id);
        }
        self.services.store.delete_credentials(server_id).await
    }

    /// Reads again the credentials that differ in the store, and returns those that were
    /// signed in or out by that.
    pub(super) async fn reload(&self) -> Result<Vec<Arc<Credential>>, maru_store::Error> {
        let stored = self.services.store.credential_versions().await?;
        let known: Vec<_> = {
            let known = self.credentials.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            let differs = |(key, it): &(&CredentialKey, &KnownCredential)| {
                it.credential.differs_from(stored.get(*key).copied())
            };
            let differing = known.iter().filter(differs);
            differing
                .map(|(_, it)| Arc::clone(&it.credential))
                .collect()
        };
        let mut changed = Vec::new();
        for credential in known {
            let was_signed_in = credential.has_token();
            credential.load().await?;
            if credential.has_token() != was_signed_in {
                changed.push(credential);
            }
        }
        Ok(changed)
    }

    /// Returns the link of a sign-in that is in progress: another hub may have completed it,
    /// and revoking the caller's token ended it.
    async fn reusable_link(&self, credential: &Credential) -> Result<Option<String>, SignInError> {
        let link = {
            let known = self.credentials.lock();
            let known = known.unwrap_or_else(PoisonError::into_inner);
            let entry = known.get(&credential.key());
            let link = entry.and_then(|it| it.link.clone());
            link.filter(|(_, made_at)| made_at.elapsed() < LINK_REUSE)
        };
        let Some((link, _)) = link else {
            return Ok(None);
        };
        let query = link.split_once('?').map(|(_, query)| query);
        let Some(hash) = query.and_then(ServerSignIn::browser_binding) else {
            return Ok(None);
        };
        let is_open = self.services.store.has_sign_in(&hash).await;
        Ok(is_open.map_err(from_store)?.then_some(link))
    }

    fn set_link(&self, key: &CredentialKey, link: Option<String>) {
        let mut known = self
            .credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = known.get_mut(key) {
            entry.link = link.map(|it| (it, Instant::now()));
        }
    }

    /// Starts a sign-in and returns its link.
    async fn begin(&self, credential: &Credential) -> Result<String, SignInError> {
        let RemoteAuth::SignIn(settings) = &credential.auth else {
            return Err(SignInError::NotOffered(credential.server_name.clone()));
        };
        let (challenge, needed) = credential.challenge();
        if needed.is_empty()
            && let Some(link) = self.reusable_link(credential).await?
        {
            return Ok(link);
        }
        let http = &self.services.http;
        let found = Discovery::run(http, &credential.server_url, &challenge).await?;
        let earlier = credential.stored();
        let earlier = earlier.filter(|it| it.issuer.issuer == found.issuer.issuer);
        let client = self
            .identify_client(settings, &found, earlier.as_ref())
            .await?;
        let own = Some(settings.scopes.clone()).filter(|it| !it.is_empty());
        let requested = match &earlier {
            Some(earlier) if !needed.is_empty() => earlier.requested.union(&needed),
            _ => needed,
        };
        let scope = ScopeSet::choose(
            own.as_ref().or(challenge.scope.as_ref()),
            found.scopes.as_ref(),
            &requested,
            &found.issuer.scopes,
        );
        let redirect_uri = self.services.options.redirect_uri();
        let request =
            AuthorizationRequest::new(&redirect_uri, scope.clone(), found.resource.as_deref());
        let link = request.link(&found.issuer, &client.client_id)?;
        let key = credential.key();
        self.save_pending(&PendingSignIn {
            server_name: credential.server_name.clone(),
            server_id: credential.server_id.clone(),
            subject: credential.subject.clone(),
            request,
            credential: StoredCredential {
                server_url: credential.server_url.clone(),
                resource: found.resource,
                issuer: found.issuer,
                client,
                redirect_uri,
                requested: scope,
                tokens: None,
            },
        })
        .await?;
        self.set_link(&key, Some(link.clone()));
        Ok(link)
    }

    /// Finds out as which client maru signs in: the one of the settings, the one that it
    /// was before at the same authorization server, or a new one.
    async fn identify_client(
        &self,
        settings: &SignInSettings,
        found: &Discovery,
        earlier: Option<&StoredCredential>,
    ) -> Result<ClientIdentity, maru_oauth::Error> {
        if let Some(id) = &settings.client_id {
            let secret = settings.client_secret.as_ref().map(|it| it.reveal());
            return Ok(ClientIdentity::configured(&found.issuer, id, secret));
        }
        let redirect_uri = self.services.options.redirect_uri();
        let earlier = earlier.filter(|it| it.redirect_uri == redirect_uri && it.tokens.is_some());
        if let Some(earlier) = earlier {
            return Ok(earlier.client.clone());
        }
        let registration = ClientRegistration {
            redirect_uri: &redirect_uri,
            document_url: self.services.options.document_url.as_deref(),
        };
        ClientIdentity::register(&self.services.http, &found.issuer, registration).await
    }

    async fn save_pending(&self, pending: &PendingSignIn) -> Result<(), SignInError> {
        let data = serde_json::to_string(pending).map_err(|_| SignInError::Store)?;
        let lifetime = i64::try_from(SIGN_IN_LIFETIME.as_millis()).unwrap_or(i64::MAX);
        let expires_at = clock::now_ms() + lifetime;
        let hash = state_hash(&pending.request.state);
        let store = &self.services.store;
        let row = SignInRow {
            state_hash: &hash,
            subject: &pending.subject,
            data: &data,
            expires_at,
        };
        let saved = store.put_sign_in(&row, MAX_SIGN_INS).await;
        if saved.map_err(from_store)? {
            Ok(())
        } else {
            Err(SignInError::TooMany)
        }
    }
}

impl SignInReturn<'_> {
    fn may_complete(self, subject: &str) -> bool {
        match self {
            Self::Caller(name) => name == subject,
            Self::SameBrowser => true,
            Self::AnyBrowser => subject.is_empty(),
        }
    }
}

impl ServerSignIn {
    /// Returns what binds a sign-in to a browser: the hash of the state in the query of its
    /// link or of its redirect.
    pub fn browser_binding(query: &str) -> Option<String> {
        let response = AuthorizationResponse::parse(query).ok()?;
        response.state().ok().map(state_hash)
    }

    /// Starts a sign-in to a server for `subject`, the name of a caller, or empty for the
    /// credential that all callers share.
    pub async fn begin(
        servers: &ServerManager,
        name: &str,
        subject: &str,
    ) -> Result<Self, SignInError> {
        let server = servers.get(name)?.server;
        let credential = servers.credentials().of(&server, subject);
        let credential = credential.ok_or_else(|| SignInError::NotOffered(name.to_owned()))?;
        let link = servers.credentials().begin(&credential).await;
        let link = link.inspect_err(|error| {
            warn!(server.name = %name, "a sign-in to server {name} could not be started: {error}");
        })?;
        Ok(Self {
            server: name.to_owned(),
            authorization_url: link,
        })
    }

    /// Completes the sign-in that the query of a redirect belongs to, and connects the
    /// server.
    pub async fn complete(
        servers: &ServerManager,
        query: &str,
        returned: SignInReturn<'_>,
    ) -> Result<String, SignInError> {
        let completed = Self::exchange(servers, query, returned).await;
        let name = completed.inspect_err(|error| {
            warn!("a sign-in was not completed: {error}");
        })?;
        // The outcome is the server's state.
        let _state = servers.connect_or_continue(&name).await;
        Ok(name)
    }

    async fn exchange(
        servers: &ServerManager,
        query: &str,
        returned: SignInReturn<'_>,
    ) -> Result<String, SignInError> {
        let registry = servers.credentials();
        let response = AuthorizationResponse::parse(query)?;
        let store = &registry.services.store;
        // Taken first, so that nobody can use it twice.
        let pending = store.take_sign_in(&state_hash(response.state()?)).await;
        let pending = pending
            .map_err(from_store)?
            .ok_or(SignInError::UnknownState)?;
        let pending: PendingSignIn =
            serde_json::from_str(&pending).map_err(|_| SignInError::UnknownState)?;
        let key = (pending.server_id.clone(), pending.subject.clone());
        registry.set_link(&key, None);
        if !returned.may_complete(&pending.subject) {
            return Err(SignInError::OtherSubject);
        }
        let mut stored = pending.credential;
        let code = pending.request.accept(&stored.issuer, &response)?;
        let request = TokenRequest {
            issuer: &stored.issuer,
            client: &stored.client,
            key: None,
            resource: stored.resource.as_deref(),
        };
        let http = &registry.services.http;
        let tokens = request
            .exchange_code(http, &pending.request, code, clock::now_ms())
            .await;
        stored.tokens = Some(tokens?);
        let server = servers.get(&pending.server_name)?.server;
        let credential = registry.of(&server, &pending.subject);
        let credential = credential
            .filter(|it| it.server_id == pending.server_id && it.server_url == stored.server_url)
            .ok_or(SignInError::UnknownState)?;
        credential
            .save_sign_in(&stored)
            .await
            .map_err(|_| SignInError::Store)?;
        info!(server.name = %pending.server_name, "signed in to server {}", pending.server_name);
        Ok(pending.server_name)
    }

    /// Signs out: deletes the tokens of `subject`, and revokes them where the
    /// authorization server offers that. Returns whether they were revoked.
    pub async fn end(
        servers: &ServerManager,
        name: &str,
        subject: &str,
    ) -> Result<bool, SignInError> {
        let registry = servers.credentials();
        let server = servers.get(name)?.server;
        let credential = registry.of(&server, subject);
        let credential = credential.ok_or_else(|| SignInError::NotOffered(name.to_owned()))?;
        let stored = credential.forget().await.map_err(|_| SignInError::Store)?;
        registry.set_link(&credential.key(), None);
        servers.handle(name)?.sign_out(subject).await;
        match stored {
            Some(stored) => Ok(revoke(&registry.services.http, &stored).await),
            None => Ok(false),
        }
    }
}

/// Revokes the tokens; a failure is logged, because they are deleted here anyway. An access
/// token that cannot be revoked, such as a signed one, ends by itself.
async fn revoke(http: &OAuthHttp, stored: &StoredCredential) -> bool {
    let Some(tokens) = &stored.tokens else {
        return false;
    };
    let request = TokenRequest {
        issuer: &stored.issuer,
        client: &stored.client,
        key: None,
        resource: None,
    };
    let access = request
        .revoke(http, &tokens.access_token, "access_token")
        .await;
    let revoked = match &tokens.refresh_token {
        Some(refresh) => request.revoke(http, refresh, "refresh_token").await,
        None => access,
    };
    revoked.unwrap_or_else(|error| {
        warn!("a token was deleted but not revoked: {error}");
        false
    })
}

fn state_hash(state: &str) -> String {
    let hash = Sha256::digest(state.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_store(error: maru_store::Error) -> SignInError {
    store_error(error);
    SignInError::Store
}
