//! OAuth 2.1 access tokens of an external authorization server.

use maru_runtime::files::{file_error_reason, read_file};
use std::{
    collections::HashMap,
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
use maru_config as config;

/// How long the issuer may take to send its keys.
const JWKS_FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Few retries, because callers wait for the keys and a later refresh follows anyway.
const MAX_JWKS_RETRIES: u32 = 1;
/// Tokens with unknown keys trigger a refresh at most this often.
const MIN_JWKS_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// How many tokens with a verified signature are cached.
const MAX_VERIFIED_TOKENS: usize = 1024;
/// How long a verified token is cached at most, in seconds.
const VERIFIED_TOKEN_SECONDS: i64 = 300;

/// Verifies access tokens of the configured issuer and maps their scopes to roles.
#[derive(Debug)]
pub struct OAuthVerifier {
    issuer: String,
    resource: String,
    scopes: [(AccessRole, Vec<String>); 3],
    jwks_source: JwksSource,
    keys: RwLock<Arc<IssuerKeys>>,
    /// When the keys were last read; `None` before the first time.
    keys_read_at: Mutex<Option<Instant>>,
    refresh_interval: Duration,
    max_key_age: Duration,
    verified: Mutex<HashMap<[u8; 32], VerifiedToken>>,
    /// Allows one refresh at a time.
    refresh_permit: Semaphore,
    last_attempt: Mutex<Option<Instant>>,
}

/// A token whose signature and claims were verified.
#[derive(Clone, Debug)]
struct VerifiedToken {
    principal: Principal,
    /// In seconds since 1970.
    valid_until: i64,
}

/// Where the issuer's keys are.
#[derive(Debug)]
enum JwksSource {
    File(PathBuf),
    Url(Box<JsonService>),
}

impl OAuthVerifier {
    /// Creates the verifier; `None` if the settings name no issuer and resource.
    pub fn new(
        settings: &config::OAuthSettings,
        policy: &AddressPolicy,
    ) -> Result<Option<Self>, String> {
        let (Some(issuer), Some(resource)) = (&settings.issuer, &settings.resource) else {
            return Ok(None);
        };
        let jwks_source = match (&settings.jwks_file, &settings.jwks_url) {
            (Some(path), _) => JwksSource::File(path.clone()),
            (None, Some(url)) => {
                let target = policy.authorize_configured(url);
                let target = target.map_err(|error| format!("oauth.jwks_url: {error}"))?;
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
            jwks_source,
            keys: RwLock::default(),
            keys_read_at: Mutex::default(),
            refresh_interval: Duration::from_millis(settings.jwks_refresh_ms),
            max_key_age: Duration::from_millis(settings.jwks_max_age_ms),
            verified: Mutex::default(),
            refresh_permit: Semaphore::new(1),
            last_attempt: Mutex::default(),
        }))
    }

    /// The protected resource metadata, which tells clients where to get a token (RFC 9728).
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

    /// The URL of the protected resource metadata.
    pub fn metadata_url(&self) -> String {
        let (scheme, rest) = self.resource.split_once("://").unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let separator = if path.is_empty() { "" } else { "/" };
        format!("{scheme}://{host}/.well-known/oauth-protected-resource{separator}{path}")
    }

    /// The scopes that map to `role`.
    pub fn scopes_of(&self, role: AccessRole) -> &[String] {
        let entry = self.scopes.iter().find(|(it, _)| *it == role);
        entry.map_or(&[], |(_, scopes)| scopes.as_slice())
    }

    /// Returns the principal of a token. After the error `UnknownKey` the caller may
    /// [`refresh`](Self::refresh) the keys and try again.
    pub(super) fn identify(&self, token: &BearerToken, hash: [u8; 32]) -> Result<Principal, Error> {
        let now = clock::now_ms() / 1000;
        // Older keys may have been withdrawn meanwhile.
        if lock(&self.keys_read_at).is_none_or(|it| it.elapsed() > self.max_key_age) {
            return Err(Error::UnknownKey);
        }
        if let Some(verified) = lock(&self.verified).get(&hash)
            && verified.valid_until > now
        {
            return Ok(verified.principal.clone());
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
            // Not for longer than a change of the keys takes to be noticed.
            valid_until: claims.expires.min(now + VERIFIED_TOKEN_SECONDS),
        };
        self.cache_verified(hash, &keys, verified);
        Ok(principal)
    }

    /// Reads the keys at every refresh interval until `stop`, so that a withdrawn key is
    /// not trusted for longer than that.
    pub async fn refresh_periodically(self: Arc<Self>, stop: CancellationToken) {
        while timeout(self.refresh_interval, stop.cancelled())
            .await
            .is_err()
        {
            self.read_keys(Duration::ZERO).await;
        }
    }

    /// Reads the keys now.
    pub async fn reload(&self) {
        self.read_keys(Duration::ZERO).await;
    }

    /// Reads the keys, unless that was tried within the last 30 seconds.
    pub async fn refresh(&self) {
        self.read_keys(MIN_JWKS_REFRESH_INTERVAL).await;
    }

    /// Reads the keys, unless that was tried less than `min_interval` ago.
    async fn read_keys(&self, min_interval: Duration) {
        let Ok(_permit) = self.refresh_permit.acquire().await else {
            return;
        };
        if lock(&self.last_attempt).is_some_and(|it| it.elapsed() < min_interval) {
            return;
        }
        *lock(&self.last_attempt) = Some(Instant::now());
        let text = match &self.jwks_source {
            JwksSource::File(path) => read_file(path).map_err(|error| file_error_reason(&error)),
            JwksSource::Url(service) => fetch_jwks(service).await,
        };
        match text.and_then(|it| IssuerKeys::parse(&it)) {
            Ok(keys) => self.replace_keys(keys),
            Err(reason) => {
                let age = lock(&self.keys_read_at).map(|it| it.elapsed().as_secs());
                let consequence = match age {
                    Some(age) if age <= self.max_key_age.as_secs() => {
                        format!("the keys read {age} s ago are used until oauth.jwks_max_age_ms")
                    }
                    _ => "no token of the issuer is accepted".to_owned(),
                };
                warn!("failed to read the keys of oauth.issuer: {reason}; {consequence}");
            }
        }
    }

    fn replace_keys(&self, keys: IssuerKeys) {
        if keys.is_empty() {
            warn!(
                "oauth.issuer lists no RSA, P-256, P-384 or Ed25519 signature key; no token of the issuer is accepted"
            );
        }
        *lock(&self.keys_read_at) = Some(Instant::now());
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if **current != keys {
            info!("the keys of oauth.issuer have been updated");
            *current = Arc::new(keys);
            drop(current);
            // Tokens of a withdrawn key must not stay valid through the cache.
            lock(&self.verified).clear();
        }
    }

    fn principal_from_claims(&self, claims: &TokenClaims) -> Result<Principal, Error> {
        let has_any = |scopes: &[String]| scopes.iter().any(|it| claims.scopes.contains(it));
        let entry = self.scopes.iter().find(|(_, scopes)| has_any(scopes));
        let (role, _) = entry.ok_or(Error::RejectedToken("none of its scopes maps to a role"))?;
        // The colon keeps the name apart from maru's own tokens, whose names have none.
        Ok(
            Principal::new(&format!("oauth:{}", claims.subject), *role, None)
                .with_claims(claims.values.clone()),
        )
    }

    fn cache_verified(&self, hash: [u8; 32], keys: &Arc<IssuerKeys>, token: VerifiedToken) {
        let now = clock::now_ms() / 1000;
        let mut verified = lock(&self.verified);
        let current = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        // If the keys were replaced meanwhile, the cache was cleared for them.
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn fetch_jwks(service: &JsonService) -> Result<Vec<u8>, String> {
    let request = ServiceRequest::get("");
    let response = service.send(&request).await.map_err(with_source)?;
    if response.status != StatusCode::OK {
        return Err(service.status_error(&request, &response).to_string());
    }
    Ok(response.body.into())
}

/// Formats an error with its sources.
fn with_source(error: json_service::Error) -> String {
    format!("{:#}", anyhow::Error::new(error))
}
