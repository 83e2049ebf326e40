//! An HTTP request, and its conversion for hyper's client.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Uri,
    header::{CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING},
    http::uri::{Authority, Parts, PathAndQuery, Scheme},
};

use super::{AllowedUrl, Error};

/// A request to the origin of an [`HttpClient`](super::HttpClient).
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// Path and query.
    pub uri: &'a Uri,
    /// Headers. `Content-Length` is added, and `Host` if it is missing.
    pub headers: &'a HeaderMap,
    /// Headers of this request only, which replace those of the same name.
    pub extra_headers: &'a [(HeaderName, HeaderValue)],
    /// The body; empty for none.
    pub body: &'a Bytes,
}

impl HttpRequest<'_> {
    /// Builds a request with an absolute URI, from which hyper's client writes `Host`
    /// (HTTP/1.1) or `:authority` (HTTP/2).
    pub(super) fn build_hyper_request(
        &self,
        target: &AllowedUrl,
    ) -> Result<hyper::Request<Full<Bytes>>, Error> {
        let mut headers = self.headers.clone();
        for (name, value) in self.extra_headers {
            headers.insert(name, value.clone());
        }
        // hyper writes the length of the body. Another length from the user's settings
        // would let the server parse a different request than the one sent (request
        // smuggling).
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
        if self.body.is_empty() && *self.method != Method::GET {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let uri = absolute_uri(target, headers.remove(HOST), self.uri.path_and_query())?;
        let mut request = hyper::Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok(request)
    }
}

fn absolute_uri(
    target: &AllowedUrl,
    host: Option<HeaderValue>,
    path: Option<&PathAndQuery>,
) -> Result<Uri, Error> {
    let refused = || Error::Refused("the Host header is not a valid host".to_owned());
    let authority = match host {
        Some(host) => Authority::try_from(host.as_bytes()),
        None => Authority::try_from(target.authority()),
    };
    let mut parts = Parts::default();
    parts.scheme = Some(if target.is_https {
        Scheme::HTTPS
    } else {
        Scheme::HTTP
    });
    parts.authority = Some(authority.map_err(|_| refused())?);
    parts.path_and_query = Some(path.map_or(PathAndQuery::from_static("/"), Clone::clone));
    Uri::from_parts(parts).map_err(|_| refused())
}
