//! Liveness and readiness probes, and the `OpenAPI` document.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use maru_runtime::clock;
use serde_json::{Map, Value, json};
use tokio::{sync::Notify, time};

use super::HubState;
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_tools::{Caller, CatalogScope};

/// How long the store may take to answer a probe.
const STORE_PING_TIMEOUT: Duration = Duration::from_secs(2);
/// A shutdown waits for a probe only if the last one was within this time.
const PROBE_EXPIRY_MS: i64 = 60_000;

/// `GET /api/openapi.json`.
pub(super) async fn openapi() -> Response {
    reply::json(StatusCode::OK, maru_docs::OPENAPI_JSON.to_owned())
}

/// `GET /healthz`: the process responds.
pub(super) async fn liveness() -> Response {
    reply::json(StatusCode::OK, json!({"status": "ok"}).to_string())
}

/// `GET /readyz`: the store answers, and the hub is not about to stop.
pub(super) async fn readiness(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let scope = CatalogScope::All;
    let visible = snapshot.visible_to(&Caller::new(principal, scope));
    let tools = visible.map_or(0, |view| view.tools.keys().count());
    let (status, state, reason) = if hub.readiness.record_probe() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining", None)
    } else {
        let failure = ping_store(&hub).await.err();
        let grace = hub.engine.limits().store_grace();
        match failure {
            None => {
                hub.readiness.store_failed_at.store(0, Relaxed);
                (StatusCode::OK, "ready", None)
            }
            Some(reason) if hub.readiness.failed_within(grace) => {
                (StatusCode::OK, "ready", Some(reason))
            }
            Some(reason) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store unavailable",
                Some(reason),
            ),
        }
    };
    let mut body = json!({"status": state, "tools": tools, "sessions": hub.engine.session_count()});
    if let Some(reason) = reason {
        body["reason"] = reason.into();
    }
    let unreachable = unreachable_sources(&hub);
    if !unreachable.is_empty() {
        body["unreachable_sources"] = unreachable.into();
    }
    reply::json(status, body.to_string())
}

/// The sources that could not be reached when they were last tried, and why. The hub
/// works without them.
fn unreachable_sources(hub: &HubState) -> Map<String, Value> {
    let data = hub.sources.context();
    let failed = data
        .sources
        .iter()
        .filter_map(|it| Some((it.name().to_owned(), it.connect_error()?.to_string().into())));
    failed.collect()
}

/// Whether the store answers, or why not.
async fn ping_store(hub: &HubState) -> Result<(), String> {
    match time::timeout(STORE_PING_TIMEOUT, hub.store.ping()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            if !error.is_down() {
                tracing::warn!("not ready: {error}");
            }
            Err(error
                .connect_error()
                .map_or_else(|| error.public_message(), ToString::to_string))
        }
        Err(_) => {
            let reason = format!("the store did not answer within {STORE_PING_TIMEOUT:?}");
            tracing::warn!("not ready: {reason}");
            Err(reason)
        }
    }
}

/// Whether the hub accepts requests or drains, as `/readyz` reports it.
#[derive(Debug, Default)]
pub struct Readiness {
    draining: AtomicBool,
    /// When the last probe came, in milliseconds since 1970.
    last_probe: AtomicI64,
    /// When a probe first found that the store does not answer; 0 while it does.
    store_failed_at: AtomicI64,
    /// Notified when a probe has seen that the hub drains.
    drain_observed: Notify,
}

impl Readiness {
    /// Records a probe; returns whether the hub drains.
    fn record_probe(&self) -> bool {
        self.last_probe.store(clock::now_ms(), Relaxed);
        let draining = self.draining.load(Relaxed);
        if draining {
            self.drain_observed.notify_one();
        }
        draining
    }

    /// Records that the store does not answer; returns whether that began within `grace`.
    fn failed_within(&self, grace: Duration) -> bool {
        let now = clock::now_ms();
        let began = self
            .store_failed_at
            .compare_exchange(0, now, Relaxed, Relaxed)
            .map_or_else(|it| it, |_| now);
        u64::try_from(now - began).is_ok_and(|it| u128::from(it) < grace.as_millis())
    }

    /// Answers probes with 503 from now on, and waits until one has seen it, for at most
    /// `max_wait`. Does not wait if nobody probes.
    pub async fn drain(&self, max_wait: Duration) {
        self.draining.store(true, Relaxed);
        let since_last_probe = clock::now_ms() - self.last_probe.load(Relaxed);
        if since_last_probe <= PROBE_EXPIRY_MS {
            // The shutdown continues in both cases.
            let _ = time::timeout(max_wait, self.drain_observed.notified()).await;
        }
    }
}
