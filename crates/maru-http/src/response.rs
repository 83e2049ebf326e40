//! An HTTP response whose body is read whole or in chunks.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::{
    HeaderMap, StatusCode,
    body::{Body, Incoming},
    header::{HeaderName, RETRY_AFTER},
};
use tokio::sync::OwnedSemaphorePermit;

use super::{Error, HttpClient};

/// Maximum size of a body that is read whole.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Longer pauses in `Retry-After` are ignored as nonsense.
const MAX_RETRY_AFTER_SECONDS: f64 = 1e6;

/// A response whose body may still be arriving; dropping it cancels the rest.
pub struct HttpResponse {
    /// The status code.
    pub status: StatusCode,
    headers: HeaderMap,
    /// Boxed, so that its long drop code is in this crate only (ADR 0010).
    body: Option<Pin<Box<dyn Body<Data = Bytes, Error = hyper::Error> + Send + Sync>>>,
    /// The part of the body that [`HttpResponse::bytes`] has read so far.
    read: Vec<u8>,
    client: Arc<HttpClient>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("HttpResponse");
        debug.field("status", &self.status).finish_non_exhaustive()
    }
}

impl HttpResponse {
    pub(super) fn new(
        response: hyper::Response<Incoming>,
        client: Arc<HttpClient>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status,
            headers: head.headers,
            body: Some(Box::pin(body)),
            read: Vec::new(),
            client,
            _permit: permit,
        }
    }

    /// Returns the first header of this name, if it is UTF-8.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        str::from_utf8(self.headers.get(name)?.as_bytes()).ok()
    }

    /// Returns all headers of this name that are UTF-8.
    pub fn headers(&self, name: &HeaderName) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(name).iter();
        values.filter_map(|it| str::from_utf8(it.as_bytes()).ok())
    }

    /// Parses `Retry-After`: how long the server asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        parse_retry_after(self.header(&RETRY_AFTER)?, SystemTime::now())
    }

    /// Returns the next chunk of the body; `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            match self.body.as_mut()?.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(_)) => {
                    self.body = None;
                    return Some(Err(self.client.broken_connection()));
                }
                None => {
                    self.body = None;
                    return None;
                }
            }
        }
    }

    /// Reads the body to its end; fails if it exceeds 16 MiB. Cancel-safe.
    pub async fn bytes(&mut self) -> Result<Bytes, Error> {
        while let Some(chunk) = self.chunk().await {
            let chunk = chunk?;
            if self.read.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(Error::TooLarge(self.client.target().authority()));
            }
            self.read.extend_from_slice(&chunk);
        }
        Ok(mem::take(&mut self.read).into())
    }
}

/// Parses seconds, also with a fraction, or an HTTP date.
fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse::<f64>() {
        let is_sensible = (0.0..MAX_RETRY_AFTER_SECONDS).contains(&seconds);
        return is_sensible.then(|| Duration::from_secs_f64(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10);
        let check = |value: &str, expected: Option<f64>| {
            let found = parse_retry_after(value, now);
            assert_eq!(found, expected.map(Duration::from_secs_f64), "{value}");
        };
        check("3", Some(3.0));
        check("0.5", Some(0.5));
        check("Thu, 01 Jan 1970 00:00:17 GMT", Some(7.0));
        check("Thu, 01 Jan 1970 00:00:02 GMT", Some(0.0));
        check("-1", None);
        check("NaN", None);
        check("1e9", None);
        check("soon", None);
    }
}
