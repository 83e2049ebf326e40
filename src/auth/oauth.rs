//! Callers who come with a token of somebody else's authorisation server.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use hyper::StatusCode;
use maru_http::{AddressPolicy, ClientTls, JsonService, ServiceRequest, json_service};
use maru_runtime::clock;
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    AccessRole, BearerToken, Error, Principal,
    jwt::{self, ExpectedClaims, TokenClaims},
    keys::IssuerKeys,
};
use crate::config;

/// How long the issuer may take to send its keys.
const JWKS_FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Callers wait for the keys, and they are read again later anyway.
const MAX_JWKS_RETRIES: u32 = 1;
/// An unknown key makes us look for new ones, but not more often than this.
const MIN_JWKS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Tokens whose signature was checked are remembered.
const MAX_VERIFIED_TOKENS: usize = 1024;
/// How long a verified token is trusted without checking it again.
const VERIFIED_TOKEN_SECONDS: i64 = 300;

/// What is believed of the authorisation server.
#[derive(Debug)]
pub struct OAuthVerifier {
    issuer: String,
    resource: String,
    scopes: [(AccessRole, Vec<String>); 3],
    jwks_source: JwksSource,
    keys: RwLock<Arc<IssuerKeys>>,
    /// When the keys were read; absent, there are none.
    keys_read_at: Mutex<Option<Instant>>,
    refresh_interval: Duration,
    max_key_age: Duration,
    /// Tokens whose signature was checked recently, by their hash.
    verified: Mutex<HashMap<[u8; 32], VerifiedToken>>,
    /// One look for new keys at a time.
    refresh_permit: Semaphore,
    last_attempt: Mutex<Option<Instant>>,
}

/// Where the issuer's keys are.
#[derive(Debug)]
enum JwksSource {
    File(PathBuf),
    Url(Box<JsonService>),
}

/// A token whose signature and claims were checked.
#[derive(Debug)]
struct VerifiedToken {
    principal: Principal,
    /// In seconds since the Unix epoch.
    valid_until: i64,
}

impl OAuthVerifier {
    /// What the settings ask for, if they do.
    pub fn new(
        settings: &config::OAuthSettings,
        policy: &AddressPolicy,
    ) -> Result<Option<Self>, String> {
        let (Some(issuer), Some(resource)) = (&settings.issuer, &settings.resource) else {
            return Ok(None);
        };
        let place = match (&settings.jwks_file, &settings.jwks_url) {
            (Some(path), _) => JwksSource::File(path.clone()),
            (None, Some(url)) => {
                let target = policy.authorize_configured(url);
                let target = target.map_err(|why| format!("oauth.jwks_url: {why}"))?;
                let service = JsonService::new(target, ClientTls::default(), JWKS_FETCH_TIMEOUT);
                JwksSource::Url(Box::new(service.with_max_retries(MAX_JWKS_RETRIES)))
            }
            (None, None) => return Err("oauth.jwks_url is missing".to_owned()),
        };
        Ok(Some(Self {
            issuer: issuer.clone(),
            resource: resource.clone(),
            scopes: [
                (AccessRole::Admin, settings.admin_scopes.clone()),
                (AccessRole::Agent, settings.agent_scopes.clone()),
                (AccessRole::Reader, settings.reader_scopes.clone()),
            ],
            jwks_source: place,
            keys: RwLock::default(),
            keys_read_at: Mutex::default(),
            refresh_interval: Duration::from_millis(settings.jwks_refresh_ms),
            max_key_age: Duration::from_millis(settings.jwks_max_age_ms),
            verified: Mutex::default(),
            refresh_permit: Semaphore::new(1),
            last_attempt: Mutex::default(),
        }))
    }

    /// What clients are told of where to get a token (RFC 9728).
    pub fn metadata(&self) -> Value {
        let scopes = self.scopes.iter().rev().flat_map(|(_, scopes)| scopes);
        json!({
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "scopes_supported": scopes.collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
            "resource_name": "maru",
        })
    }

    /// Where that is told.
    pub fn metadata_url(&self) -> String {
        let (scheme, rest) = self.resource.split_once("://").unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let gap = if path.is_empty() { "" } else { "/" };
        format!("{scheme}://{host}/.well-known/oauth-protected-resource{gap}{path}")
    }

    /// Scopes that make someone a `role`.
    pub fn scopes_of(&self, role: AccessRole) -> &[String] {
        let found = self.scopes.iter().find(|(it, _)| *it == role);
        found.map_or(&[], |(_, scopes)| scopes.as_slice())
    }

    /// Whose token this is. The error `UnknownKey` may pass after [`refresh`](Self::refresh).
    pub(super) fn identify(&self, token: &BearerToken, hash: [u8; 32]) -> Result<Principal, Error> {
        let now = clock::now_ms() / 1000;
        // Nobody knows any more whether they were withdrawn.
        if lock(&self.keys_read_at).is_none_or(|it| it.elapsed() > self.max_key_age) {
            return Err(Error::UnknownKey);
        }
        if let Some(token) = self.lock_verified().get(&hash)
            && token.valid_until > now
        {
            return Ok(token.principal.clone());
        }
        if !jwt::is_jwt(token.reveal()) {
            return Err(Error::UnknownToken);
        }
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let expected = ExpectedClaims {
            issuer: &self.issuer,
            audience: &self.resource,
            now,
        };
        let claims = jwt::verify(token.reveal(), &keys, &expected)?;
        let principal = self.principal_from_claims(&claims)?;
        let verified = VerifiedToken {
            principal: principal.clone(),
            // Not longer than a withdrawn key may stay unnoticed.
            valid_until: claims.expires.min(now + VERIFIED_TOKEN_SECONDS),
        };
        self.cache_verified(hash, &keys, verified);
        Ok(principal)
    }

    /// Reads the keys again and again, so that one which was withdrawn is not trusted
    /// for longer than the interval, until `stop`.
    pub async fn refresh_periodically(self: Arc<Self>, stop: CancellationToken) {
        while timeout(self.refresh_interval, stop.cancelled())
            .await
            .is_err()
        {
            self.read_keys(Duration::ZERO).await;
        }
    }

    /// Reads the keys again now.
    pub async fn reload(&self) {
        self.read_keys(Duration::ZERO).await;
    }

    /// Looks for new keys, unless somebody just did.
    pub async fn refresh(&self) {
        self.read_keys(MIN_JWKS_REFRESH_INTERVAL).await;
    }

    /// Reads the keys, unless that was tried less than `recent` ago.
    async fn read_keys(&self, recent: Duration) {
        let Ok(_turn) = self.refresh_permit.acquire().await else {
            return;
        };
        if lock(&self.last_attempt).is_some_and(|it| it.elapsed() < recent) {
            return;
        }
        *lock(&self.last_attempt) = Some(Instant::now());
        let text = match &self.jwks_source {
            JwksSource::File(path) => fs::read(path).map_err(|error| error.kind().to_string()),
            JwksSource::Url(service) => fetch_jwks(service).await,
        };
        match text.and_then(|it| IssuerKeys::parse(&it)) {
            Ok(keys) => self.replace_keys(keys),
            Err(why) => {
                let age = lock(&self.keys_read_at).map(|it| it.elapsed().as_secs());
                let kept = match age {
                    Some(age) if age <= self.max_key_age.as_secs() => {
                        format!("those read {age} s ago are kept until oauth.jwks_max_age_ms")
                    }
                    _ => "no token of the issuer is accepted".to_owned(),
                };
                warn!("the keys of oauth.issuer could not be read: {why}; {kept}");
            }
        }
    }

    fn replace_keys(&self, keys: IssuerKeys) {
        if keys.is_empty() {
            warn!(
                "oauth.issuer lists no RSA, P-256, P-384 or Ed25519 key for signatures; no token of it is accepted"
            );
        }
        *lock(&self.keys_read_at) = Some(Instant::now());
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if **current != keys {
            info!("the issuer's keys are read");
            *current = Arc::new(keys);
            drop(current);
            // A key that is gone must not live on in what it signed.
            self.lock_verified().clear();
        }
    }

    fn principal_from_claims(&self, claims: &TokenClaims) -> Result<Principal, Error> {
        let has = |scopes: &[String]| scopes.iter().any(|it| claims.scopes.contains(it));
        let role = self.scopes.iter().find(|(_, scopes)| has(scopes));
        let (role, _) = role.ok_or(Error::RejectedToken(
            "it has none of the scopes that maru knows",
        ))?;
        // Names of maru's own tokens have no colon.
        Ok(Principal::new(
            &format!("oauth:{}", claims.subject),
            *role,
            None,
        ))
    }

    fn cache_verified(&self, hash: [u8; 32], keys: &Arc<IssuerKeys>, token: VerifiedToken) {
        let now = clock::now_ms() / 1000;
        let mut verified = self.lock_verified();
        let current = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        // The keys were replaced meanwhile, and the cache was cleared with them.
        if !Arc::ptr_eq(&current, keys) {
            return;
        }
        if verified.len() >= MAX_VERIFIED_TOKENS {
            verified.retain(|_, it| it.valid_until > now);
        }
        if verified.len() < MAX_VERIFIED_TOKENS {
            verified.insert(hash, token);
        }
    }

    fn lock_verified(&self) -> MutexGuard<'_, HashMap<[u8; 32], VerifiedToken>> {
        lock(&self.verified)
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn fetch_jwks(service: &JsonService) -> Result<Vec<u8>, String> {
    let request = ServiceRequest::get("");
    let answer = service.send(&request).await;
    match answer.map_err(with_source)? {
        answer if answer.status == StatusCode::OK => Ok(answer.body.into()),
        answer => Err(service.status_error(&request, &answer).to_string()),
    }
}

/// An error and what caused it.
fn with_source(error: json_service::Error) -> String {
    format!("{:#}", anyhow::Error::new(error))
}
