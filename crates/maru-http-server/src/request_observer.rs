//! Counts every HTTP request by its response, and runs its handler in a span.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    http::{HeaderMap, Method},
    response::Response,
};
use tracing::Span;

use super::routes::RouteRule;
use maru_observability::{
    metrics::{HubMetrics, OTHER_NAMES},
    telemetry::{self, spans},
};

/// The future of a response, which is counted when it is ready.
#[derive(Debug)]
pub struct ObservedResponse<F> {
    response: F,
    observer: RequestObserver,
}

/// The metrics and the span of one request.
#[derive(Debug)]
pub(super) struct RequestObserver {
    metrics: Arc<HubMetrics>,
    method: &'static str,
    route: &'static str,
    span: Span,
}

impl RequestObserver {
    /// Creates the observer. Only authenticated `POST` requests have a span.
    pub(super) fn new(
        metrics: &Arc<HubMetrics>,
        rule: Option<&RouteRule>,
        headers: &HeaderMap,
    ) -> Self {
        let route = rule.map_or(OTHER_NAMES, |it| it.path);
        let is_traced = rule.is_some_and(|it| it.method == Method::POST && it.min_role.is_some());
        let span = if is_traced && telemetry::is_enabled() {
            spans::http_request(&Method::POST, route, headers)
        } else {
            Span::none()
        };
        Self {
            metrics: Arc::clone(metrics),
            method: rule.map_or(OTHER_NAMES, |it| method_name(&it.method)),
            route,
            span,
        }
    }

    pub(super) fn observe<F>(self, response: F) -> ObservedResponse<F> {
        ObservedResponse {
            response,
            observer: self,
        }
    }

    /// The span of the request.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }
}

impl<F> Future for ObservedResponse<F>
where
    F: Future<Output = Result<Response, Infallible>> + Unpin,
{
    type Output = Result<Response, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { response, observer } = &mut *self;
        let _entered = observer.span.enter();
        let response = ready!(Pin::new(response).poll(context));
        let status = match &response {
            Ok(response) => response.status(),
            Err(never) => match *never {},
        };
        spans::record_http_status(&observer.span, status);
        let (method, route) = (observer.method, observer.route);
        let requests = &observer.metrics.http_requests;
        requests.count(method, route, status.as_u16());
        Poll::Ready(response)
    }
}

/// The name of a method of the route table, as a metric label.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => OTHER_NAMES,
    }
}
