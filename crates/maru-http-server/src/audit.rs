//! `/api/audit`, and the audit records of changes over HTTP.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Query, State},
    http::{Request, StatusCode},
    response::Response,
};
use maru_store::{AuditFilter, AuditRow};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower_service::Service as _;

use super::{
    HubState,
    body::{self, RequestMemory},
    calls::time_parameter,
    routes::RouteRule,
    servers::json_error,
};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::reply;
use maru_observability::{
    audit::{AuditedChange, redact_body},
    journal::RequestId,
};
use maru_runtime::clock::now_ms;

const DEFAULT_AUDIT_LIMIT: i64 = 100;
const MAX_AUDIT_LIMIT: i64 = 1000;

/// Counts of rejected requests.
#[derive(Debug, Default)]
pub struct RejectedRequests {
    unauthorized: AtomicU64,
    forbidden: AtomicU64,
}

/// The caller of a route that changes something.
pub(super) struct ChangeActor {
    pub(super) principal: Principal,
    pub(super) remote_ip: Option<IpAddr>,
    pub(super) rule: RouteRule,
}

/// The query of `GET /api/audit`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    limit: Option<i64>,
    before: Option<i64>,
    since: Option<String>,
    until: Option<String>,
    #[serde(default)]
    failed: bool,
    principal: Option<String>,
    action: Option<String>,
    target: Option<String>,
    outcome: Option<String>,
    request: Option<String>,
}

/// `GET /api/audit`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Query(query): Query<AuditQuery>,
) -> Response {
    let filter = match query.into_filter(now_ms()) {
        Ok(filter) => filter,
        Err(message) => return json_error(StatusCode::BAD_REQUEST, &message, None),
    };
    match hub.audit.list(&filter).await {
        Ok(rows) => {
            let rows: Value = rows.iter().map(audit_row_json).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(error) => {
            tracing::error!("failed to read the audit records: {error}");
            json_error(StatusCode::SERVICE_UNAVAILABLE, &error.to_string(), None)
        }
    }
}

impl AuditQuery {
    fn into_filter(self, now: i64) -> Result<AuditFilter, String> {
        Ok(AuditFilter {
            before: self.before,
            since: time_parameter("since", self.since, now)?,
            until: time_parameter("until", self.until, now)?,
            failed: self.failed,
            principal: self.principal,
            action: self.action,
            target: self.target,
            outcome: self.outcome,
            request: self.request,
            limit: self
                .limit
                .unwrap_or(DEFAULT_AUDIT_LIMIT)
                .clamp(1, MAX_AUDIT_LIMIT),
        })
    }
}

/// Records a change in the audit log, then makes it. If it cannot be recorded because the
/// store is down, it is not made and the response is 503.
pub(super) async fn run_audited(
    hub: Arc<HubState>,
    mut router: Router,
    actor: ChangeActor,
    request: Request<Body>,
) -> Response {
    let (started, id) = (Instant::now(), RequestId::next());
    let (parts, body) = request.into_parts();
    let body = match body::read(
        &RequestMemory::of(&parts.extensions),
        body,
        hub.max_body_bytes(),
    )
    .await
    {
        Ok(body) => body,
        Err(rejection) => return rejection,
    };
    let (path, arguments) = (parts.uri.path().to_owned(), redact_body(&body));
    let request = Request::from_parts(parts, Body::from(body));
    let mut change = AuditedChange {
        principal: actor.principal.name(),
        remote_ip: actor.remote_ip,
        action: actor.rule.action(),
        target: &path,
        arguments,
        status: 0,
        duration: Duration::ZERO,
        request_id: id.to_string(),
    };
    if let Err(error) = hub.audit.begin_change(&change).await {
        tracing::error!("refused a change because it cannot be audited: {error}");
        // Only an admin may learn where the store is.
        let cause = if error.is_down() && actor.principal.role() == AccessRole::Admin {
            error.to_string()
        } else {
            "the store cannot record the change".to_owned()
        };
        let message = format!("nothing was changed: {cause}; try again later");
        return json_error(StatusCode::SERVICE_UNAVAILABLE, &message, None);
    }
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    change.status = response.status().as_u16();
    change.duration = started.elapsed();
    tracing::info!(request = %id, principal = change.principal, status = change.status, "{} {path}", actor.rule.method);
    hub.audit.finish_change(&change).await;
    response
}

impl ChangeActor {
    /// Records that the caller was refused.
    pub(super) fn record_denied(&self, hub: &HubState, path: &str) {
        hub.audit.record_rejected(&AuditedChange {
            principal: self.principal.name(),
            remote_ip: self.remote_ip,
            action: self.rule.action(),
            target: path,
            arguments: String::new(),
            status: StatusCode::FORBIDDEN.as_u16(),
            duration: Duration::ZERO,
            request_id: RequestId::next().to_string(),
        });
    }
}

impl RejectedRequests {
    pub(super) fn count(&self, status: StatusCode) {
        match status {
            StatusCode::UNAUTHORIZED => self.unauthorized.fetch_add(1, Relaxed),
            StatusCode::FORBIDDEN => self.forbidden.fetch_add(1, Relaxed),
            _ => 0,
        };
    }

    /// The counts of unauthorized and of forbidden requests.
    pub(super) fn counts(&self) -> (u64, u64) {
        (
            self.unauthorized.load(Relaxed),
            self.forbidden.load(Relaxed),
        )
    }
}

fn audit_row_json(row: &AuditRow) -> Value {
    json!({
        "id": row.id,
        "at": row.at,
        "principal": row.principal,
        "from": row.origin,
        "client": row.client,
        "action": row.action,
        "target": row.target,
        "arguments": row.arguments,
        "outcome": row.outcome,
        "error": row.call.as_ref().and_then(|it| it.error.as_deref()),
        "tookMicroseconds": row.took_micros,
        "request": row.request,
        "hub": row.hub,
    })
}
