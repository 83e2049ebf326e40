//! Opens the data of the data tools: the embedder, the index and the sources.

use std::{mem, time::Duration};

use anyhow::{Context as _, Result, bail};
use maru_http::{AddressPolicy, ClientTls};
use maru_postgres::{PostgresAddress, PostgresServer, RootCertificates, TlsMode, TlsOptions};
use maru_retrieval::{ChromaEndpoint, DocumentIndex, Embedder, EmbeddingEndpoint, NewDocument};
use maru_runtime::tasks::Tasks;
use maru_sources::{
    DataSource, PoolSettings, QueryLimits, QueryObserver, SourceSettings, write_sample,
};

use super::data_directory::{self, DataFiles};
use crate::{
    config::{Config, PostgresSettings, QueryBounds, SourceDefinition},
    tools::{
        PageCursors, SampleData,
        builtin::{self, DataContext, SAMPLE_LIMITS, VectorTable},
    },
};

pub(super) const INDEX_FILE: &str = "index.db";
pub(super) const SAMPLE_FILE: &str = "sample.db";
/// The default timeout of an embedding batch or a search.
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(30);
/// The initial documents of the index: the columns of the sample data.
const SAMPLE_DOCUMENTS: &str = include_str!("sample_documents.txt");

/// Opens the database of the sample tools, creating it if needed.
pub(super) fn open_sample(files: &DataFiles, tasks: &Tasks) -> Result<DataSource> {
    let path = files.path(SAMPLE_FILE);
    let settings = SourceSettings {
        limits: SAMPLE_LIMITS,
        ..SourceSettings::default()
    };
    let unusable = || format!("cannot use the sample data in {}", path.display());
    data_directory::create_private_file(&path).with_context(unusable)?;
    write_sample(&path)
        .and_then(|()| DataSource::sqlite("sample", &path, settings, tasks))
        .with_context(unusable)
}

/// Takes the sample source out of `data` and joins it with the tools over
/// `sample_tools`; the other sources are those of the settings.
pub(super) fn split_sample(
    data: &mut DataContext,
    sample_tools: Option<&DataSource>,
    observer: &QueryObserver,
) -> (Option<SampleData>, Vec<DataSource>) {
    let sources = mem::take(&mut data.sources);
    let sources = sources.iter().cloned();
    let sources = sources.map(|it| it.with_observer(observer.clone()));
    let mut sources: Vec<DataSource> = sources.collect();
    let sample = sample_tools.and_then(|it| {
        let entries = builtin::sample_entries(it);
        // The sample is opened last.
        let source = sources.pop()?;
        Some(SampleData { source, entries })
    });
    (sample, sources)
}

/// Opens the embedder, index and sources of the data tools.
pub(super) async fn open_data(
    config: &Config,
    files: &DataFiles,
    policy: &AddressPolicy,
    tasks: &Tasks,
) -> Result<DataContext> {
    Ok(DataContext {
        index: open_index(config, files, policy).await?,
        collection: config.chromadb.collection.clone(),
        sources: open_sources(config, files, tasks)?.into(),
        vector_table: config.pgvector.clone().map(VectorTable::new),
        cursors: PageCursors::default(),
        flag_sql_errors: config.sql_error_flag,
    })
}

/// Opens only the index, for the command line.
pub(super) async fn open_index(
    config: &Config,
    files: &DataFiles,
    policy: &AddressPolicy,
) -> Result<DocumentIndex> {
    let embedder = open_embedder(config, policy)?;
    let chromadb = &config.chromadb;
    if let Some(host) = &chromadb.host {
        let settings = ChromaEndpoint {
            host: host.clone(),
            port: chromadb.port,
            secure: chromadb.secure,
            headers: chromadb.headers.clone().into_iter().collect(),
            policy: policy.clone(),
            ..ChromaEndpoint::default()
        };
        return DocumentIndex::chroma(&settings, embedder)
            .context("cannot use the ChromaDB server of the settings");
    }
    let path = files.path(INDEX_FILE);
    data_directory::create_private_file(&path)
        .with_context(|| format!("cannot make the index {}", path.display()))?;
    let index = DocumentIndex::embedded(&path, embedder).await;
    let index = index.with_context(|| format!("cannot use the index {}", path.display()))?;
    if config.sample_data && index.embedder().is_lexical() && index.collections().await?.is_empty()
    {
        let documents: Vec<NewDocument> = SAMPLE_DOCUMENTS
            .lines()
            .map(NewDocument::from_text)
            .collect();
        index.add(&chromadb.collection, &documents).await?;
    }
    Ok(index)
}

fn open_embedder(config: &Config, policy: &AddressPolicy) -> Result<Embedder> {
    let Some(url) = &config.embedding.url else {
        return Ok(Embedder::builtin());
    };
    let settings = EmbeddingEndpoint {
        url: url.clone(),
        model: config.embedding.model.clone().unwrap_or_default(),
        key: config.embedding.api_key.clone(),
        timeout: config
            .embedding
            .timeout_ms
            .map_or(EMBEDDING_TIMEOUT, Duration::from_millis),
        policy: policy.clone(),
        tls: ClientTls::default(),
    };
    Embedder::endpoint(&settings).context("cannot use the embedding endpoint of the settings")
}

fn open_sources(config: &Config, files: &DataFiles, tasks: &Tasks) -> Result<Vec<DataSource>> {
    let mut sources = Vec::new();
    if let Some(host) = &config.postgresql.host {
        let opened = open_postgresql(host, &config.postgresql, tasks);
        sources.push(opened.context("cannot use the database of the settings postgresql.*")?);
    }
    for (at, definition) in config.sources.iter().enumerate() {
        let opened = open_source(definition, tasks);
        sources.push(opened.with_context(|| format!("sources.{at} ({})", definition.name))?);
    }
    if config.sample_data {
        let path = files.path(SAMPLE_FILE);
        sources.push(DataSource::sqlite(
            "sample",
            &path,
            SourceSettings::default(),
            tasks,
        )?);
    }
    Ok(sources)
}

/// The database of document 000.
fn open_postgresql(host: &str, settings: &PostgresSettings, tasks: &Tasks) -> Result<DataSource> {
    let parse_mode = |it: &String| TlsMode::parse(it).ok_or(maru_postgres::Error::UnknownTlsMode);
    let server = PostgresServer {
        host: host.to_owned(),
        port: settings.port,
        user: settings.user.clone(),
        password: settings.password.clone(),
        database: settings.database.clone(),
        tls: TlsOptions {
            mode: settings.sslmode.as_ref().map(parse_mode).transpose()?,
            root_certificates: settings.sslrootcert.as_deref().map(RootCertificates::parse),
            client_certificate: settings.sslcert.as_ref().map(Into::into),
            client_key: settings.sslkey.as_ref().map(Into::into),
        },
    };
    Ok(DataSource::postgres(
        "bga",
        &PostgresAddress::from_server(&server)?,
        source_settings(&settings.bounds),
        tasks,
    )?)
}

pub(super) fn open_source(definition: &SourceDefinition, tasks: &Tasks) -> Result<DataSource> {
    let settings = source_settings(&definition.bounds);
    let (name, url) = (&definition.name, definition.url.reveal());
    Ok(match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => {
            DataSource::postgres(name, &PostgresAddress::parse(url)?, settings, tasks)?
        }
        Some(("sqlite", path)) => DataSource::sqlite(name, path.as_ref(), settings, tasks)?,
        None => DataSource::sqlite(name, url.as_ref(), settings, tasks)?,
        // The rest of the URL may be a password.
        Some((scheme, _)) => {
            let scheme: String = scheme.chars().take(20).collect();
            bail!("maru cannot read {scheme}://; use postgres://, or the path of an SQLite file")
        }
    })
}

fn source_settings(bounds: &QueryBounds) -> SourceSettings {
    SourceSettings {
        relations: bounds.relations.clone(),
        functions: bounds.functions.clone(),
        limits: QueryLimits {
            rows: bounds.max_rows,
            max_bytes: bounds.max_bytes,
            timeout: Duration::from_millis(bounds.timeout_ms),
            ..QueryLimits::default()
        },
        pool: PoolSettings {
            min_connections: bounds.min_connections.min(bounds.max_connections),
            max_connections: bounds.max_connections,
            acquire_timeout: Duration::from_millis(bounds.acquire_timeout_ms),
        },
        search_path: bounds.search_path.clone(),
        lock_timeout: Some(Duration::from_millis(bounds.lock_timeout_ms)),
        caller_settings: bounds.caller_settings.clone().into_iter().collect(),
        sample_values: bounds.sample_values,
    }
}
