//! A client of ChromaDB, over version 2 of its REST API.

mod wire;

use std::{
    collections::{HashMap, HashSet},
    net::Ipv6Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::{Method, StatusCode};
use maru_http::{AddressPolicy, ClientTls, JsonService, ServiceRequest};
use maru_runtime::SecretString;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use self::wire::{ChromaCollection, ChromaIdsResponse, ChromaQueryResponse};
use super::{CollectionInfo, Error, FoundDocument, authorize, document::IndexedDocument};

/// Collections or documents per request.
const PAGE_SIZE: usize = 100;
const MAX_CONCURRENT_COUNTS: usize = 4;

/// Settings of a ChromaDB server.
#[derive(Clone, Debug)]
pub struct ChromaEndpoint {
    /// The host name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether to use HTTPS.
    pub secure: bool,
    /// The tenant.
    pub tenant: String,
    /// The database of the tenant.
    pub database: String,
    /// Headers of every request, for authentication by the server or a proxy.
    pub headers: Vec<(String, SecretString)>,
    /// The timeout of a request, retries included.
    pub timeout: Duration,
    /// The rules for outgoing connections.
    pub policy: AddressPolicy,
    /// The TLS settings.
    pub tls: ClientTls,
}

impl Default for ChromaEndpoint {
    /// The defaults of a ChromaDB server on this machine.
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8000,
            secure: false,
            tenant: "default_tenant".to_owned(),
            database: "default_database".to_owned(),
            headers: Vec::new(),
            timeout: Duration::from_secs(30),
            policy: AddressPolicy::default(),
            tls: ClientTls::default(),
        }
    }
}

/// A client of a ChromaDB server.
#[derive(Debug)]
pub(super) struct ChromaIndex {
    /// The base URL is that of the collections.
    service: JsonService,
    collection_cache: Mutex<HashMap<String, Arc<ChromaCollection>>>,
}

impl ChromaIndex {
    pub(super) fn open(settings: &ChromaEndpoint) -> Result<Self, Error> {
        let scheme = if settings.secure { "https" } else { "http" };
        let (host, port) = (url_host(&settings.host), settings.port);
        let [tenant, database] =
            [&settings.tenant, &settings.database].map(|it| percent_encode(it));
        let root = format!("/api/v2/tenants/{tenant}/databases/{database}/collections");
        let url = format!("{scheme}://{host}:{port}{root}");
        let target = authorize(&url, &settings.policy)?;
        let mut service = JsonService::new(target, settings.tls.clone(), settings.timeout);
        for (name, value) in &settings.headers {
            service = service.with_header(name, value)?;
        }
        Ok(Self {
            service,
            collection_cache: Mutex::default(),
        })
    }

    pub(super) async fn search(
        &self,
        name: &str,
        model: &str,
        vectors: &[Vec<f32>],
        n: usize,
    ) -> Result<Vec<Vec<FoundDocument>>, Error> {
        let include = ["documents", "distances", "metadatas"];
        let body = json!({"query_embeddings": vectors, "n_results": n, "include": include});
        let dimension = vectors.first().map_or(0, Vec::len);
        let check = |it: &ChromaCollection| it.check_compatible(name, model, dimension);
        let response = self.call_collection(name, "query", body, check).await?;
        let (collection, response): (_, ChromaQueryResponse) =
            response.ok_or_else(|| no_collection(name))?;
        Ok(response.into_documents(&collection))
    }

    pub(super) async fn upsert_documents(
        &self,
        name: &str,
        model: &str,
        entries: Vec<IndexedDocument>,
    ) -> Result<(), Error> {
        let dimension = entries.first().map_or(0, |it| it.vector.len());
        let body = wire::upsert_body(entries);
        let check = |it: &ChromaCollection| it.check_compatible(name, model, dimension);
        for _attempt in 0..2 {
            let response: Option<(_, IgnoredAny)> = self
                .call_collection(name, "upsert", body.clone(), check)
                .await?;
            if response.is_some() {
                return Ok(());
            }
            self.create_collection(name, model).await?;
        }
        // Another client keeps removing the collection.
        Err(no_collection(name))
    }

    pub(super) async fn existing_ids(
        &self,
        name: &str,
        ids: &[String],
    ) -> Result<HashSet<String>, Error> {
        let mut found = HashSet::new();
        for page in ids.chunks(PAGE_SIZE) {
            let body = json!({"ids": page, "include": []});
            let response = self.call_collection(name, "get", body, |_| Ok(())).await?;
            let Some((_, ChromaIdsResponse { ids })) = response else {
                break;
            };
            found.extend(ids);
        }
        Ok(found)
    }

    pub(super) async fn remove_documents(
        &self,
        name: &str,
        ids: &[String],
    ) -> Result<usize, Error> {
        // The server counts the requested ids, not the deleted documents.
        let existing: Vec<String> = self.existing_ids(name, ids).await?.into_iter().collect();
        for page in existing.chunks(PAGE_SIZE) {
            let body = json!({"ids": page});
            let response = self
                .call_collection(name, "delete", body, |_| Ok(()))
                .await?;
            let (_, IgnoredAny) = response.ok_or_else(|| no_collection(name))?;
        }
        Ok(existing.len())
    }

    pub(super) async fn remove_collection(&self, name: &str) -> Result<bool, Error> {
        self.evict_cached(name);
        let request = ServiceRequest {
            method: Method::DELETE,
            ..ServiceRequest::get(format!("/{}", percent_encode(name)))
        };
        let response: Option<IgnoredAny> = self.send_for_optional_json(&request).await?;
        Ok(response.is_some())
    }

    pub(super) async fn collections(&self) -> Result<Vec<CollectionInfo>, Error> {
        let mut all: Vec<ChromaCollection> = Vec::new();
        loop {
            let path = format!("?limit={PAGE_SIZE}&offset={}", all.len());
            let page: Vec<ChromaCollection> = self
                .service
                .send_for_json(&ServiceRequest::get(path))
                .await?;
            let is_last = page.len() < PAGE_SIZE;
            all.extend(page);
            if is_last {
                break;
            }
        }
        let counted = all
            .into_iter()
            .map(|collection| self.with_count(collection));
        let found: Vec<_> = stream::iter(counted)
            .buffered(MAX_CONCURRENT_COUNTS)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Counts the documents of a collection; `None` if it was removed meanwhile.
    async fn with_count(
        &self,
        collection: ChromaCollection,
    ) -> Result<Option<CollectionInfo>, Error> {
        let request = ServiceRequest::get(format!("/{}/count", percent_encode(&collection.id)));
        let count: Option<usize> = self.send_for_optional_json(&request).await?;
        Ok(count.map(|count| collection.into_collection(count)))
    }

    /// Sends a request about a collection and returns it with the response; `None` if it
    /// does not exist. The cached id of a collection that was recreated is looked up
    /// again.
    async fn call_collection<T: DeserializeOwned>(
        &self,
        name: &str,
        verb: &str,
        body: Value,
        check: impl Fn(&ChromaCollection) -> Result<(), Error>,
    ) -> Result<Option<(Arc<ChromaCollection>, T)>, Error> {
        let mut request = ServiceRequest::post("", body.to_string());
        for _attempt in 0..2 {
            let Some(collection) = self.find_collection(name).await? else {
                return Ok(None);
            };
            check(&collection)?;
            request.path = format!("/{}/{verb}", percent_encode(&collection.id));
            if let Some(response) = self.send_for_optional_json(&request).await? {
                return Ok(Some((collection, response)));
            }
            self.evict_cached(name);
        }
        Ok(None)
    }

    async fn find_collection(&self, name: &str) -> Result<Option<Arc<ChromaCollection>>, Error> {
        if let Some(collection) = self.lock_cache().get(name) {
            return Ok(Some(Arc::clone(collection)));
        }
        let request = ServiceRequest::get(format!("/{}", percent_encode(name)));
        let collection: Option<ChromaCollection> = self.send_for_optional_json(&request).await?;
        let collection = collection.map(Arc::new);
        // Without a document the collection has no dimension yet.
        if let Some(collection) = collection.as_ref().filter(|it| it.dimension.is_some()) {
            self.lock_cache()
                .insert(name.to_owned(), Arc::clone(collection));
        }
        Ok(collection)
    }

    async fn create_collection(&self, name: &str, model: &str) -> Result<(), Error> {
        let body = wire::create_collection_body(name, model);
        let IgnoredAny = self
            .service
            .send_for_json(&ServiceRequest::post("", body.to_string()))
            .await?;
        Ok(())
    }

    /// Sends a request and parses the body; `None` if the server answers 404.
    async fn send_for_optional_json<T: DeserializeOwned>(
        &self,
        request: &ServiceRequest,
    ) -> Result<Option<T>, Error> {
        let response = self.service.send(request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.service.parse_json(request, &response)?)),
            _ => Err(self.service.status_error(request, &response).into()),
        }
    }

    fn evict_cached(&self, name: &str) {
        self.lock_cache().remove(name);
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<ChromaCollection>>> {
        self.collection_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_collection(name: &str) -> Error {
    Error::NoCollection(name.to_owned())
}

/// Formats a host for a URL: IPv6 addresses in brackets.
fn url_host(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// Percent-encodes one segment of a path.
fn percent_encode(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let encoded = text.bytes().map(|byte| match byte {
        byte if is_unreserved(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}
