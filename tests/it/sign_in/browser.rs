//! A browser that follows redirects until they come back to the hub.

use std::collections::BTreeMap;

use crate::{
    http_client::{TestRequest, TestResponse},
    test_hub::TestHub,
};

/// The most redirects of one sign-in.
const MAX_REDIRECTS: usize = 20;

/// Opens `link` and returns the first redirect to `hub_address`, without opening it.
pub(crate) async fn follow(link: &str, hub_address: &str) -> String {
    let mut cookies = BTreeMap::new();
    let mut url = link.to_owned();
    for _ in 0..MAX_REDIRECTS {
        let (address, path) = split(&url);
        if address == hub_address {
            return url;
        }
        let line = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let line = line.collect::<Vec<_>>().join("; ");
        let request = TestRequest::new(&address, "GET", &path).header("cookie", &line);
        let response = request.send().await;
        for set in response.cookies() {
            let pair = set.split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            cookies.insert(name.to_owned(), value.to_owned());
        }
        let Some(location) = response.headers.get("location").cloned() else {
            panic!("{url} answered {}", response.status);
        };
        url = if location.starts_with('/') {
            format!("http://{address}{location}")
        } else {
            location
        };
    }
    panic!("more than {MAX_REDIRECTS} redirects");
}

/// Opens a page of the hub without a token.
pub(super) async fn open_on_hub(hub: &TestHub, path: &str) -> TestResponse {
    TestRequest::new(&hub.address, "GET", path).send().await
}

pub(super) fn path_and_query(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap();
    &rest[rest.find('/').unwrap()..]
}

fn split(url: &str) -> (String, String) {
    let path = path_and_query(url);
    let address = url.strip_prefix("http://").unwrap().strip_suffix(path);
    (address.unwrap().to_owned(), path.to_owned())
}
