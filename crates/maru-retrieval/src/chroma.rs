//! Documents in a ChromaDB server, over version 2 of its REST API.

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

/// How many collections are listed at once, and counted at once.
const PAGE_SIZE: usize = 100;
const MAX_CONCURRENT_COUNTS: usize = 4;

/// Where the server is, and how to talk to it.
#[derive(Clone, Debug)]
pub struct ChromaEndpoint {
    /// Its host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether to use HTTPS.
    pub secure: bool,
    /// Its tenant.
    pub tenant: String,
    /// The database of the tenant.
    pub database: String,
    /// Sent with every request: what the server, or a proxy before it, asks for.
    pub headers: Vec<(String, SecretString)>,
    /// For one request, further attempts included.
    pub timeout: Duration,
    /// Which addresses may be reached.
    pub policy: AddressPolicy,
    /// How secure connections are made.
    pub tls: ClientTls,
}

impl Default for ChromaEndpoint {
    /// A server on this machine, as it starts without settings.
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

/// The server, with its kept connections.
#[derive(Debug)]
pub(super) struct ChromaIndex {
    /// Its base address is the one of the collections.
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
        let check = |known: &ChromaCollection| known.check_compatible(name, model, dimension);
        let asked = self.call_collection(name, "query", body, check).await?;
        let (known, found): (_, ChromaQueryResponse) = asked.ok_or_else(|| no_collection(name))?;
        Ok(found.into_documents(&known))
    }

    pub(super) async fn upsert_documents(
        &self,
        name: &str,
        model: &str,
        entries: Vec<IndexedDocument>,
    ) -> Result<(), Error> {
        let dimension = entries.first().map_or(0, |it| it.vector.len());
        let body = wire::upsert_body(entries);
        let check = |known: &ChromaCollection| known.check_compatible(name, model, dimension);
        for _attempt in 0..2 {
            let asked = self
                .call_collection(name, "upsert", body.clone(), check)
                .await?;
            let done: Option<(_, IgnoredAny)> = asked;
            if done.is_some() {
                return Ok(());
            }
            self.create_collection(name, model).await?;
        }
        // Somebody removes it as often as we make it.
        Err(no_collection(name))
    }

    pub(super) async fn existing_ids(
        &self,
        name: &str,
        ids: &[String],
    ) -> Result<HashSet<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(PAGE_SIZE) {
            let body = json!({"ids": some, "include": []});
            let asked = self.call_collection(name, "get", body, |_| Ok(())).await?;
            let Some((_, ChromaIdsResponse { ids })) = asked else {
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
        // The server counts what it was told to delete, not what was there.
        let there: Vec<String> = self.existing_ids(name, ids).await?.into_iter().collect();
        for some in there.chunks(PAGE_SIZE) {
            let body = json!({"ids": some});
            let asked = self
                .call_collection(name, "delete", body, |_| Ok(()))
                .await?;
            let (_, IgnoredAny) = asked.ok_or_else(|| no_collection(name))?;
        }
        Ok(there.len())
    }

    pub(super) async fn remove_collection(&self, name: &str) -> Result<bool, Error> {
        self.evict_cached(name);
        let ask = ServiceRequest {
            method: Method::DELETE,
            ..ServiceRequest::get(format!("/{}", percent_encode(name)))
        };
        let gone: Option<IgnoredAny> = self.send_for_optional_json(&ask).await?;
        Ok(gone.is_some())
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
        let counted = all.into_iter().map(|known| self.with_count(known));
        let found: Vec<_> = stream::iter(counted)
            .buffered(MAX_CONCURRENT_COUNTS)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// `None` if it was removed meanwhile.
    async fn with_count(&self, known: ChromaCollection) -> Result<Option<CollectionInfo>, Error> {
        let ask = ServiceRequest::get(format!("/{}/count", percent_encode(&known.id)));
        let count: Option<usize> = self.send_for_optional_json(&ask).await?;
        Ok(count.map(|count| known.into_collection(count)))
    }

    /// Asks about a collection by its id, which may have become another one's;
    /// `None` if there is no such collection.
    async fn call_collection<T: DeserializeOwned>(
        &self,
        name: &str,
        verb: &str,
        body: Value,
        check: impl Fn(&ChromaCollection) -> Result<(), Error>,
    ) -> Result<Option<(Arc<ChromaCollection>, T)>, Error> {
        let mut ask = ServiceRequest::post("", body.to_string());
        for _attempt in 0..2 {
            let Some(known) = self.find_collection(name).await? else {
                return Ok(None);
            };
            check(&known)?;
            ask.path = format!("/{}/{verb}", percent_encode(&known.id));
            if let Some(done) = self.send_for_optional_json(&ask).await? {
                return Ok(Some((known, done)));
            }
            self.evict_cached(name);
        }
        Ok(None)
    }

    async fn find_collection(&self, name: &str) -> Result<Option<Arc<ChromaCollection>>, Error> {
        if let Some(known) = self.lock_cache().get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let ask = ServiceRequest::get(format!("/{}", percent_encode(name)));
        let known: Option<ChromaCollection> = self.send_for_optional_json(&ask).await?;
        let known = known.map(Arc::new);
        // The dimension is not known before the first document.
        if let Some(known) = known.as_ref().filter(|it| it.dimension.is_some()) {
            self.lock_cache().insert(name.to_owned(), Arc::clone(known));
        }
        Ok(known)
    }

    async fn create_collection(&self, name: &str, model: &str) -> Result<(), Error> {
        let body = wire::create_collection_body(name, model);
        let IgnoredAny = self
            .service
            .send_for_json(&ServiceRequest::post("", body.to_string()))
            .await?;
        Ok(())
    }

    /// What a good answer says; `None` if there is no such thing.
    async fn send_for_optional_json<T: DeserializeOwned>(
        &self,
        ask: &ServiceRequest,
    ) -> Result<Option<T>, Error> {
        let answer = self.service.send(ask).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.service.parse_json(ask, &answer)?)),
            _ => Err(self.service.status_error(ask, &answer).into()),
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

/// A host as it stands in an address: IPv6 in brackets.
fn url_host(host: &str) -> String {
    if host.parse::<Ipv6Addr>().is_ok() {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// One part of a path.
fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let encoded = text.bytes().map(|byte| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}
