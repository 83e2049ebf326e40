//! The sessions that are open.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ahash::AHashMap;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use thiserror::Error;

use super::{feed::Feed, news::News, session::Session};
use crate::{
    access::Principal,
    config::Limits,
    queue,
    tool::{Caller, Catalog},
};

/// Every open session by its id.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: Mutex<AHashMap<String, Arc<Session>>>,
}

/// No more sessions can be opened now.
#[derive(Debug, Error)]
#[error("{0} sessions are open and in use, which is the limit; end one or try again later")]
pub(super) struct Full(usize);

impl Sessions {
    /// Opens a session. A caller with as many as it may have loses the one it
    /// has not used for longest.
    pub(super) fn open(
        &self,
        caller: Caller,
        limits: &Limits,
        catalog: &Catalog,
    ) -> Result<Arc<Session>, Full> {
        let mut open = self.lock();
        let own: Vec<&Arc<Session>> = open
            .values()
            .filter(|it| it.caller.principal == caller.principal)
            .collect();
        if own.len() >= share(&caller.principal, limits) || open.len() >= limits.max_sessions {
            let idle = own
                .iter()
                .filter_map(|it| Some((it.idle_time()?, it.id.clone())));
            let (_, longest) = idle.max().ok_or(Full(own.len()))?;
            if let Some(session) = open.remove(&longest) {
                session.close();
            }
        }
        let session = Arc::new(detached(caller, limits.max_calls_per_session, catalog));
        open.insert(session.id.clone(), Arc::clone(&session));
        Ok(session)
    }

    /// The session with this id, if it is this principal's.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Option<Arc<Session>> {
        let session = self.lock().get(id).cloned()?;
        (session.caller.principal == *principal).then_some(session)
    }

    /// Ends a session and everything it runs.
    pub(super) fn end(&self, id: &str) {
        if let Some(session) = self.lock().remove(id) {
            session.close();
        }
    }

    /// Ends every session of the principal of this name.
    pub(super) fn end_of(&self, principal: &str) {
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

    /// Ends every session, each as soon as what it runs is done.
    pub(super) async fn wind_up(&self) {
        let all: Vec<Arc<Session>> = self.lock().values().cloned().collect();
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

    fn lock(&self) -> MutexGuard<'_, AHashMap<String, Arc<Session>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody takes all sessions: a token has its share, and the programs of this
/// machine leave some for tokens.
fn share(principal: &Principal, limits: &Limits) -> usize {
    let max = limits.max_sessions;
    if principal.is_local() {
        (max - max / 10).max(1)
    } else {
        limits.max_sessions_per_token.min(max)
    }
}

/// A session that is not in any table; it ends with its last user.
pub(super) fn detached(caller: Caller, max_running: usize, catalog: &Catalog) -> Session {
    let (out, messages) = queue::channel();
    let session = Session::new(random_id(), caller.clone(), out, max_running);
    let news = News::new(catalog, caller, session.wanted.clone());
    session.streams.park(Feed::standalone(messages, news), 0);
    session
}

fn random_id() -> String {
    let mut bytes = [0_u8; 24];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
