//! The documentation at `/docs`, which is the same for everybody and needs no token.

use axum::{
    body::Body,
    extract::{Path, Query},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use maru_docs::{doc_file, doc_page, search_page};
use serde::Deserialize;

const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; \
                              form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The parameters of a search.
#[derive(Debug, Default, Deserialize)]
pub(super) struct DocsQuery {
    #[serde(default)]
    q: String,
}

/// `GET /docs`.
pub(super) async fn index() -> Response {
    page_response("index")
}

/// `GET /docs/search?q=…`.
pub(super) async fn search(Query(query): Query<DocsQuery>) -> Response {
    html_response(StatusCode::OK, search_page(&query.q))
}

/// `GET /docs/{*path}`.
pub(super) async fn page(Path(path): Path<String>) -> Response {
    page_response(&path)
}

/// `GET /docs/files/{name}`: pictures and the style sheet.
pub(super) async fn file(Path(name): Path<String>) -> Response {
    match doc_file(&name) {
        Some(file) => response(StatusCode::OK, file.content_type, Body::from(file.content)),
        None => html_response(StatusCode::NOT_FOUND, search_page(&name)),
    }
}

fn page_response(path: &str) -> Response {
    match doc_page(path) {
        Some(page) => html_response(StatusCode::OK, page.html()),
        // A search for the words of the address is the most helpful answer.
        None => html_response(
            StatusCode::NOT_FOUND,
            search_page(&path.replace(['/', '-', '.'], " ")),
        ),
    }
}

fn html_response(status: StatusCode, html: impl Into<Body>) -> Response {
    response(status, "text/html; charset=utf-8", html.into())
}

fn response(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}
