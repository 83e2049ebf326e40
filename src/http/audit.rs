//! `/api/audit`: who did what; and the note that every change leaves.

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

use super::{HubState, body, routes::RouteRule, servers::json_error};
use crate::{
    auth::{AccessRole, Principal},
    downstream::http::reply,
    observability::{
        audit::{AuditedChange, redact_body},
        journal::RequestId,
    },
};

const DEFAULT_AUDIT_LIMIT: i64 = 100;
const MAX_AUDIT_LIMIT: i64 = 1000;

/// Requests that were not let in.
#[derive(Debug, Default)]
pub struct RejectedRequests {
    unauthorized: AtomicU64,
    forbidden: AtomicU64,
}

/// Who made a change, and by which route.
pub(super) struct ChangeActor {
    pub(super) principal: Principal,
    pub(super) from: Option<IpAddr>,
    pub(super) rule: RouteRule,
}

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    limit: Option<i64>,
    before: Option<i64>,
    since: Option<i64>,
    principal: Option<String>,
    action: Option<String>,
    target: Option<String>,
    outcome: Option<String>,
    request: Option<String>,
}

/// `GET /api/audit`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Query(wanted): Query<AuditQuery>,
) -> Response {
    let filter = AuditFilter {
        before: wanted.before,
        since: wanted.since,
        principal: wanted.principal,
        action: wanted.action,
        target: wanted.target,
        outcome: wanted.outcome,
        request: wanted.request,
        limit: wanted
            .limit
            .unwrap_or(DEFAULT_AUDIT_LIMIT)
            .clamp(1, MAX_AUDIT_LIMIT),
    };
    match hub.audit.list(&filter).await {
        Ok(rows) => {
            let rows: Value = rows.iter().map(audit_row_json).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(why) => {
            tracing::error!("the audit records could not be read: {why}");
            json_error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string(), None)
        }
    }
}

/// Makes a change that is noted before it is made: what is answered with 503 because
/// the store is down was not done.
pub(super) async fn run_audited(
    hub: Arc<HubState>,
    mut router: Router,
    maker: ChangeActor,
    request: Request<Body>,
) -> Response {
    let (started, id) = (Instant::now(), RequestId::next());
    let (parts, body) = request.into_parts();
    let body = match body::read(body, hub.max_body_bytes()).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let (path, arguments) = (parts.uri.path().to_owned(), redact_body(&body));
    let request = Request::from_parts(parts, Body::from(body));
    let mut change = AuditedChange {
        principal: maker.principal.name(),
        remote_ip: maker.from,
        action: maker.rule.action(),
        target: &path,
        arguments,
        status: 0,
        duration: Duration::ZERO,
        request_id: id.to_string(),
    };
    if let Err(why) = hub.audit.begin_change(&change).await {
        tracing::error!("a change was refused because it cannot be noted: {why}");
        // Where the store is concerns nobody but the admin.
        let cause = if why.is_down() && maker.principal.role() == AccessRole::Admin {
            why.to_string()
        } else {
            "the store does not take a note of the change now".to_owned()
        };
        let why = format!("nothing was changed: {cause}; try again later");
        return json_error(StatusCode::SERVICE_UNAVAILABLE, &why, None);
    }
    let response = match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    change.status = response.status().as_u16();
    change.duration = started.elapsed();
    tracing::info!(request = %id, principal = change.principal, status = change.status, "{} {path}", maker.rule.method);
    hub.audit.finish_change(&change).await;
    response
}

impl ChangeActor {
    /// Notes that they were refused.
    pub(super) fn record_denied(&self, hub: &HubState, path: &str) {
        hub.audit.record_rejected(&AuditedChange {
            principal: self.principal.name(),
            remote_ip: self.from,
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
        "tookMicroseconds": row.took_micros,
        "request": row.request,
    })
}
