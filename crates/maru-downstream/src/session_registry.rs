//! All open sessions.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ahash::AHashMap;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru_runtime::message_queue;
use thiserror::Error;

use super::{catalog_changes::CatalogChanges, feed::MessageFeed, session::McpSession};
use maru_auth::Principal;
use maru_config::LimitSettings;
use maru_tools::{Caller, Catalog};

/// Every open session by its id.
#[derive(Debug, Default)]
pub(super) struct SessionRegistry {
    open: Mutex<AHashMap<String, Arc<McpSession>>>,
}

/// No more sessions can be opened now.
#[derive(Debug, Error)]
#[error("{0} sessions are open and in use, which is the limit; end one or try again later")]
pub(super) struct TooManySessions(usize);

impl SessionRegistry {
    /// Registers a session, unless one with its id is open. A caller at its limit loses
    /// the session that was idle longest.
    pub(super) fn register(
        &self,
        session: McpSession,
        limits: &LimitSettings,
    ) -> Result<Arc<McpSession>, TooManySessions> {
        let caller = &session.caller;
        let mut open = self.lock();
        if let Some(same) = open.get(&session.id) {
            return Ok(Arc::clone(same));
        }
        let own: Vec<&Arc<McpSession>> = open
            .values()
            .filter(|it| it.caller.principal == caller.principal)
            .collect();
        if own.len() >= session_share(&caller.principal, limits)
            || open.len() >= limits.max_sessions
        {
            let idle = own.iter().filter_map(|it| Some((it.idle_time()?, *it)));
            let longest = idle.max_by_key(|(time, _)| *time);
            let (_, longest) = longest.ok_or(TooManySessions(own.len()))?;
            let longest = Arc::clone(longest);
            open.remove(&longest.id);
            longest.close();
        }
        let session = Arc::new(session);
        open.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// The session with this id, if it belongs to this principal.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Option<Arc<McpSession>> {
        let session = self.lock().get(id).cloned()?;
        (session.caller.principal == *principal).then_some(session)
    }

    /// The session with this id, for a hub that knows that its caller may use it.
    pub(super) fn get(&self, id: &str) -> Option<Arc<McpSession>> {
        self.lock().get(id).cloned()
    }

    /// Ends a session and cancels its requests.
    pub(super) fn end(&self, id: &str) {
        if let Some(session) = self.lock().remove(id) {
            session.close();
        }
    }

    /// Ends every session of the principal of this name.
    pub(super) fn end_by_principal(&self, principal: &str) {
        self.lock().retain(|_, session| {
            let theirs = session.caller.principal.name() == principal;
            if theirs {
                session.close();
            }
            !theirs
        });
    }

    pub(super) fn end_idle(&self, limit: Duration) {
        self.lock().retain(|_, session| {
            let idle = session.is_idle(limit);
            if idle {
                session.close();
            }
            !idle
        });
    }

    /// Ends every session, each as soon as its requests have finished.
    pub(super) async fn drain_all(&self) {
        let all: Vec<Arc<McpSession>> = self.lock().values().cloned().collect();
        for session in &all {
            session.closing.cancel();
        }
        for session in all {
            session.drain().await;
            self.end(&session.id);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, AHashMap<String, Arc<McpSession>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many sessions a principal may have. A token has its own limit; callers without a
/// token, on this machine, leave a tenth for tokens.
fn session_share(principal: &Principal, limits: &LimitSettings) -> usize {
    let max = limits.max_sessions;
    if principal.is_local() {
        (max - max / 10).max(1)
    } else {
        limits.max_sessions_per_token.min(max)
    }
}

/// A session that is not registered; it ends when it is dropped.
pub(super) fn detached_session(
    caller: Caller,
    limits: &LimitSettings,
    catalog: &Catalog,
) -> McpSession {
    let (out, messages) = message_queue::channel();
    let session = McpSession::new(random_id(), caller.clone(), out, limits);
    let changes = CatalogChanges::new(catalog, caller, session.subscriptions.clone());
    session
        .streams
        .park(MessageFeed::standalone(messages, changes), 0);
    session
}

fn random_id() -> String {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
