//! Callers who come with a token of somebody else's authorisation server.

use std::{
    collections::HashMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{self, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Denied, Principal, Role, Token,
    jwt::{self, Claims, Expected},
    keys::Keys,
};
use crate::{
    clock, config,
    outbound::{Client, Policy, Request, Tls},
};

/// How long the issuer may take to send its keys.
const PATIENCE: Duration = Duration::from_secs(10);
/// An unknown key makes us look for new ones, but not more often than this.
const AGAIN: Duration = Duration::from_secs(30);
/// Tokens whose signature was checked are remembered.
const REMEMBERED: usize = 1024;

/// What is believed of the authorisation server.
#[derive(Debug)]
pub struct OAuth {
    issuer: String,
    resource: String,
    scopes: [(Role, Vec<String>); 3],
    place: Place,
    keys: RwLock<Arc<Keys>>,
    /// When the keys were read; absent, there are none.
    read_at: Mutex<Option<Instant>>,
    refresh_interval: Duration,
    max_key_age: Duration,
    checked: Mutex<HashMap<[u8; 32], (Principal, i64)>>,
    /// One look for new keys at a time.
    turn: Semaphore,
    looked: Mutex<Option<Instant>>,
}

/// Where the issuer's keys are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Url(Arc<Client>, String),
}

impl OAuth {
    /// What the settings ask for, if they do.
    pub fn new(settings: &config::OAuth, policy: &Policy) -> Result<Option<Self>, String> {
        let (Some(issuer), Some(resource)) = (&settings.issuer, &settings.resource) else {
            return Ok(None);
        };
        let place = match (&settings.jwks_file, &settings.jwks_url) {
            (Some(path), _) => Place::File(path.clone()),
            (None, Some(url)) => {
                let judged = policy.judge(url);
                let target = judged.map_err(|why| format!("oauth.jwks_url: {why}"))?;
                let path = target.path.clone();
                Place::Url(Client::new(target, Tls::default()), path)
            }
            (None, None) => return Err("oauth.jwks_url is missing".to_owned()),
        };
        Ok(Some(Self {
            issuer: issuer.clone(),
            resource: resource.clone(),
            scopes: [
                (Role::Admin, settings.admin_scopes.clone()),
                (Role::Agent, settings.agent_scopes.clone()),
                (Role::Reader, settings.reader_scopes.clone()),
            ],
            place,
            keys: RwLock::default(),
            read_at: Mutex::default(),
            refresh_interval: Duration::from_millis(settings.jwks_refresh_ms),
            max_key_age: Duration::from_millis(settings.jwks_max_age_ms),
            checked: Mutex::default(),
            turn: Semaphore::new(1),
            looked: Mutex::default(),
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
    pub fn scopes_of(&self, role: Role) -> &[String] {
        let found = self.scopes.iter().find(|(it, _)| *it == role);
        found.map_or(&[], |(_, scopes)| scopes.as_slice())
    }

    /// Whose token this is. The error `UnknownKey` may pass after [`refresh`](Self::refresh).
    pub(super) fn identify(&self, token: &Token, hash: [u8; 32]) -> Result<Principal, Denied> {
        let now = clock::now() / 1000;
        // Nobody knows any more whether they were withdrawn.
        if lock(&self.read_at).is_none_or(|it| it.elapsed() > self.max_key_age) {
            return Err(Denied::UnknownKey);
        }
        if let Some((principal, until)) = self.checked().get(&hash)
            && *until > now
        {
            return Ok(principal.clone());
        }
        if !jwt::looks_signed(token.reveal()) {
            return Err(Denied::Unknown);
        }
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let expected = Expected {
            issuer: &self.issuer,
            audience: &self.resource,
            now,
        };
        let claims = jwt::read(token.reveal(), &keys, &expected)?;
        let principal = self.principal(&claims)?;
        self.remember(hash, &keys, (principal.clone(), claims.expires));
        Ok(principal)
    }

    /// Reads the keys again and again, so that one which was withdrawn is not trusted
    /// for longer than the interval, until `stop`.
    pub async fn keep_fresh(self: Arc<Self>, stop: CancellationToken) {
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
        self.read_keys(AGAIN).await;
    }

    /// Reads the keys, unless that was tried less than `recent` ago.
    async fn read_keys(&self, recent: Duration) {
        let Ok(_turn) = self.turn.acquire().await else {
            return;
        };
        if lock(&self.looked).is_some_and(|it| it.elapsed() < recent) {
            return;
        }
        *lock(&self.looked) = Some(Instant::now());
        let text = match &self.place {
            Place::File(path) => fs::read(path).map_err(|error| error.kind().to_string()),
            Place::Url(client, path) => {
                let fetched = timeout(PATIENCE, fetch(client, path)).await;
                fetched.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
            }
        };
        match text.and_then(|it| Keys::read(&it)) {
            Ok(keys) => self.use_keys(keys),
            Err(why) => {
                let age = lock(&self.read_at).map(|it| it.elapsed().as_secs());
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

    fn use_keys(&self, keys: Keys) {
        if keys.is_empty() {
            warn!(
                "oauth.issuer lists no key for RS256, ES256 or EdDSA; no token of it is accepted"
            );
        }
        *lock(&self.read_at) = Some(Instant::now());
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if **current != keys {
            info!("the issuer's keys are read");
            *current = Arc::new(keys);
            drop(current);
            // A key that is gone must not live on in what it signed.
            self.checked().clear();
        }
    }

    fn principal(&self, claims: &Claims) -> Result<Principal, Denied> {
        let has = |scopes: &[String]| scopes.iter().any(|it| claims.scopes.contains(it));
        let role = self.scopes.iter().find(|(_, scopes)| has(scopes));
        let (role, _) = role.ok_or(Denied::Unfit("it has none of the scopes that maru knows"))?;
        // Names of maru's own tokens have no colon.
        Ok(Principal::new(
            &format!("oauth:{}", claims.subject),
            *role,
            None,
        ))
    }

    fn remember(&self, hash: [u8; 32], checked_by: &Arc<Keys>, entry: (Principal, i64)) {
        let now = clock::now() / 1000;
        let mut checked = self.checked();
        let current = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        // They were replaced meanwhile, and what they checked was just forgotten.
        if !Arc::ptr_eq(&current, checked_by) {
            return;
        }
        let (principal, expires) = entry;
        if checked.len() >= REMEMBERED {
            checked.retain(|_, (_, until)| *until > now);
        }
        if checked.len() < REMEMBERED {
            // Not longer than a new key takes to be seen.
            let until = expires.min(now + 300);
            checked.insert(hash, (principal, until));
        }
    }

    fn checked(&self) -> MutexGuard<'_, HashMap<[u8; 32], (Principal, i64)>> {
        lock(&self.checked)
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn fetch(client: &Arc<Client>, path: &str) -> Result<Vec<u8>, String> {
    let unusable = || "the address of the issuer cannot be asked for".to_owned();
    let host = HeaderValue::try_from(client.target().authority());
    let mut headers = HeaderMap::new();
    headers.insert(header::HOST, host.map_err(|_| unusable())?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let request = Request {
        method: &Method::GET,
        uri: &path.parse().map_err(|_| unusable())?,
        headers: &headers,
        more: &[],
        body: &Bytes::new(),
    };
    let sent = client.send(&request).await;
    let mut reply = sent.map_err(|error| error.to_string())?;
    match reply.status.as_u16() {
        200 => reply
            .text()
            .await
            .map(Into::into)
            .map_err(|error| error.to_string()),
        status => Err(format!("the issuer answered with status {status}")),
    }
}
