//! What the source manager is built from: how sources are opened, checked and combined.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use maru_http::AddressPolicy;
use maru_runtime::{MASK, tasks::Tasks};
use maru_sources::{DataSource, QueryObserver};
use maru_store::Store;
use serde_json::Value;

use super::{SAMPLE_NAME, SourceError};
use crate::{
    builtin::{self, DataContext},
    entry::CatalogEntry,
};
use maru_config::SourceDefinition;

/// What the manager is built from.
#[derive(Debug)]
pub struct SourceOptions {
    /// Keeps the added sources.
    pub store: Store,
    /// The hub's tasks; their stop also stops the added sources.
    pub tasks: Tasks,
    /// Opens a source from its settings.
    pub open: OpenSource,
    /// Observes the queries of every source.
    pub observer: QueryObserver,
    /// Sources of the settings, in order.
    pub from_settings: Vec<DataSource>,
    /// The sample source and its tools, unless the settings switch them off.
    pub sample: Option<SampleData>,
    /// maru's own tools that read no source.
    pub other_entries: Vec<Arc<CatalogEntry>>,
    /// Embedder, index and collection of the data tools.
    pub context: DataContext,
    /// Which hosts an added source may be at.
    pub address_policy: AddressPolicy,
    /// Whether SQLite files may be added.
    pub allows_files: bool,
    /// The directory of the hub's own files, which cannot be sources.
    pub data_dir: PathBuf,
}

/// Opens a source from its settings.
pub type OpenSource = fn(&SourceDefinition, &Tasks) -> anyhow::Result<DataSource>;

/// The sample database and the tools over it.
#[derive(Debug)]
pub struct SampleData {
    /// The database.
    pub source: DataSource,
    /// Its tools.
    pub entries: Vec<Arc<CatalogEntry>>,
}

/// When the sample tools are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleMode {
    /// While no other source is set up.
    Auto,
    /// Always.
    On,
    /// Never; the sample source is not available either.
    Off,
}

#[derive(Debug)]
pub(super) struct SourceState {
    pub(super) added: BTreeMap<String, AddedSource>,
    pub(super) sample_mode: SampleMode,
}

/// A source that was added while the hub runs.
#[derive(Debug)]
pub(super) struct AddedSource {
    pub(super) definition: Value,
    pub(super) opened: Result<DataSource, String>,
    /// The tasks of the source.
    pub(super) tasks: Tasks,
}

impl SourceOptions {
    pub(super) fn open_added(&self, name: &str, definition: Value) -> AddedSource {
        let tasks = Tasks::default();
        let (own, hub_stop) = (tasks.clone(), self.tasks.stop_token());
        self.tasks.spawn(async move {
            let source_stop = own.stop_token();
            tokio::select! {
                () = hub_stop.cancelled() => (),
                () = source_stop.cancelled() => (),
            }
            own.shutdown().await;
        });
        let mut named = definition.clone();
        named["name"] = name.into();
        let parsed = serde_json::from_value::<SourceDefinition>(named);
        let opened = match parsed {
            Ok(parsed) => (self.open)(&parsed, &tasks)
                .map(|it| it.with_observer(self.observer.clone()))
                .map_err(|error| format!("{error:#}")),
            Err(_) if maru_store::is_sealed(definition.as_str().unwrap_or_default()) => {
                Err("its settings are sealed with another key".to_owned())
            }
            Err(_) => Err("its settings cannot be read".to_owned()),
        };
        AddedSource {
            definition,
            opened,
            tasks,
        }
    }

    pub(super) fn build_context(&self, state: &SourceState) -> DataContext {
        let added = state.added.values();
        let added = added.filter_map(|it| it.opened.as_ref().ok());
        DataContext {
            sources: self.all_sources(added, state.sample_mode),
            ..self.context.clone()
        }
    }

    /// All sources, in the order in which the first is found.
    pub(super) fn all_sources<'a>(
        &'a self,
        added: impl Iterator<Item = &'a DataSource>,
        sample_mode: SampleMode,
    ) -> Arc<[DataSource]> {
        let sample = self.sample.iter().map(|it| &it.source);
        let sample = sample.filter(|_| sample_mode != SampleMode::Off);
        let sources = self.from_settings.iter().chain(added).chain(sample);
        sources.cloned().collect()
    }

    pub(super) fn build_entries(
        &self,
        state: &SourceState,
        context: &DataContext,
    ) -> Vec<Arc<CatalogEntry>> {
        let mut entries = self.other_entries.clone();
        if let Some(sample) = self
            .sample
            .as_ref()
            .filter(|_| self.offers_sample_tools(state))
        {
            entries.extend(sample.entries.iter().cloned());
        }
        entries.extend(builtin::data(context));
        entries
    }

    pub(super) fn offers_sample_tools(&self, state: &SourceState) -> bool {
        self.sample.is_some()
            && match state.sample_mode {
                SampleMode::On => true,
                SampleMode::Off => false,
                SampleMode::Auto => self.from_settings.is_empty() && state.added.is_empty(),
            }
    }

    pub(super) fn is_fixed(&self, name: &str) -> bool {
        self.from_settings.iter().any(|it| it.name() == name)
    }

    pub(super) fn not_added(&self, name: &str) -> SourceError {
        if self.is_fixed(name) || name == SAMPLE_NAME {
            SourceError::FromSettings(name.to_owned())
        } else {
            SourceError::UnknownSource(name.chars().take(100).collect())
        }
    }

    /// Refuses addresses that an admin may not add over HTTP: the hub's own files, all files
    /// if other machines can reach the hub, and hosts that the settings do not allow.
    pub(super) fn check_address(&self, url: &str, policy: &AddressPolicy) -> Result<(), String> {
        if url.contains(MASK) {
            return Err("type the password: a masked one was given".to_owned());
        }
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) => (),
            None => return self.check_file(Path::new(url)),
            Some(("sqlite", path)) => return self.check_file(Path::new(path)),
            // Opening it says which databases can be read.
            Some(_) => return Ok(()),
        }
        for host in postgres_hosts(url)? {
            let host = match host.parse::<IpAddr>() {
                Ok(IpAddr::V6(address)) => format!("[{address}]"),
                _ => host,
            };
            // The policy checks HTTP URLs, so the host is checked as one; its port does not matter.
            let probe = format!("http://{host}:80/");
            policy.authorize(&probe).map_err(|error| {
                error.to_string().replace(
                    &format!("the address {probe:?}"),
                    &format!("the host {host:?}"),
                )
            })?;
        }
        Ok(())
    }

    pub(super) fn check_file(&self, path: &Path) -> Result<(), String> {
        if !self.allows_files {
            return Err(
                "files are added in maru.yaml where other machines reach this hub".to_owned(),
            );
        }
        let real = path
            .canonicalize()
            .map_err(|_| "there is no such file".to_owned())?;
        let own = self.data_dir.canonicalize();
        if own.is_ok_and(|own| real.starts_with(own)) {
            return Err("the hub's own files are no source".to_owned());
        }
        Ok(())
    }
}

impl SampleMode {
    /// The mode of this name; anything else is `Auto`.
    pub fn parse(name: &str) -> Self {
        match name {
            "on" => Self::On,
            "off" => Self::Off,
            _ => Self::Auto,
        }
    }

    /// Its name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The hosts of a PostgreSQL address, as the driver parses it.
fn postgres_hosts(url: &str) -> Result<Vec<String>, String> {
    let address = maru_postgres::PostgresAddress::parse(url).map_err(|error| error.to_string())?;
    let hosts = address.hosts();
    if hosts.iter().any(|it| it.starts_with('/')) {
        return Err("sockets of this machine are set in maru.yaml".to_owned());
    }
    Ok(hosts)
}
