//! The files of the console, which are built beforehand and part of the binary.

use std::sync::{Arc, LazyLock};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::super::HubState;
use crate::downstream::http::reply;

/// Stands in the page for what is only known when it is asked for.
const NONCE_PLACEHOLDER: &str = "__CSP_NONCE__";
const PAGE: &str = "index.html";

/// Every file by its name; written by the build of the console.
const FILES: &[(&str, &[u8])] = include!("../../../console/dist/files.rs");

/// One digest over every file: names stay, addresses change with the build.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha256::new();
    for (name, content) in FILES {
        digest.update(name);
        digest.update(content);
    }
    BASE64_URL_SAFE_NO_PAD.encode(&digest.finalize()[..9])
});

/// Names the build of the console.
#[cfg(not(debug_assertions))]
pub(super) fn build() -> String {
    BUILD.clone()
}

/// The same while maru is being worked on: the files on disk are shown.
#[cfg(debug_assertions)]
pub(super) fn build() -> String {
    let changed = std::fs::metadata(on_disk(PAGE)).and_then(|it| it.modified());
    let since = changed.map(|it| it.duration_since(std::time::UNIX_EPOCH));
    match since {
        Ok(Ok(since)) => format!("d{}", since.as_millis()),
        _ => BUILD.clone(),
    }
}

#[cfg(not(debug_assertions))]
fn content(name: &str) -> Option<Bytes> {
    let (_, content) = FILES.iter().find(|it| it.0 == name)?;
    Some(Bytes::from_static(content))
}

#[cfg(debug_assertions)]
fn content(name: &str) -> Option<Bytes> {
    let is_plain = !name.contains(['/', '\\']);
    let fresh = is_plain
        .then(|| std::fs::read(on_disk(name)).ok())
        .flatten();
    fresh.map(Bytes::from)
}

#[cfg(debug_assertions)]
fn on_disk(name: &str) -> String {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/console/dist");
    match name {
        PAGE => format!("{directory}/{name}"),
        _ => format!("{directory}/assets/{name}"),
    }
}

/// `GET /` and every address of a page.
pub(in crate::http) async fn page(State(_): State<Arc<HubState>>) -> Response {
    let mut bytes = [0; 18];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    let nonce = BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let page = content(PAGE).unwrap_or_default();
    let text = String::from_utf8_lossy(&page)
        .replace("./assets/", &format!("/assets/v/{}/", build()))
        .replace(NONCE_PLACEHOLDER, &nonce);
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; \
         img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = file_response("index.html", Bytes::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// `GET /assets/v/{build}/{name}`. A page of an older build must not get a file
/// of this one: it is told that there is none, and loads itself anew.
pub(in crate::http) async fn asset(Path((wanted, name)): Path<(String, String)>) -> Response {
    let (Some(content), true) = (content(&name), wanted == build() && name != PAGE) else {
        return reply::reject(StatusCode::NOT_FOUND, "there is no such file in this build");
    };
    let mut response = file_response(&name, content);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, forever);
    response
}

fn file_response(name: &str, content: Bytes) -> Response {
    let kind = match name.rsplit('.').next().unwrap_or_default() {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "html" => "text/html; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "text/plain; charset=utf-8",
    };
    let mut response = Response::new(Body::from(content));
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let hardened = [
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
    ];
    for (name, value) in hardened {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_built_file_is_embedded() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/console/dist/assets");
        let mut built: Vec<String> = fs::read_dir(directory)
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .chain([PAGE.to_owned()])
            .collect();
        built.sort();
        let mut embedded: Vec<&str> = FILES.iter().map(|it| it.0).collect();
        embedded.sort_unstable();
        assert_eq!(built, embedded);
    }
}
