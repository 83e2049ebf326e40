//! Reads and writes `mcp.json`: the remote servers, as a list of names and URLs or in the
//! `mcpServers` form of desktop clients. Unusable entries are preserved.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use maru_runtime::{
    files::{file_error_reason, read_file},
    permissions::{private_file, sync_directory},
};
use serde_json::{Map, Value, json};

use super::{
    draft::{NamedDraft, ServerDraft, drafts_from_client_file, normalize_name},
    server::{InvalidField, RegisteredServer},
};

const CLIENT_SERVERS_KEY: &str = "mcpServers";
const VERSION_KEY: &str = "protocolVersion";

/// The content of `mcp.json` and the paths to write.
#[derive(Debug)]
pub(super) struct RegistryFile {
    path: PathBuf,
    /// The file that records the names maru wrote into `mcp.json`; `None` if neither file
    /// is written.
    record_path: Option<PathBuf>,
    /// The other members of a file in the form of desktop clients; `None` for a list.
    client_file_rest: Option<Map<String, Value>>,
    /// The names that maru wrote into the file before.
    recorded_names: BTreeSet<String>,
    /// All names that the file listed when it was read, usable or not.
    listed_names: BTreeSet<String>,
    /// Whether the file has entries whose name cannot be read, each of which may be any
    /// server.
    has_nameless_entries: bool,
    /// Unusable entries, which are written back.
    refused: Vec<RefusedEntry>,
    /// Entries with more than a name and a URL, each with its name as written.
    detailed_entries: BTreeMap<String, (String, Value)>,
}

/// An unusable entry, preserved until a server of its name is registered.
#[derive(Debug)]
struct RefusedEntry {
    /// The normalized server name, if the entry could be parsed.
    name: Option<String>,
    /// The name as written.
    key: String,
    entry: Value,
}

/// The usable entries, and the errors of the others.
pub(super) type LoadedEntries = (Vec<ServerDraft>, Vec<(String, InvalidField)>);

impl RegistryFile {
    /// Reads the file; a missing one counts as an empty list. A file that cannot be
    /// parsed is an error and is not changed.
    pub(super) fn load(
        path: &Path,
        record_path: Option<&Path>,
    ) -> Result<(Self, LoadedEntries), String> {
        let unusable = |reason: String| {
            format!(
                "cannot use {}: {reason}; it was not changed",
                path.display()
            )
        };
        let mut registry = Self {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            record_path: record_path.map(Path::to_owned),
            client_file_rest: None,
            recorded_names: BTreeSet::new(),
            listed_names: BTreeSet::new(),
            has_nameless_entries: false,
            refused: Vec::new(),
            detailed_entries: BTreeMap::new(),
        };
        if let Some(record_path) = record_path {
            registry.recorded_names = read_record(record_path, &registry.path)?;
        }
        let bytes = match read_file(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A missing file does not mean that its servers were deleted one by one.
                registry.listed_names.clone_from(&registry.recorded_names);
                return Ok((registry, LoadedEntries::default()));
            }
            Err(error) => return Err(unusable(file_error_reason(&error))),
        };
        // Some editors write a byte order mark.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let text =
            maru_protocol::validate_json(text).map_err(|error| unusable(error.to_string()))?;
        let file: Value = serde_json::from_str(text).unwrap_or_default();
        let found = registry.parse_entries(file).map_err(unusable)?;
        let entries = registry.partition_entries(found).map_err(unusable)?;
        Ok((registry, entries))
    }

    /// Returns the names that maru wrote and that were deleted since; none while the
    /// file is damaged.
    pub(super) fn deleted_names(&self) -> BTreeSet<String> {
        if self.has_nameless_entries {
            return BTreeSet::new();
        }
        let deleted = self.recorded_names.difference(&self.listed_names);
        deleted.cloned().collect()
    }

    /// Returns every entry as written, with its name for messages and its parsed draft.
    fn parse_entries(&mut self, file: Value) -> Result<Vec<(NamedDraft, Value)>, String> {
        match file {
            Value::Array(found) => {
                self.has_nameless_entries = found.iter().any(|it| !it["name"].is_string());
                let names = found.iter().filter_map(|it| it["name"].as_str());
                self.listed_names = names.map(str::to_owned).collect();
                let entry = |(at, entry): (usize, Value)| {
                    let draft = ServerDraft::from_list_entry(&entry);
                    ((format!("entry {}", at + 1), draft), entry)
                };
                Ok(found.into_iter().enumerate().map(entry).collect())
            }
            Value::Object(mut rest)
                if rest.get(CLIENT_SERVERS_KEY).is_some_and(Value::is_object) =>
            {
                let inner = rest.remove(CLIENT_SERVERS_KEY).unwrap_or_default();
                self.client_file_rest = Some(rest);
                let file = json!({CLIENT_SERVERS_KEY: inner});
                let named = drafts_from_client_file(&file).map_err(|it| it.to_string())?;
                self.listed_names = named.iter().map(|(key, _)| normalize_name(key)).collect();
                let entry = |(key, draft): NamedDraft| {
                    let entry = file[CLIENT_SERVERS_KEY][&key].clone();
                    ((key, draft), entry)
                };
                Ok(named.into_iter().map(entry).collect())
            }
            _ => {
                Err("it must be a list, [{\"name\", \"url\"}], or {\"mcpServers\": {…}}".to_owned())
            }
        }
    }

    fn partition_entries(
        &mut self,
        found: Vec<(NamedDraft, Value)>,
    ) -> Result<LoadedEntries, String> {
        let (mut usable, mut unusable) = LoadedEntries::default();
        let mut keys: BTreeMap<String, String> = BTreeMap::new();
        for ((key, draft), entry) in found {
            match draft {
                Ok(draft) => {
                    let name = &draft.name;
                    if let Some(first) = keys.insert(name.clone(), key.clone()) {
                        return Err(format!(
                            "{first} and {key} are both named {name:?}; rename or remove one"
                        ));
                    }
                    let says_more = entry.as_object().is_some_and(|it| it.len() > 2);
                    if says_more || draft.kind == "STDIO" || self.client_file_rest.is_some() {
                        self.detailed_entries.insert(name.clone(), (key, entry));
                    }
                    usable.push(draft);
                }
                Err(error) => {
                    unusable.push((key.clone(), error));
                    let name = None;
                    self.refused.push(RefusedEntry { name, key, entry });
                }
            }
        }
        Ok((usable, unusable))
    }

    /// Preserves an entry that was parsed but cannot be registered.
    pub(super) fn retain_refused(&mut self, draft: &ServerDraft) {
        let name = &draft.name;
        let (key, entry) = self.detailed_entries.remove(name).unwrap_or_else(|| {
            let entry = json!({"name": name, "url": draft.config["url"]});
            (name.clone(), entry)
        });
        let name = Some(name.clone());
        self.refused.push(RefusedEntry { name, key, entry });
    }

    /// Writes the file atomically in the form it had, unless nothing changed; then
    /// records which servers it lists.
    pub(super) fn save(&self, servers: &[RegisteredServer]) -> io::Result<()> {
        let Some(record_path) = &self.record_path else {
            return Ok(());
        };
        let is_registered = |name: &str| servers.iter().any(|it| it.name.as_str() == name);
        let refused = self.refused.iter();
        let refused = refused.filter(|it| !it.name.as_deref().is_some_and(is_registered));
        let refused = refused.map(|it| (it.key.clone(), it.entry.clone()));
        let mut names = Vec::new();
        let mut entries = Vec::new();
        for server in servers {
            if let Some(entry) = self.entry_of(server) {
                names.push(server.name.as_str());
                entries.push(entry);
            }
        }
        let entries = entries.into_iter().chain(refused);
        let file: Value = match &self.client_file_rest {
            None => entries.map(|(_, entry)| entry).collect(),
            Some(rest) => {
                let mut file = rest.clone();
                file.insert(CLIENT_SERVERS_KEY.to_owned(), entries.collect());
                Value::Object(file)
            }
        };
        write_if_changed(&self.path, &file)?;
        // Written last, because a recorded name must have been in the file.
        let record = json!({"file": self.path, "names": names});
        write_if_changed(record_path, &record)
    }

    /// Returns the entry of a server with its name as written; `None` for a program that
    /// the file did not list.
    fn entry_of(&self, server: &RegisteredServer) -> Option<(String, Value)> {
        let (name, url) = (server.name.as_str(), server.transport.url());
        let has_url = |entry: &Value, url: &str| entry["url"] == url || entry["serverUrl"] == url;
        let (key, mut entry) = match (self.detailed_entries.get(name), url) {
            (Some((key, longer)), url) if url.is_none_or(|url| has_url(longer, url)) => {
                (key.clone(), longer.clone())
            }
            (_, Some(url)) => (name.to_owned(), self.minimal_entry(name, url)),
            _ => return None,
        };
        if let Value::Object(members) = &mut entry {
            match server.required_version {
                Some(version) => members.insert(VERSION_KEY.to_owned(), version.as_str().into()),
                None => members.remove(VERSION_KEY),
            };
        }
        Some((key, entry))
    }

    /// Builds an entry of only a name and a URL.
    fn minimal_entry(&self, name: &str, url: &str) -> Value {
        if self.client_file_rest.is_some() {
            json!({"url": url})
        } else {
            json!({"name": name, "url": url})
        }
    }
}

/// Returns the names that maru wrote into the file `registry`. Without them, the servers of
/// entries that were deleted since would return, so a damaged record is an error.
fn read_record(path: &Path, registry: &Path) -> Result<BTreeSet<String>, String> {
    let damaged = |reason: String| {
        format!(
            "cannot use {}: {reason}. It records which servers maru wrote into mcp.json, so that a server is removed when its entry is deleted there. Restore it; or delete it, and every registered server stays and is written into mcp.json again",
            path.display()
        )
    };
    let record = match read_json(path) {
        Ok(record) => record,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(damaged(file_error_reason(&error))),
    };
    let names = record["names"].as_array().into_iter().flatten();
    let names: Option<BTreeSet<String>> = names.map(|it| Some(it.as_str()?.to_owned())).collect();
    match (names, record["file"].as_str()) {
        (Some(names), Some(file)) if Path::new(file) == registry => Ok(names),
        (Some(_of_another_file), Some(_)) => Ok(BTreeSet::new()),
        _ => Err(damaged("it has no list of names".to_owned())),
    }
}

fn read_json(path: &Path) -> io::Result<Value> {
    Ok(serde_json::from_slice(&read_file(path)?)?)
}

/// Writes a file unless it already holds this value: it may be under version control, or
/// in a read-only directory.
fn write_if_changed(path: &Path, value: &Value) -> io::Result<()> {
    if read_json(path).is_ok_and(|it| it == *value) {
        return Ok(());
    }
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    write_atomically(path, &format!("{text}\n"))
}

fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    // The file behind a symbolic link is replaced, not the link.
    let target = fs::canonicalize(path);
    let path = target.as_deref().unwrap_or(path);
    let new = path.with_extension("json.new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let mut file = private_file(&mut options).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The directory is synced so that the rename is durable.
    let folder = path
        .parent()
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    sync_directory(folder)
}
