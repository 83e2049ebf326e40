//! The clients that maru's authorization server knows: those that registered, and those
//! that publish a document under their id.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_oauth::OAuthHttp;
use maru_runtime::clock;
use maru_store::{OAuthClientRow, Store};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use super::{
    super::rate_limit::{AttemptLimit, client_prefix},
    client::{ClientAuthentication, ClientMetadata, OAuthClient},
    error::{ClientError, ClientRegistrationError, GrantError},
    form::FormFields,
    random_id,
    signed_secret::{SecretKind, SecretSigner},
};

/// Clients that nobody allowed anything for so long are deleted.
const UNUSED_CLIENT_LIFETIME_MS: i64 = 30 * clock::DAY_MS;
/// How many clients may be registered; the oldest unused ones make room.
const MAX_CLIENTS: i64 = 1000;
/// How many clients one address may register in a minute, and all together.
const REGISTRATIONS_PER_ADDRESS: u32 = 10;
const REGISTRATIONS: u32 = 120;
/// How long a client's metadata document is used before it is read again.
const DOCUMENT_LIFETIME: Duration = Duration::from_secs(600);
const MAX_DOCUMENTS: usize = 200;
/// How many documents are read in a minute.
const DOCUMENT_READS: u32 = 60;
const MAX_CLIENT_ID_BYTES: usize = 1000;

/// Registers and finds clients.
#[derive(Debug)]
pub struct ClientRegistry {
    store: Store,
    signer: Arc<SecretSigner>,
    http: OAuthHttp,
    reads_documents: bool,
    registrations: AttemptLimit<IpAddr>,
    all_registrations: AttemptLimit<()>,
    documents: Mutex<HashMap<String, (Instant, OAuthClient)>>,
    document_reads: AttemptLimit<DocumentReader>,
}

/// For whom a client's metadata document is read; each may have some read in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DocumentReader {
    /// The page on which a person allows the client.
    ConsentPage,
    /// The endpoints where the client authenticates.
    Authentication,
}

impl ClientRegistry {
    /// The clients of a store. `http` reads documents, from the hosts that are meant.
    pub(super) fn new(
        store: Store,
        signer: Arc<SecretSigner>,
        http: OAuthHttp,
        reads_documents: bool,
    ) -> Self {
        Self {
            store,
            signer,
            http,
            reads_documents,
            registrations: AttemptLimit::new(
                "registrations of clients from one address",
                REGISTRATIONS_PER_ADDRESS,
            ),
            all_registrations: AttemptLimit::new("registrations of clients", REGISTRATIONS),
            documents: Mutex::default(),
            document_reads: AttemptLimit::new("reads of clients' descriptions", DOCUMENT_READS),
        }
    }

    /// Whether clients may name themselves by the address of a document.
    pub(super) fn reads_documents(&self) -> bool {
        self.reads_documents
    }

    /// Registers a client; returns the body of the response (RFC 7591).
    pub async fn register(
        &self,
        from: Option<IpAddr>,
        metadata: &Value,
    ) -> Result<Value, ClientRegistrationError> {
        let from = from.map(client_prefix);
        let may_try = from.is_none_or(|it| self.registrations.try_attempt(it))
            && self.all_registrations.try_attempt(());
        if !may_try {
            return Err(ClientRegistrationError::TooMany);
        }
        let metadata = ClientMetadata::parse_registration(metadata)
            .map_err(ClientRegistrationError::Metadata)?;
        let now = clock::now_ms();
        let unused_until = now - UNUSED_CLIENT_LIFETIME_MS;
        self.store
            .expire_oauth_clients(unused_until, MAX_CLIENTS - 1)
            .await?;
        let row = OAuthClientRow {
            id: random_id(),
            metadata: json!(metadata).to_string(),
            created_at: now,
        };
        self.store.add_oauth_client(&row).await?;
        let mut body = metadata.to_json();
        body["client_id"] = row.id.as_str().into();
        body["client_id_issued_at"] = (now / 1000).into();
        if metadata.authentication != ClientAuthentication::None {
            body["client_secret"] = self.client_secret(&row.id).into();
            body["client_secret_expires_at"] = 0.into();
        }
        info!(client = %row.id, "client {} registered", metadata.name);
        Ok(body)
    }

    /// Returns a client: one that registered, or one whose id is the address of its
    /// metadata document.
    pub async fn find(&self, id: &str, reader: DocumentReader) -> Result<OAuthClient, ClientError> {
        if id.len() > MAX_CLIENT_ID_BYTES {
            return Err(ClientError::Unknown);
        }
        if id.contains("://") {
            return self.client_of_document(id, reader).await;
        }
        let row = self.store.oauth_client(id).await?;
        let row = row.ok_or(ClientError::Unknown)?;
        let metadata = serde_json::from_str(&row.metadata).map_err(|_| ClientError::Unknown)?;
        Ok(OAuthClient {
            id: row.id,
            metadata,
        })
    }

    /// Returns the client of a document. One that was read before is used while it cannot be
    /// read again.
    async fn client_of_document(
        &self,
        url: &str,
        reader: DocumentReader,
    ) -> Result<OAuthClient, ClientError> {
        if !self.reads_documents {
            return Err(ClientError::Unknown);
        }
        let known = lock(&self.documents).get(url).cloned();
        if let Some((read_at, client)) = &known
            && read_at.elapsed() < DOCUMENT_LIFETIME
        {
            return Ok(client.clone());
        }
        match (self.read_document(url, reader).await, known) {
            (Err(ClientError::Unavailable(_)), Some((_, client))) => Ok(client),
            (read, _) => read,
        }
    }

    async fn read_document(
        &self,
        url: &str,
        reader: DocumentReader,
    ) -> Result<OAuthClient, ClientError> {
        if !self.document_reads.try_attempt(reader) {
            let reason = "too many descriptions were read; try again in a minute";
            return Err(ClientError::Unavailable(reason.to_owned()));
        }
        let what = "the metadata document of the client";
        let document = self.http.read_document(what, url).await;
        let document = document.map_err(|error| {
            if error.is_temporary() {
                ClientError::Unavailable(error.to_string())
            } else {
                ClientError::Document(error.to_string())
            }
        })?;
        let metadata = ClientMetadata::parse_document(&document, url)
            .map_err(|error| ClientError::Document(error.description.to_owned()))?;
        let client = OAuthClient {
            id: url.to_owned(),
            metadata,
        };
        let mut documents = lock(&self.documents);
        if documents.len() >= MAX_DOCUMENTS && !documents.contains_key(url) {
            let oldest = documents.iter().min_by_key(|(_, (read_at, _))| *read_at);
            let oldest = oldest.map(|(url, _)| url.clone());
            oldest.and_then(|it| documents.remove(&it));
        }
        documents.insert(url.to_owned(), (Instant::now(), client.clone()));
        Ok(client)
    }

    /// Returns the client that authenticates with a request to the token endpoint:
    /// `basic` is the id and the secret of its `Authorization` header.
    pub async fn authenticate(
        &self,
        form: &FormFields,
        basic: Option<(String, String)>,
    ) -> Result<OAuthClient, GrantError> {
        let (id, secret, method) = match (&basic, form.get("client_secret")) {
            (Some((id, secret)), None) => {
                if form.get("client_id").is_some_and(|it| it != id) {
                    return Err(GrantError::InvalidClient);
                }
                let method = ClientAuthentication::ClientSecretBasic;
                (id.as_str(), secret.as_str(), method)
            }
            (None, Some(secret)) => {
                let id = form.get("client_id").unwrap_or_default();
                (id, secret, ClientAuthentication::ClientSecretPost)
            }
            (None, None) => {
                let id = form.get("client_id").unwrap_or_default();
                (id, "", ClientAuthentication::None)
            }
            (Some(_), Some(_)) => return Err(GrantError::InvalidClient),
        };
        let client = match self.find(id, DocumentReader::Authentication).await {
            Ok(client) => client,
            Err(ClientError::Store(error)) => return Err(error.into()),
            Err(ClientError::Unavailable(_)) => return Err(GrantError::ClientUnavailable),
            Err(_) => return Err(GrantError::InvalidClient),
        };
        let needs_secret = client.metadata.authentication != ClientAuthentication::None;
        let is_authenticated = if needs_secret {
            let content = self.signer.verify(SecretKind::ClientSecret, secret);
            // Clients mix the two up that carry the secret; both prove the same.
            method != ClientAuthentication::None && content.is_some_and(|it| it.subject == id)
        } else {
            secret.is_empty()
        };
        if is_authenticated {
            Ok(client)
        } else {
            Err(GrantError::InvalidClient)
        }
    }

    /// Lists the clients: those that registered, then others that have grants.
    pub async fn list(&self) -> Result<Vec<OAuthClientRow>, maru_store::Error> {
        self.store.oauth_clients().await
    }

    /// Deletes a client; false if it is not registered.
    pub(super) async fn remove(&self, id: &str) -> Result<bool, maru_store::Error> {
        lock(&self.documents).remove(id);
        self.store.delete_oauth_client(id).await
    }

    fn client_secret(&self, id: &str) -> String {
        self.signer.sign(SecretKind::ClientSecret, id, 0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
