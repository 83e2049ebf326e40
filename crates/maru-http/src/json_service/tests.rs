use serde_json::Value;

use super::*;
use crate::test_server::scripted_server;

const BUSY: &str = "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
const LATER: &str = "HTTP/1.1 429 Slow down\r\nretry-after: 99\r\ncontent-length: 0\r\n\r\n";
const JSON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n{\"a\":1}";
const REFUSED: &str =
    "HTTP/1.1 400 No\r\ncontent-length: 34\r\n\r\n{\"error\":\"NameError\",\"x\":\"secret\"}";

fn service(target: AllowedUrl) -> JsonService {
    let key = SecretString::from("topsecret".to_owned());
    let service = JsonService::new(target, ClientTls::default(), Duration::from_secs(5));
    service.with_header("x-key", &key).unwrap()
}

#[tokio::test]
async fn request_is_repeated_while_the_service_is_busy() {
    let (target, mut requests) = scripted_server(&[&[BUSY, JSON]]).await;
    let service = service(target);
    let request = ServiceRequest::post("/y?z=1", "{}");
    let body: Value = service.send_for_json(&request).await.unwrap();
    assert_eq!(body["a"], 1);
    for _ in 0..2 {
        let (_, head) = requests.recv().await.unwrap();
        assert!(head.starts_with("POST /x/y?z=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nx-key: topsecret\r\n"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/json\r\n"));
    }
}

#[tokio::test]
async fn retry_after_beyond_the_deadline_is_not_waited_for() {
    let (target, _requests) = scripted_server(&[&[LATER]]).await;
    let service = service(target);
    let response = service.send(&ServiceRequest::get("")).await.unwrap();
    assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn errors_name_the_endpoint_and_quote_neither_body_nor_key_nor_query() {
    let (target, _requests) = scripted_server(&[&[REFUSED, JSON]]).await;
    let service = service(target);
    let request = ServiceRequest::get("?token=topsecret");
    let endpoint = service.target().to_string();
    let refused = service.send_for_json::<Value>(&request).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("{endpoint} answered 400 (NameError)")
    );
    let unexpected = service.send_for_json::<String>(&request).await.unwrap_err();
    assert!(
        unexpected
            .to_string()
            .starts_with(&format!("{endpoint} sent a response"))
    );
    let shown = format!("{refused:?} {unexpected:?} {service:?}");
    assert!(
        !shown.contains("topsecret") && !shown.contains("secret"),
        "{shown}"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_service_times_out() {
    let (target, _listener) = crate::test_server::listen().await;
    let service = service(target);
    let timed_out = service.send(&ServiceRequest::get("")).await.unwrap_err();
    assert!(
        timed_out.to_string().ends_with("did not answer within 5s"),
        "{timed_out}"
    );
}

#[tokio::test]
async fn invalid_headers_are_refused() {
    let (target, _listener) = crate::test_server::listen().await;
    let bare = || JsonService::new(target.clone(), ClientTls::default(), Duration::ZERO);
    let secret = |it: &str| SecretString::from(it.to_owned());
    let value = bare().with_header("x", &secret("a\nb")).unwrap_err();
    assert!(matches!(value, Error::InvalidHeaderValue));
    let name = bare().with_header("x y", &secret("a")).unwrap_err();
    assert!(matches!(name, Error::InvalidHeaderName));
}
