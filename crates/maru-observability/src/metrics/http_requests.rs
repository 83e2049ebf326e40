//! Requests over HTTP, by route and status.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The requests of every route.
#[derive(Debug, Default)]
pub struct HttpRequestMetrics {
    requests: Family<RouteLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: &'static str,
    status: u16,
}

impl HttpRequestMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "maru_http_requests",
            "Requests over HTTP by route and status",
            self.requests.clone(),
        );
    }

    /// Counts a request; method and route are those of the route table.
    pub fn count(&self, method: &'static str, route: &'static str, status: u16) {
        let labels = RouteLabels {
            method,
            route,
            status,
        };
        self.requests.get_or_create(&labels).inc();
    }
}
