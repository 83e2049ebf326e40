//! What the data tools work on: the embedder, the index, the sources.

use std::{mem, time::Duration};

use anyhow::{Context as _, Result};
use maru_http::{AddressPolicy, ClientTls};
use maru_postgres::{PostgresAddress, PostgresServer};
use maru_retrieval::{ChromaEndpoint, DocumentIndex, Embedder, EmbeddingEndpoint, NewDocument};
use maru_runtime::tasks::Tasks;
use maru_sources::{DataSource, QueryLimits, QueryObserver, SourceSettings, write_sample};

use super::data_directory::{self, DataFiles};
use crate::{
    config::{Config, SourceDefinition},
    tools::{
        SampleData,
        builtin::{self, DataContext, SAMPLE_LIMITS},
    },
};

pub(super) const INDEX_FILE: &str = "index.db";
pub(super) const SAMPLE_FILE: &str = "sample.db";
/// How long a batch of texts, or a search, may take where nothing is said.
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(30);
/// What there is to find before anything was added: the columns of the sample data.
const SAMPLE_DOCUMENTS: &str = include_str!("sample_documents.txt");

/// Opens the data of the sample tools, making it if it is not there.
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

/// Opens what the data tools work on.
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
        flag_sql_errors: config.sql_error_flag,
    })
}

/// The index alone, for the command line.
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
    let postgresql = &config.postgresql;
    if let Some(host) = &postgresql.host {
        let server = PostgresServer {
            host: host.clone(),
            port: postgresql.port,
            user: postgresql.user.clone(),
            password: postgresql.password.clone(),
            database: postgresql.database.clone(),
        };
        let opened = DataSource::postgres(
            "bga",
            &PostgresAddress::from(&server),
            SourceSettings::default(),
            tasks,
        );
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

pub(super) fn open_source(definition: &SourceDefinition, tasks: &Tasks) -> Result<DataSource> {
    let settings = SourceSettings {
        relations: definition.relations.clone(),
        functions: definition.functions.clone(),
        limits: QueryLimits {
            rows: definition.max_rows,
            max_bytes: definition.max_bytes,
            timeout: Duration::from_millis(definition.timeout_ms),
            request: None,
        },
    };
    let url = definition.url.reveal();
    Ok(
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            DataSource::postgres(
                &definition.name,
                &PostgresAddress::parse(url)?,
                settings,
                tasks,
            )?
        } else {
            DataSource::sqlite(
                &definition.name,
                url.trim_start_matches("sqlite://").as_ref(),
                settings,
                tasks,
            )?
        },
    )
}
