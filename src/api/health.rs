//! Whether maru is alive, and whether it can work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::json;
use tokio::{sync::Notify, time};

use super::Hub;
use crate::{
    access::Principal,
    clock,
    downstream::http::reply,
    tool::{Caller, Scope},
};

/// How long the store may take to answer a probe.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// After which time without a probe nobody is taken to probe any more: milliseconds.
const PROBER_GONE: i64 = 60_000;
const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// `GET /api/openapi.json`.
pub(super) async fn openapi() -> Response {
    reply::json(StatusCode::OK, OPENAPI.to_owned())
}

/// The process answers.
pub(super) async fn alive() -> Response {
    reply::json(StatusCode::OK, json!({"status": "ok"}).to_string())
}

/// The catalog is built, the store answers, and the hub is not about to stop.
pub(super) async fn ready(
    State(hub): State<Arc<Hub>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let scope = Scope::All;
    let seen = snapshot.seen(&Caller::new(principal, scope));
    let tools = seen.map_or(0, |view| view.tools.keys().count());
    let (status, word) = if hub.readiness.probed() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if store_answers(&hub).await {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "store unavailable")
    };
    let state = json!({"status": word, "tools": tools, "sessions": hub.engine.session_count()});
    reply::json(status, state.to_string())
}

async fn store_answers(hub: &Hub) -> bool {
    match time::timeout(STORE_TIMEOUT, hub.store.ping()).await {
        Ok(Ok(())) => true,
        Ok(Err(why)) => {
            tracing::warn!("not ready: {why}");
            false
        }
        Err(_) => {
            tracing::warn!("not ready: the store did not answer within {STORE_TIMEOUT:?}");
            false
        }
    }
}

/// Whether the hub takes requests, for whoever probes `/readyz`.
#[derive(Debug, Default)]
pub struct Readiness {
    draining: AtomicBool,
    /// When it was probed last, in milliseconds since 1970.
    last_probe: AtomicI64,
    /// Told when a probe has seen that the hub drains.
    noticed: Notify,
}

impl Readiness {
    /// Notes a probe; true if the hub drains.
    fn probed(&self) -> bool {
        self.last_probe.store(clock::now(), Relaxed);
        let draining = self.draining.load(Relaxed);
        if draining {
            self.noticed.notify_one();
        }
        draining
    }

    /// Answers probes with 503 from now on. Waits until one has seen it, `limit` at
    /// most; not at all if nobody probes.
    pub async fn drain(&self, limit: Duration) {
        self.draining.store(true, Relaxed);
        let since = clock::now() - self.last_probe.load(Relaxed);
        if since <= PROBER_GONE {
            // Late or seen, the port closes next.
            let _ = time::timeout(limit, self.noticed.notified()).await;
        }
    }
}
