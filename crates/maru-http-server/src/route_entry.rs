//! An entry of the route table: who may use it, and its handler.

use std::sync::Arc;

use axum::{
    handler::Handler,
    http::Method,
    routing::{MethodFilter, MethodRouter, on},
};

use super::{HubState, routes::RouteRule};
use maru_auth::AccessRole;

/// A row of the route table.
pub(super) struct RouteEntry {
    pub(super) rule: RouteRule,
    pub(super) handler: MethodRouter<Arc<HubState>>,
}

impl RouteEntry {
    /// The handler filters by the grants of the principal.
    pub(super) fn filtered(mut self) -> Self {
        self.rule.filters_by_grants = true;
        self
    }

    /// Requests count against the limits of the principal.
    pub(super) fn counted(mut self) -> Self {
        self.rule.counts_against_quota = true;
        self
    }
}

/// An endpoint of MCP: messages, streams and the end of a session.
pub(super) fn mcp_endpoint<H: Handler<T, Arc<HubState>>, T: 'static>(
    path: &'static str,
    handler: H,
) -> [RouteEntry; 3] {
    let entry = |method, handler| reader(method, path, handler).filtered();
    [
        entry(Method::POST, handler.clone()),
        entry(Method::GET, handler.clone()),
        entry(Method::DELETE, handler),
    ]
}

pub(super) fn public<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(None, method, path, handler)
}

pub(super) fn reader<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Reader), method, path, handler)
}

pub(super) fn agent<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Agent), method, path, handler)
}

pub(super) fn admin<H: Handler<T, Arc<HubState>>, T: 'static>(
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    route(Some(AccessRole::Admin), method, path, handler)
}

fn route<H: Handler<T, Arc<HubState>>, T: 'static>(
    min_role: Option<AccessRole>,
    method: Method,
    path: &'static str,
    handler: H,
) -> RouteEntry {
    let filter = MethodFilter::try_from(method.clone()).expect("the table has standard methods");
    let rule = RouteRule {
        method,
        path,
        min_role,
        filters_by_grants: false,
        counts_against_quota: false,
    };
    let handler = on(filter, handler);
    RouteEntry { rule, handler }
}
