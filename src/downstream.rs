//! maru as a server: sessions and dispatch, and the doors that lead there.
//!
//! The engine answers; a door only carries. An answer does not wait for a
//! reader longer than its bounded queue allows, and a session that nobody
//! uses ends.

mod describe;
mod dispatch;
mod feed;
pub mod http;
mod listen;
mod modern;
mod news;
mod rounds;
mod seal;
mod session;
mod sessions;
pub mod sse;
pub mod stdio;
mod streams;

use std::sync::{Arc, PoisonError, RwLock};

use crate::{
    config::Limits,
    tasks::Tasks,
    tool::{Caller, Catalog},
};
use seal::Seal;
use session::Session;
use sessions::{Full, Sessions};

/// Answers what comes through any door.
#[derive(Debug)]
pub struct Engine {
    catalog: Arc<Catalog>,
    sessions: Sessions,
    tasks: Tasks,
    limits: RwLock<Limits>,
    seal: Seal,
}

impl Engine {
    /// An engine over `catalog`; idle sessions end while `tasks` runs.
    pub fn start(catalog: Arc<Catalog>, limits: Limits, tasks: &Tasks) -> Arc<Self> {
        let engine = Arc::new(Self {
            catalog,
            sessions: Sessions::default(),
            tasks: tasks.clone(),
            limits: RwLock::new(limits),
            seal: Seal::new(),
        });
        let reaped = Arc::clone(&engine);
        let stop = tasks.stop();
        tasks.spawn(async move {
            loop {
                let idle = reaped.limits().session_idle();
                let stopped = tokio::time::timeout(idle / 10, stop.cancelled()).await;
                if stopped.is_ok() {
                    break;
                }
                reaped.sessions.end_idle(idle);
            }
            reaped.sessions.wind_up().await;
        });
        engine
    }

    fn open_session(&self, caller: Caller) -> Result<Arc<Session>, Full> {
        self.sessions.open(caller, &self.limits(), &self.catalog)
    }

    /// What bounds requests, sessions and calls now.
    pub fn limits(&self) -> Limits {
        *self.limits.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bounds what comes from now on by `limits`.
    pub fn set_limits(&self, limits: Limits) {
        *self.limits.write().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Ends the sessions of someone whose token was taken back.
    pub fn end_sessions_of(&self, principal: &str) {
        self.sessions.end_of(principal);
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// What is on offer.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}
