//! Requests to servers and authorization servers: under the address policy, bounded in
//! size and time, and without redirects.

use std::time::Duration;

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use maru_http::{AddressPolicy, ClientTls, HttpClient, HttpRequest};
use serde_json::Value;
use tokio::time::timeout;

use super::{Error, web_url::is_secure_url};

/// How long one exchange may take, with its body.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest document or response.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;

/// Makes the requests of the OAuth client.
#[derive(Clone, Debug)]
pub struct OAuthHttp {
    policy: AddressPolicy,
    tls: ClientTls,
}

/// A response, read whole.
#[derive(Debug)]
pub(super) struct OAuthResponse {
    pub(super) status: u16,
    /// The body, if it is a JSON object.
    pub(super) body: Option<Value>,
}

struct ExchangeRequest {
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

/// A body to post.
pub(super) enum PostBody {
    Form(String),
    Json(Value),
}

impl OAuthHttp {
    /// Creates a client under `policy`.
    pub fn new(policy: AddressPolicy, tls: ClientTls) -> Self {
        Self { policy, tls }
    }

    /// Reads a JSON document that must be there; `what` names it in errors.
    pub async fn read_document(&self, what: &'static str, url: &str) -> Result<Value, Error> {
        let document = self.get_document(what, url).await?;
        document.ok_or_else(|| Error::invalid(what, "there is none"))
    }

    /// Reads a JSON document; `None` if there is none at this address.
    pub(super) async fn get_document(
        &self,
        what: &'static str,
        url: &str,
    ) -> Result<Option<Value>, Error> {
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
        let request = ExchangeRequest {
            method: Method::GET,
            headers,
            body: Bytes::new(),
        };
        let response = self.exchange(what, url, request).await?;
        match response {
            OAuthResponse {
                status: 200,
                body: Some(body),
            } => Ok(Some(body)),
            OAuthResponse {
                status: 200,
                body: None,
            } => Err(Error::invalid(what, "it is not a JSON object")),
            // A server without the document may answer with any 4xx, also 401.
            OAuthResponse {
                status: 400..=499, ..
            } => Ok(None),
            OAuthResponse {
                status: 300..=399, ..
            } => Err(Error::invalid(
                what,
                "it redirects, and redirects are not followed",
            )),
            OAuthResponse { status, .. } => Err(Error::Status { what, status }),
        }
    }

    /// Posts a form or a JSON document.
    pub(super) async fn post(
        &self,
        what: &'static str,
        url: &str,
        authorization: Option<HeaderValue>,
        body: PostBody,
    ) -> Result<OAuthResponse, Error> {
        let (kind, body) = match body {
            PostBody::Form(text) => ("application/x-www-form-urlencoded", text),
            PostBody::Json(value) => ("application/json", value.to_string()),
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(mut authorization) = authorization {
            authorization.set_sensitive(true);
            headers.insert(AUTHORIZATION, authorization);
        }
        let request = ExchangeRequest {
            method: Method::POST,
            headers,
            body: body.into(),
        };
        self.exchange(what, url, request).await
    }

    async fn exchange(
        &self,
        what: &'static str,
        url: &str,
        request: ExchangeRequest,
    ) -> Result<OAuthResponse, Error> {
        if !is_secure_url(url) {
            return Err(Error::invalid(what, "its address is not reached by https"));
        }
        let failed = |source| Error::Transport { what, source };
        let target = self.policy.authorize(url).map_err(failed)?;
        let uri: Uri = target
            .path
            .parse()
            .map_err(|_| Error::invalid(what, "its address cannot be used in a request"))?;
        let client = HttpClient::new(target, self.tls.clone());
        let request = HttpRequest {
            method: &request.method,
            uri: &uri,
            headers: &request.headers,
            extra_headers: &[],
            body: &request.body,
        };
        let exchange = async {
            let mut response = client.send(&request).await.map_err(failed)?;
            let mut read = Vec::new();
            while let Some(chunk) = response.chunk().await {
                let chunk = chunk.map_err(failed)?;
                if read.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                    let reason = format!("it is larger than {MAX_DOCUMENT_BYTES} bytes");
                    return Err(Error::invalid(what, reason));
                }
                read.extend_from_slice(&chunk);
            }
            let body = serde_json::from_slice(&read).ok();
            Ok(OAuthResponse {
                status: response.status.as_u16(),
                body: body.filter(Value::is_object),
            })
        };
        let late = |_| Error::Timeout(what);
        timeout(EXCHANGE_TIMEOUT, exchange).await.map_err(late)?
    }
}

impl OAuthResponse {
    /// Returns the body of a success, or the OAuth error that the body names.
    pub(super) fn into_success(self, what: &'static str) -> Result<Value, Error> {
        match (self.status, self.body) {
            (200..=299, Some(body)) if body.get("error").is_none() => Ok(body),
            (200..=299, None) => Err(Error::invalid(what, "the response is not a JSON object")),
            (status, body) => {
                let code = body.as_ref().and_then(|it| it["error"].as_str());
                match code.filter(|it| is_error_code(it)) {
                    Some(code) => Err(Error::Denied {
                        what,
                        code: code.to_owned(),
                    }),
                    None => Err(Error::Status { what, status }),
                }
            }
        }
    }
}

/// Whether this looks like an error code of an RFC and not like prose.
pub(super) fn is_error_code(code: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=40).contains(&code.len()) && code.bytes().all(is_word)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    fn http() -> OAuthHttp {
        let policy = AddressPolicy {
            serves_loopback_only: true,
            ..AddressPolicy::default()
        };
        OAuthHttp::new(policy, ClientTls::default())
    }

    /// Serves one connection with `response` and then falls silent.
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the runtime of the test"
    )]
    async fn serve(response: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _head = stream.read(&mut [0; 4096]).await;
            let _gone = stream.write_all(response.as_bytes()).await;
            std::future::pending::<()>().await;
        });
        url
    }

    fn response(status: &str, body: &str) -> String {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
    }

    #[tokio::test]
    async fn documents_are_read_strictly() {
        let get = async |response: String| {
            let url = serve(response).await;
            http().get_document("the document", &url).await
        };
        let found = get(response("200 OK", "{\"a\": 1}")).await.unwrap();
        assert_eq!(found.unwrap()["a"], 1);
        for missing in [
            "404 Not Found",
            "401 Unauthorized",
            "405 Method Not Allowed",
        ] {
            assert_eq!(get(response(missing, "{}")).await, Ok(None));
        }
        let large = format!("{{\"a\": \"{}\"}}", "x".repeat(MAX_DOCUMENT_BYTES));
        let moved = "302 Found\r\nlocation: /y";
        for (bad, reason) in [
            (response("200 OK", "[]"), "not a JSON object"),
            (response("200 OK", "<html>"), "not a JSON object"),
            (response("200 OK", &large), "larger than"),
            (response(moved, ""), "redirects"),
            (response("500 Oops", "{}"), "500"),
        ] {
            let error = get(bad).await.unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_documents_are_given_up() {
        for slow in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
            let url = serve(slow.to_owned()).await;
            let error = http().get_document("the document", &url).await;
            assert_eq!(error, Err(Error::Timeout("the document")));
        }
    }

    #[tokio::test]
    async fn addresses_outside_the_policy_are_not_reached() {
        for url in [
            "http://10.0.0.1/x",
            "https://10.0.0.1/x",
            "https://169.254.169.254/latest",
            "https://unlisted.example/x",
            "file:///etc/passwd",
            "https://user@127.0.0.1/",
        ] {
            assert!(
                http().get_document("the document", url).await.is_err(),
                "{url}"
            );
        }
    }

    #[test]
    fn error_codes_are_quoted_and_prose_is_not() {
        let refused = |body: Value| {
            let response = OAuthResponse {
                status: 400,
                body: Some(body),
            };
            response.into_success("the token").unwrap_err()
        };
        assert!(refused(serde_json::json!({"error": "invalid_grant"})).is_invalid_grant());
        let prose = refused(serde_json::json!({"error": "Your token abc is bad"}));
        assert!(!prose.to_string().contains("abc"), "{prose}");
    }
}
