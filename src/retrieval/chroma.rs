//! Documents in a ChromaDB server, over version 2 of its REST API.

mod wire;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::{Method, StatusCode, body::Bytes};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};

use self::wire::{Found, Ids, Known};
use super::{
    Collection, Document, Error,
    document::Entry,
    service::{Ask, Service},
};
use crate::{
    config::Secret,
    outbound::{Policy, Tls},
};

/// How many collections are listed at once, and counted at once.
const PAGE: usize = 100;
const AT_ONCE: usize = 4;

/// Where the server is, and how to talk to it.
#[derive(Clone, Debug)]
pub struct Chroma {
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
    pub headers: Vec<(String, Secret)>,
    /// For one request, further attempts included.
    pub limit: Duration,
    /// Which addresses may be reached.
    pub policy: Policy,
    /// How secure connections are made.
    pub tls: Tls,
}

impl Default for Chroma {
    /// A server on this machine, as it starts without settings.
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 8000,
            secure: false,
            tenant: "default_tenant".to_owned(),
            database: "default_database".to_owned(),
            headers: Vec::new(),
            limit: Duration::from_secs(30),
            policy: Policy::default(),
            tls: Tls::default(),
        }
    }
}

/// The server, with its kept connections.
#[derive(Debug)]
pub(super) struct Server {
    service: Service,
    /// The path of the collections.
    root: String,
    known: Mutex<HashMap<String, Arc<Known>>>,
}

impl Server {
    pub(super) fn open(settings: &Chroma) -> Result<Self, Error> {
        let scheme = if settings.secure { "https" } else { "http" };
        let (host, port) = (&settings.host, settings.port);
        let [tenant, database] = [&settings.tenant, &settings.database].map(|it| encoded(it));
        let root = format!("/api/v2/tenants/{tenant}/databases/{database}/collections");
        let url = format!("{scheme}://{host}:{port}{root}");
        let mut service = Service::open(&url, &settings.policy, &settings.tls, settings.limit)?;
        for (name, value) in &settings.headers {
            service.header(name, value)?;
        }
        Ok(Self {
            service,
            root,
            known: Mutex::default(),
        })
    }

    pub(super) async fn search(
        &self,
        name: &str,
        model: &str,
        vectors: &[Vec<f32>],
        n: usize,
    ) -> Result<Vec<Vec<Document>>, Error> {
        let include = ["documents", "distances", "metadatas"];
        let body = json!({"query_embeddings": vectors, "n_results": n, "include": include});
        let dimension = vectors.first().map_or(0, Vec::len);
        let check = |known: &Known| known.check(name, model, dimension);
        let asked = self.in_collection(name, "query", body, check).await?;
        let (known, found): (_, Found) = asked.ok_or_else(|| missing(name))?;
        Ok(found.into_documents(&known))
    }

    pub(super) async fn add(
        &self,
        name: &str,
        model: &str,
        entries: Vec<Entry>,
    ) -> Result<(), Error> {
        let dimension = entries.first().map_or(0, |it| it.vector.len());
        let body = wire::upsert(entries);
        let check = |known: &Known| known.check(name, model, dimension);
        for _attempt in 0..2 {
            let asked = self
                .in_collection(name, "upsert", body.clone(), check)
                .await?;
            let done: Option<(_, IgnoredAny)> = asked;
            if done.is_some() {
                return Ok(());
            }
            self.make(name, model).await?;
        }
        // Somebody removes it as often as we make it.
        Err(missing(name))
    }

    pub(super) async fn has(&self, name: &str, ids: &[String]) -> Result<HashSet<String>, Error> {
        let mut found = HashSet::new();
        for some in ids.chunks(PAGE) {
            let body = json!({"ids": some, "include": []});
            let asked = self.in_collection(name, "get", body, |_| Ok(())).await?;
            let Some((_, Ids { ids })) = asked else { break };
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
        let there: Vec<String> = self.has(name, ids).await?.into_iter().collect();
        for some in there.chunks(PAGE) {
            let body = json!({"ids": some});
            let asked = self.in_collection(name, "delete", body, |_| Ok(())).await?;
            let (_, IgnoredAny) = asked.ok_or_else(|| missing(name))?;
        }
        Ok(there.len())
    }

    pub(super) async fn remove(&self, name: &str) -> Result<bool, Error> {
        self.forget(name);
        let ask = self.ask(Method::DELETE, &format!("/{}", encoded(name)), None);
        let gone: Option<IgnoredAny> = self.read(&ask).await?;
        Ok(gone.is_some())
    }

    pub(super) async fn collections(&self) -> Result<Vec<Collection>, Error> {
        let mut all: Vec<Known> = Vec::new();
        loop {
            let path = format!("?limit={PAGE}&offset={}", all.len());
            let page: Vec<Known> = self
                .service
                .read(&self.ask(Method::GET, &path, None))
                .await?;
            let is_last = page.len() < PAGE;
            all.extend(page);
            if is_last {
                break;
            }
        }
        let counted = all.into_iter().map(|known| self.counted(known));
        let found: Vec<_> = stream::iter(counted)
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// `None` if it was removed meanwhile.
    async fn counted(&self, known: Known) -> Result<Option<Collection>, Error> {
        let ask = self.ask(Method::GET, &format!("/{}/count", encoded(&known.id)), None);
        let count: Option<usize> = self.read(&ask).await?;
        Ok(count.map(|count| known.into_collection(count)))
    }

    /// Asks about a collection by its id, which may have become another one's;
    /// `None` if there is no such collection.
    async fn in_collection<T: DeserializeOwned>(
        &self,
        name: &str,
        verb: &str,
        body: Value,
        check: impl Fn(&Known) -> Result<(), Error>,
    ) -> Result<Option<(Arc<Known>, T)>, Error> {
        let mut ask = self.ask(Method::POST, "", Some(&body));
        for _attempt in 0..2 {
            let Some(known) = self.known(name).await? else {
                return Ok(None);
            };
            check(&known)?;
            ask.path = format!("{}/{}/{verb}", self.root, encoded(&known.id));
            if let Some(done) = self.read(&ask).await? {
                return Ok(Some((known, done)));
            }
            self.forget(name);
        }
        Ok(None)
    }

    async fn known(&self, name: &str) -> Result<Option<Arc<Known>>, Error> {
        if let Some(known) = self.lock().get(name) {
            return Ok(Some(Arc::clone(known)));
        }
        let ask = self.ask(Method::GET, &format!("/{}", encoded(name)), None);
        let known: Option<Known> = self.read(&ask).await?;
        let known = known.map(Arc::new);
        // The dimension is not known before the first document.
        if let Some(known) = known.as_ref().filter(|it| it.dimension.is_some()) {
            self.lock().insert(name.to_owned(), Arc::clone(known));
        }
        Ok(known)
    }

    async fn make(&self, name: &str, model: &str) -> Result<(), Error> {
        let body = wire::make(name, model);
        let IgnoredAny = self
            .service
            .read(&self.ask(Method::POST, "", Some(&body)))
            .await?;
        Ok(())
    }

    /// What a good answer says; `None` if there is no such thing.
    async fn read<T: DeserializeOwned>(&self, ask: &Ask) -> Result<Option<T>, Error> {
        let answer = self.service.ask(ask).await?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => self.service.parse(ask, &answer).map(Some),
            _ => Err(self.service.status(ask, &answer)),
        }
    }

    fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Ask {
        Ask {
            method,
            path: format!("{}{path}", self.root),
            body: body.map_or_else(Bytes::new, |it| it.to_string().into()),
        }
    }

    fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Known>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missing(name: &str) -> Error {
    Error::NoCollection(name.to_owned())
}

/// One part of a path.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let encoded = text.bytes().map(|byte| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    });
    encoded.collect()
}
