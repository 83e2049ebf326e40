//! `mcp.json`: the servers with an address, as a list of names and addresses or as the
//! `mcpServers` of desktop clients. What the file holds and cannot be used stays in it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};

use super::{
    draft::{NamedDraft, ServerDraft, drafts_from_client_file},
    server::{InvalidField, RegisteredServer},
};

const CLIENT_SERVERS_KEY: &str = "mcpServers";
const VERSION_KEY: &str = "protocolVersion";

/// The file.
#[derive(Debug)]
pub(super) struct RegistryFile {
    path: PathBuf,
    /// Whether it is written when servers change.
    is_writable: bool,
    /// The rest of a file in the form of desktop clients; `None` for a list.
    client_file_rest: Option<Map<String, Value>>,
    /// Entries that could not be used.
    refused: Vec<RefusedEntry>,
    /// Entries that say more than a name and an address, each with its name as written.
    detailed_entries: BTreeMap<String, (String, Value)>,
}

/// An entry that stays in the file until a server of its name is registered.
#[derive(Debug)]
struct RefusedEntry {
    /// The name that it would be registered under, if it was understood.
    name: Option<String>,
    /// Its name as written.
    key: String,
    entry: Value,
}

/// The usable entries, and what is wrong with the others.
pub(super) type LoadedEntries = (Vec<ServerDraft>, Vec<(String, InvalidField)>);

impl RegistryFile {
    /// Reads the file, or makes an empty one if it may be written. A file that cannot be
    /// read is left alone, and so is maru.
    pub(super) fn load(path: &Path, writes: bool) -> Result<(Self, LoadedEntries), String> {
        let unusable =
            |why: String| format!("cannot use {}: {why}; it was not changed", path.display());
        let mut registry = Self {
            path: path.to_owned(),
            is_writable: writes,
            client_file_rest: None,
            refused: Vec::new(),
            detailed_entries: BTreeMap::new(),
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = registry.save(&[]);
                return made
                    .map(|()| (registry, LoadedEntries::default()))
                    .map_err(|error| unusable(error.to_string()));
            }
            Err(error) => return Err(unusable(error.kind().to_string())),
        };
        // Some editors put a mark before the text.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let text = maru_protocol::validate_json(text).map_err(|bad| unusable(bad.to_string()))?;
        let file: Value = serde_json::from_str(text).unwrap_or_default();
        let found = registry.read_entries(file).map_err(unusable)?;
        let entries = registry.partition_entries(found).map_err(unusable)?;
        Ok((registry, entries))
    }

    /// Every entry as it was written, with its name in messages and what it stands for.
    fn read_entries(&mut self, file: Value) -> Result<Vec<(NamedDraft, Value)>, String> {
        match file {
            Value::Array(found) => {
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
        let (mut good, mut bad) = LoadedEntries::default();
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for ((key, draft), entry) in found {
            match draft {
                Ok(draft) => {
                    let name = &draft.name;
                    if let Some(first) = seen.insert(name.clone(), key.clone()) {
                        let why = "rename or remove one";
                        return Err(format!("{first} and {key} are both named {name:?}; {why}"));
                    }
                    let says_more = entry.as_object().is_some_and(|it| it.len() > 2);
                    if says_more || draft.kind == "STDIO" || self.client_file_rest.is_some() {
                        self.detailed_entries.insert(name.clone(), (key, entry));
                    }
                    good.push(draft);
                }
                Err(why) => {
                    bad.push((key.clone(), why));
                    let name = None;
                    self.refused.push(RefusedEntry { name, key, entry });
                }
            }
        }
        Ok((good, bad))
    }

    /// An entry that was read but cannot be registered; it stays in the file.
    pub(super) fn retain_refused(&mut self, draft: &ServerDraft) {
        let name = &draft.name;
        let (key, entry) = self.detailed_entries.remove(name).unwrap_or_else(|| {
            let entry = json!({"name": name, "url": draft.config["url"]});
            (name.clone(), entry)
        });
        let name = Some(name.clone());
        self.refused.push(RefusedEntry { name, key, entry });
    }

    /// Writes the file anew, in the form that it had: whole, or not at all.
    pub(super) fn save(&self, servers: &[RegisteredServer]) -> io::Result<()> {
        if !self.is_writable {
            return Ok(());
        }
        let is_registered = |name: &str| servers.iter().any(|it| it.name.as_str() == name);
        let refused = self.refused.iter();
        let refused = refused.filter(|it| !it.name.as_deref().is_some_and(is_registered));
        let refused = refused.map(|it| (it.key.clone(), it.entry.clone()));
        let registered = servers.iter().filter_map(|it| self.entry_of(it));
        let entries = registered.chain(refused);
        let file: Value = match &self.client_file_rest {
            None => entries.map(|(_, entry)| entry).collect(),
            Some(rest) => {
                let mut file = rest.clone();
                file.insert(CLIENT_SERVERS_KEY.to_owned(), entries.collect());
                Value::Object(file)
            }
        };
        let text = serde_json::to_string_pretty(&file).map_err(io::Error::other)?;
        write_atomically(&self.path, &format!("{text}\n"))
    }

    /// The entry of a server with its name as written; none for a program that the file
    /// did not have.
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

    /// An entry that says no more than it must.
    fn minimal_entry(&self, name: &str, url: &str) -> Value {
        if self.client_file_rest.is_some() {
            json!({"url": url})
        } else {
            json!({"name": name, "url": url})
        }
    }
}

fn write_atomically(path: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let new = path.with_extension("json.new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // The rename itself must be on disk too.
    let folder = path
        .parent()
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
