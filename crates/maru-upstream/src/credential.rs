//! One credential for a server: the owner of its tokens in this hub. It renews them before
//! they expire, one renewal at a time, also between hubs that share the store.

mod stored_credential;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::header::HeaderValue;
use maru_oauth::{Challenge, ClientIdentity, Discovery, ScopeSet, SigningKey, TokenRequest};
use maru_runtime::clock;
use maru_store::ServerCredentialRow;
use tokio::{
    sync::{oneshot, watch},
    time::{self, Instant},
};
use tracing::{info, warn};

use super::{
    Error,
    remote_auth::{ClientCredentials, RemoteAuth},
    server::RegisteredServer,
    sign_in::SignInServices,
};

pub(super) use stored_credential::StoredCredential;
use stored_credential::{LoadedCredential, to_data};

/// How often a hub looks whether another one has renewed the tokens.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A lease that did not change for this long was left by a hub that ended. Longer than a
/// renewal may take: many issuers end the sign-in if a refresh token is used twice. The
/// store may need 19 s to answer that the lease is taken, the issuer 10 s, and the store
/// 19 s again.
const LEASE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a renewal may take, with waiting for other hubs.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(90);

/// The id of the server, and whose credential it is.
pub(super) type CredentialKey = (String, String);

/// A credential for a server: shared by all callers, or that of one.
pub(super) struct Credential {
    pub(super) server_id: String,
    pub(super) server_name: String,
    pub(super) server_url: String,
    /// Empty if all callers share the credential.
    pub(super) subject: String,
    pub(super) auth: RemoteAuth,
    pub(super) services: Arc<SignInServices>,
    state: Mutex<CredentialState>,
    /// Held during a renewal.
    renewal: tokio::sync::Mutex<()>,
    /// Counts the changes of the tokens.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct CredentialState {
    /// Whether the store was read.
    is_loaded: bool,
    current: Option<LoadedCredential>,
    /// What the server answered last to a request without a valid token.
    challenge: Challenge,
    /// Scopes that the next sign-in adds.
    needed_scopes: ScopeSet,
    /// When the last renewal failed, and why.
    failure: Option<(Instant, Error)>,
}

/// What a renewal begins with.
enum RenewalStep {
    /// The tokens are new already.
    Done,
    Refresh {
        stored: Box<StoredCredential>,
        refresh_token: String,
    },
    /// Only a new sign-in helps.
    SignIn,
}

impl Credential {
    pub(super) fn new(
        server: &RegisteredServer,
        auth: &RemoteAuth,
        subject: &str,
        services: &Arc<SignInServices>,
    ) -> Arc<Self> {
        Arc::new(Self {
            server_id: server.id.clone(),
            server_name: server.name.to_string(),
            server_url: server.transport.url().unwrap_or_default().to_owned(),
            subject: subject.to_owned(),
            auth: auth.clone(),
            services: Arc::clone(services),
            state: Mutex::default(),
            renewal: tokio::sync::Mutex::default(),
            changes: watch::Sender::default(),
        })
    }

    pub(super) fn key(&self) -> CredentialKey {
        (self.server_id.clone(), self.subject.clone())
    }

    /// Returns the header with a valid token, renewed if it is about to expire; `None`
    /// before a sign-in.
    pub(super) async fn authorization(self: &Arc<Self>) -> Result<Option<HeaderValue>, Error> {
        if !self.lock().is_loaded {
            self.load().await.map_err(store_error)?;
        }
        let (header, is_due) = {
            let state = self.lock();
            let current = state.current.as_ref();
            let is_due = current.is_some_and(LoadedCredential::is_due);
            (current.and_then(|it| it.header.clone()), is_due)
        };
        match header {
            Some(header) if is_due => match self.renew(Some(&header)).await {
                Ok(()) => Ok(self.header()),
                // The old token may still do until it expires.
                Err(_) if self.is_unexpired() => Ok(Some(header)),
                Err(error) => Err(error),
            },
            header => Ok(header),
        }
    }

    /// Returns a new token after the server refused `used`.
    pub(super) async fn on_unauthorized(
        self: &Arc<Self>,
        used: Option<&HeaderValue>,
        challenge: Challenge,
    ) -> Result<HeaderValue, Error> {
        self.lock().challenge = challenge;
        let current = self.header();
        if let (Some(current), true) = (&current, current.as_ref() != used) {
            return Ok(current.clone());
        }
        self.renew(used).await?;
        self.header().ok_or_else(|| self.sign_in_required())
    }

    /// The error after the server refused a token that was just issued.
    pub(super) fn on_new_token_refused(&self, challenge: Challenge) -> Error {
        self.lock().challenge = challenge;
        match &self.auth {
            RemoteAuth::SignIn(_) => self.sign_in_required(),
            _ => Error::Refused(
                "the server answered 401 to a token that its authorization server just issued"
                    .to_owned(),
            ),
        }
    }

    /// The error after the server refused a token that lacks a scope: a sign-in that adds
    /// it, unless it was requested before.
    pub(super) async fn on_insufficient_scope(self: &Arc<Self>, challenge: Challenge) -> Error {
        // Another hub may have signed in since.
        let _unchanged = self.load().await;
        let mut state = self.lock();
        let requested = state.current.as_ref().map(|it| &it.stored.requested);
        let needed = challenge.scope.clone().unwrap_or_default();
        let is_new = requested.is_none_or(|it| !it.contains(&needed));
        if needed.is_empty() || !is_new || !matches!(self.auth, RemoteAuth::SignIn(_)) {
            return Error::Refused(
                "the server answered 403: the account that maru signed in with has not the scopes that this needs"
                    .to_owned(),
            );
        }
        state.needed_scopes = state.needed_scopes.union(&needed);
        state.challenge = challenge;
        drop(state);
        Error::ScopeRequired(format!(
            "server {} wants further scopes for this: {needed}",
            self.server_name
        ))
    }

    /// Whether a token is there, also if another hub stored it.
    pub(super) async fn is_signed_in(&self) -> bool {
        let _store_may_be_down = self.load().await;
        self.has_token()
    }

    /// Whether the store was read and has another version now.
    pub(super) fn differs_from(&self, version: Option<i64>) -> bool {
        let state = self.lock();
        state.is_loaded && state.current.as_ref().map(|it| it.row.version) != version
    }

    /// Whether a token is known here.
    pub(super) fn has_token(&self) -> bool {
        self.header().is_some()
    }

    /// Returns what was stored last.
    pub(super) fn stored(&self) -> Option<StoredCredential> {
        self.lock().current.as_ref().map(|it| it.stored.clone())
    }

    /// Returns the server's last challenge, and the scopes that the next sign-in adds.
    pub(super) fn challenge(&self) -> (Challenge, ScopeSet) {
        let state = self.lock();
        (state.challenge.clone(), state.needed_scopes.clone())
    }

    /// Notifies of new tokens.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Stores the result of a sign-in.
    pub(super) async fn save_sign_in(&self, stored: &StoredCredential) -> Result<(), Error> {
        let store = &self.services.store;
        let saved = store
            .put_credential(&self.server_id, &self.subject, &to_data(stored))
            .await;
        self.adopt(saved.map_err(store_error)?);
        self.lock().needed_scopes = ScopeSet::default();
        Ok(())
    }

    /// Deletes the tokens here and in the store, and returns what they were.
    pub(super) async fn forget(&self) -> Result<Option<StoredCredential>, Error> {
        self.load().await.map_err(store_error)?;
        let stored = self.stored();
        let store = &self.services.store;
        let deleted = store
            .delete_credential(&self.server_id, &self.subject)
            .await;
        deleted.map_err(store_error)?;
        self.adopt(None);
        Ok(stored)
    }

    /// The error of a caller without a token.
    pub(super) fn sign_in_required(&self) -> Error {
        Error::SignInRequired(format!("server {} needs a sign-in", self.server_name))
    }

    /// Replaces the token `used`, in a task that ends even if the caller is cancelled: a
    /// refresh token that was used and whose successor is not stored would be lost.
    async fn renew(self: &Arc<Self>, used: Option<&HeaderValue>) -> Result<(), Error> {
        let (credential, used) = (Arc::clone(self), used.cloned());
        let (sender, outcome) = oneshot::channel();
        let asked_at = Instant::now();
        self.services.tasks.spawn(async move {
            let renewed = credential.renew_exclusively(used, asked_at).await;
            let _caller_may_have_left = sender.send(renewed);
        });
        let stopping = |_| Err(Error::Unreachable("the hub is stopping".to_owned()));
        outcome.await.unwrap_or_else(stopping)
    }

    async fn renew_exclusively(
        &self,
        used: Option<HeaderValue>,
        asked_at: Instant,
    ) -> Result<(), Error> {
        let _one_renewal_at_a_time = self.renewal.lock().await;
        // Those who waited for the same renewal get its outcome.
        if let Some((_, error)) = self
            .lock()
            .failure
            .clone()
            .filter(|(at, _)| *at >= asked_at)
        {
            return Err(error);
        }
        let renewed = self.renew_or_wait(used.as_ref()).await;
        self.lock().failure = renewed.clone().err().map(|error| (Instant::now(), error));
        renewed
    }

    /// Renews the tokens, or waits for the hub that does.
    async fn renew_or_wait(&self, used: Option<&HeaderValue>) -> Result<(), Error> {
        let mut seen_lease = (String::new(), Instant::now());
        let deadline = Instant::now() + RENEWAL_TIMEOUT;
        loop {
            if Instant::now() > deadline {
                let message = "another hub renews the token, and does not end";
                return Err(Error::Unreachable(message.to_owned()));
            }
            self.load().await.map_err(store_error)?;
            let Some(row) = self.row() else {
                return self.acquire_for_client().await;
            };
            let (stored, refresh_token) = match self.next_step(used) {
                RenewalStep::Done => return Ok(()),
                RenewalStep::SignIn => return self.acquire_for_client().await,
                RenewalStep::Refresh {
                    stored,
                    refresh_token,
                } => (stored, refresh_token),
            };
            if row.lease != seen_lease.0 {
                seen_lease = (row.lease.clone(), Instant::now());
            }
            let is_held = !row.lease.is_empty() && seen_lease.1.elapsed() < LEASE_TIMEOUT;
            let lease = uuid::Uuid::new_v4().to_string();
            if is_held || !self.take_lease(&row, &lease).await? {
                time::sleep(LEASE_POLL_INTERVAL).await;
                continue;
            }
            let held = ServerCredentialRow { lease, ..row };
            if self.refresh(&held, *stored, &refresh_token).await? {
                return Ok(());
            }
        }
    }

    /// Uses the refresh token under the lease `held`. Returns false if the credential was
    /// changed meanwhile, so that this refresh does not count.
    async fn refresh(
        &self,
        held: &ServerCredentialRow,
        mut stored: StoredCredential,
        refresh_token: &str,
    ) -> Result<bool, Error> {
        let request = TokenRequest {
            issuer: &stored.issuer,
            client: &stored.client,
            key: None,
            resource: stored.resource.as_deref(),
        };
        let http = &self.services.http;
        let refreshed = request.refresh(http, refresh_token, clock::now_ms()).await;
        let store = &self.services.store;
        match refreshed {
            Ok(tokens) => {
                stored.tokens = Some(tokens);
                self.save_refreshed(held.clone(), &stored).await
            }
            Err(error) if error.is_invalid_grant() || error.is_invalid_client() => {
                // Only the tokens that were refused are deleted, never those of a sign-in
                // or of another hub that came between.
                stored.tokens = None;
                let saved = store.replace_credential(held, &to_data(&stored)).await;
                let Some(saved) = saved.map_err(store_error)? else {
                    return Ok(false);
                };
                self.adopt(Some(saved));
                info!(server.name = %self.server_name, "the sign-in at server {} has ended: {error}", self.server_name);
                // maru needs no person where it is the client itself.
                self.acquire_for_client().await.map(|()| true)
            }
            Err(error) => {
                // If the lease cannot be returned, it expires.
                let _expires = store.lease_credential(held, "").await;
                warn!(server.name = %self.server_name, "the token for server {} could not be refreshed: {error}", self.server_name);
                Err(Error::Unreachable(format!(
                    "the token could not be refreshed: {error}"
                )))
            }
        }
    }

    /// Stores refreshed tokens. Returns false if a sign-in or a sign-out came between.
    async fn save_refreshed(
        &self,
        mut held: ServerCredentialRow,
        stored: &StoredCredential,
    ) -> Result<bool, Error> {
        let store = &self.services.store;
        loop {
            let saved = store.replace_credential(&held, &to_data(stored)).await;
            let saved = saved.map_err(store_error)?;
            if saved.is_some() {
                self.adopt(saved);
                return Ok(true);
            }
            self.load().await.map_err(store_error)?;
            // A hub that took over the lease too early found the refresh token used, and
            // deleted the tokens: these are their successors.
            match self.row_without_tokens(&stored.client.client_id) {
                Some(row) => held = row,
                None => return Ok(false),
            }
        }
    }

    /// Returns the row whose tokens were refused to the client.
    fn row_without_tokens(&self, client_id: &str) -> Option<ServerCredentialRow> {
        let state = self.lock();
        let current = state.current.as_ref()?;
        let is_refused =
            current.stored.tokens.is_none() && current.stored.client.client_id == client_id;
        is_refused.then(|| current.row.clone())
    }

    /// Gets a token for maru itself, where the settings name a client for that.
    async fn acquire_for_client(&self) -> Result<(), Error> {
        let RemoteAuth::ClientCredentials(settings) = &self.auth else {
            return Err(self.sign_in_required());
        };
        let failed = |error: maru_oauth::Error| match error {
            maru_oauth::Error::Transport { .. } | maru_oauth::Error::Timeout(_) => {
                Error::Unreachable(error.to_string())
            }
            error => Error::Refused(format!("maru gets no token for this server: {error}")),
        };
        let stored = self.request_for_client(settings).await.map_err(failed)?;
        self.save_sign_in(&stored).await
    }

    async fn request_for_client(
        &self,
        settings: &ClientCredentials,
    ) -> Result<StoredCredential, maru_oauth::Error> {
        let http = &self.services.http;
        let (challenge, needed) = self.challenge();
        let found = Discovery::run(http, &self.server_url, &challenge).await?;
        let key = settings.private_key.as_ref();
        let key = key
            .map(|it| SigningKey::from_pem(it.reveal()))
            .transpose()?;
        let client = if key.is_some() {
            ClientIdentity::with_private_key(&settings.client_id)
        } else {
            let secret = settings.client_secret.as_ref().map(|it| it.reveal());
            ClientIdentity::configured(&found.issuer, &settings.client_id, secret)
        };
        let own = Some(settings.scopes.clone()).filter(|it| !it.is_empty());
        let challenged = own.as_ref().or(challenge.scope.as_ref());
        let none = ScopeSet::default();
        let scope = ScopeSet::choose(challenged, found.scopes.as_ref(), &needed, &none);
        let request = TokenRequest {
            issuer: &found.issuer,
            client: &client,
            key: key.as_ref(),
            resource: found.resource.as_deref(),
        };
        let mut tokens = request
            .client_credentials(http, &scope, clock::now_ms())
            .await?;
        // Servers should not give one here. To use it takes the secret or key of the
        // settings, with which maru gets a new token as well.
        tokens.refresh_token = None;
        Ok(StoredCredential {
            server_url: self.server_url.clone(),
            resource: found.resource,
            issuer: found.issuer,
            // The settings have its secret.
            client: ClientIdentity {
                client_secret: None,
                ..client
            },
            redirect_uri: String::new(),
            requested: scope,
            tokens: Some(tokens),
        })
    }

    fn next_step(&self, used: Option<&HeaderValue>) -> RenewalStep {
        let state = self.lock();
        let Some(current) = &state.current else {
            return RenewalStep::SignIn;
        };
        let is_other = current.header.is_some() && current.header.as_ref() != used;
        if is_other && !current.is_due() {
            return RenewalStep::Done;
        }
        let tokens = current.stored.tokens.as_ref();
        match tokens.and_then(|it| it.refresh_token.clone()) {
            Some(refresh_token) => RenewalStep::Refresh {
                stored: Box::new(current.stored.clone()),
                refresh_token,
            },
            None => RenewalStep::SignIn,
        }
    }

    async fn take_lease(&self, row: &ServerCredentialRow, lease: &str) -> Result<bool, Error> {
        let taken = self.services.store.lease_credential(row, lease).await;
        taken.map_err(store_error)
    }

    /// Reads the store.
    pub(super) async fn load(&self) -> Result<(), maru_store::Error> {
        let store = &self.services.store;
        self.adopt(store.credential(&self.server_id, &self.subject).await?);
        Ok(())
    }

    /// Takes over what the store has, unless something newer is known.
    fn adopt(&self, row: Option<ServerCredentialRow>) {
        let loaded = row.and_then(|row| LoadedCredential::parse(row, &self.server_url));
        let mut state = self.lock();
        state.is_loaded = true;
        let versions = (
            state.current.as_ref().map(|it| it.row.version),
            loaded.as_ref().map(|it| it.row.version),
        );
        if let (Some(known), Some(read)) = versions
            && read < known
        {
            return;
        }
        state.current = loaded;
        drop(state);
        if versions.0 != versions.1 {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    fn row(&self) -> Option<ServerCredentialRow> {
        self.lock().current.as_ref().map(|it| it.row.clone())
    }

    fn header(&self) -> Option<HeaderValue> {
        self.lock().current.as_ref()?.header.clone()
    }

    fn is_unexpired(&self) -> bool {
        let state = self.lock();
        let tokens = state
            .current
            .as_ref()
            .and_then(|it| it.stored.tokens.as_ref());
        let expires_at = tokens.and_then(|it| it.expires_at);
        expires_at.is_some_and(|it| clock::now_ms() < it)
    }

    fn lock(&self) -> MutexGuard<'_, CredentialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error itself"
)]
pub(super) fn store_error(error: maru_store::Error) -> Error {
    warn!("a credential could not be read or written: {error}");
    Error::Unreachable("the store of credentials does not answer".to_owned())
}

impl fmt::Debug for Credential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Credential")
            .field("server", &self.server_name)
            .field("subject", &self.subject)
            .finish_non_exhaustive()
    }
}
