//! What the data tools work on: the embedder, the index, the sources.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::{
    SAMPLE_FILE,
    directory::{self, Files},
};
use crate::{
    config::{Config, SourceDefinition},
    outbound::{Policy, Tls},
    retrieval::{Chroma, Embedder, Endpoint, Index, NewDocument},
    source::{Address, Limits, Server, Settings, Source},
    tasks::Tasks,
    tool::builtin::Data,
};

pub(super) const INDEX_FILE: &str = "index.db";
/// How long a batch of texts, or a search, may take where nothing is said.
const PATIENCE: Duration = Duration::from_secs(30);
/// What there is to find before anything was added: the columns of the sample data.
const SAMPLE_DOCUMENTS: &str = include_str!("sample_documents.txt");

/// Opens what the data tools work on.
pub(super) async fn open(
    config: &Config,
    files: &Files,
    policy: &Policy,
    tasks: &Tasks,
) -> Result<Data> {
    Ok(Data {
        index: open_index(config, files, policy).await?,
        collection: config.chromadb.collection.clone(),
        sources: open_sources(config, files, tasks)?.into(),
    })
}

/// The index alone, for the command line.
pub(super) async fn open_index(config: &Config, files: &Files, policy: &Policy) -> Result<Index> {
    let embedder = embedder(config, policy)?;
    let chromadb = &config.chromadb;
    if let Some(host) = &chromadb.host {
        let settings = Chroma {
            host: host.clone(),
            port: chromadb.port,
            secure: chromadb.secure,
            headers: chromadb.headers.clone().into_iter().collect(),
            policy: listing(policy, host),
            ..Chroma::default()
        };
        return Index::chroma(&settings, embedder)
            .context("cannot use the ChromaDB server of the settings");
    }
    let path = files.path(INDEX_FILE);
    directory::make_file(&path)
        .with_context(|| format!("cannot make the index {}", path.display()))?;
    let index = Index::embedded(&path, embedder).await;
    let index = index.with_context(|| format!("cannot use the index {}", path.display()))?;
    if config.sample_data && index.embedder().is_lexical() && index.collections().await?.is_empty()
    {
        let documents: Vec<NewDocument> = SAMPLE_DOCUMENTS.lines().map(NewDocument::of).collect();
        index.add(&chromadb.collection, &documents).await?;
    }
    Ok(index)
}

fn embedder(config: &Config, policy: &Policy) -> Result<Embedder> {
    let Some(url) = &config.embedding.url else {
        return Ok(Embedder::builtin());
    };
    let settings = Endpoint {
        url: url.clone(),
        model: config.embedding.model.clone().unwrap_or_default(),
        key: config.embedding.api_key.clone(),
        limit: config
            .embedding
            .timeout_ms
            .map_or(PATIENCE, Duration::from_millis),
        policy: listing_url(policy, url),
        tls: Tls::default(),
    };
    Embedder::endpoint(&settings).context("cannot use the embedding endpoint of the settings")
}

/// The same, with the host of an address.
pub(super) fn listing_url(policy: &Policy, url: &str) -> Policy {
    let host = url.split("://").nth(1).unwrap_or_default();
    listing(
        policy,
        host.split(['/', ':', '?']).next().unwrap_or_default(),
    )
}

/// Who writes a host into the settings wants it to be reached.
fn listing(policy: &Policy, host: &str) -> Policy {
    let mut policy = policy.clone();
    policy.allowed.push(host.to_owned());
    policy
}

fn open_sources(config: &Config, files: &Files, tasks: &Tasks) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let postgresql = &config.postgresql;
    if let Some(host) = &postgresql.host {
        let server = Server {
            host: host.clone(),
            port: postgresql.port,
            user: postgresql.user.clone(),
            password: postgresql.password.clone(),
            database: postgresql.database.clone(),
        };
        let opened = Source::postgres("bga", &Address::Server(server), Settings::default(), tasks);
        sources.push(opened.context("cannot use the database of the settings postgresql.*")?);
    }
    for (at, definition) in config.sources.iter().enumerate() {
        let opened = open_source(definition, tasks);
        sources.push(opened.with_context(|| format!("sources.{at} ({})", definition.name))?);
    }
    if config.sample_data {
        let path = files.path(SAMPLE_FILE);
        sources.push(Source::sqlite("sample", &path, Settings::default(), tasks)?);
    }
    Ok(sources)
}

fn open_source(definition: &SourceDefinition, tasks: &Tasks) -> Result<Source> {
    let settings = Settings {
        relations: definition.relations.clone(),
        functions: definition.functions.clone(),
        limits: Limits {
            rows: definition.max_rows,
            bytes: definition.max_bytes,
            timeout: Duration::from_millis(definition.timeout_ms),
            request: None,
        },
    };
    let url = definition.url.reveal();
    Ok(
        match url.starts_with("postgres://") || url.starts_with("postgresql://") {
            true => Source::postgres(
                &definition.name,
                &Address::Url(definition.url.clone()),
                settings,
                tasks,
            )?,
            false => Source::sqlite(
                &definition.name,
                url.trim_start_matches("sqlite://").as_ref(),
                settings,
                tasks,
            )?,
        },
    )
}
