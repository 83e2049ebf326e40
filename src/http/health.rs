//! Whether maru is alive, and whether it can work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use maru_runtime::clock;
use serde_json::json;
use tokio::{sync::Notify, time};

use super::HubState;
use crate::{
    auth::Principal,
    downstream::http::reply,
    tools::{Caller, CatalogScope},
};

/// How long the store may take to answer a probe.
const STORE_PING_TIMEOUT: Duration = Duration::from_secs(2);
/// After which time without a probe nobody is taken to probe any more: milliseconds.
const PROBE_EXPIRY_MS: i64 = 60_000;
const OPENAPI_JSON: &str = include_str!("../../docs/openapi.json");

/// `GET /api/openapi.json`.
pub(super) async fn openapi() -> Response {
    reply::json(StatusCode::OK, OPENAPI_JSON.to_owned())
}

/// The process answers.
pub(super) async fn liveness() -> Response {
    reply::json(StatusCode::OK, json!({"status": "ok"}).to_string())
}

/// The catalog is built, the store answers, and the hub is not about to stop.
pub(super) async fn readiness(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let scope = CatalogScope::All;
    let seen = snapshot.visible_to(&Caller::new(principal, scope));
    let tools = seen.map_or(0, |view| view.tools.keys().count());
    let (status, word) = if hub.readiness.record_probe() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if store_answers(&hub).await {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "store unavailable")
    };
    let state = json!({"status": word, "tools": tools, "sessions": hub.engine.session_count()});
    reply::json(status, state.to_string())
}

async fn store_answers(hub: &HubState) -> bool {
    match time::timeout(STORE_PING_TIMEOUT, hub.store.ping()).await {
        Ok(Ok(())) => true,
        Ok(Err(why)) if why.is_down() => false,
        Ok(Err(why)) => {
            tracing::warn!("not ready: {why}");
            false
        }
        Err(_) => {
            tracing::warn!("not ready: the store did not answer within {STORE_PING_TIMEOUT:?}");
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
    drain_observed: Notify,
}

impl Readiness {
    /// Notes a probe; true if the hub drains.
    fn record_probe(&self) -> bool {
        self.last_probe.store(clock::now_ms(), Relaxed);
        let draining = self.draining.load(Relaxed);
        if draining {
            self.drain_observed.notify_one();
        }
        draining
    }

    /// Answers probes with 503 from now on. Waits until one has seen it, `limit` at
    /// most; not at all if nobody probes.
    pub async fn drain(&self, limit: Duration) {
        self.draining.store(true, Relaxed);
        let since = clock::now_ms() - self.last_probe.load(Relaxed);
        if since <= PROBE_EXPIRY_MS {
            // Late or seen, the port closes next.
            let _ = time::timeout(limit, self.drain_observed.notified()).await;
        }
    }
}
