//! `mcp.json`: the servers with an address, as a list of names and addresses.
//! What the file holds and cannot be used stays in it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{draft::Draft, server::Invalid};
use crate::mcp;

/// The file.
#[derive(Debug)]
pub(super) struct Registry {
    path: PathBuf,
    /// Entries that could not be used.
    refused: Vec<Value>,
    /// Entries that say more than a name and an address.
    longer: BTreeMap<String, Value>,
}

/// The usable entries, and what is wrong with the others.
pub(super) type Entries = (Vec<Draft>, Vec<(String, Invalid)>);

impl Registry {
    /// Reads the file, or makes an empty one. A file that cannot be read is left
    /// alone, and so is maru.
    pub(super) fn load(path: &Path) -> Result<(Self, Entries), String> {
        let unusable =
            |why: String| format!("cannot use {}: {why}; it was not changed", path.display());
        let mut registry = Self {
            path: path.to_owned(),
            refused: Vec::new(),
            longer: BTreeMap::new(),
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = registry.save(std::iter::empty());
                return made
                    .map(|()| (registry, Entries::default()))
                    .map_err(|error| unusable(error.to_string()));
            }
            Err(error) => return Err(unusable(error.kind().to_string())),
        };
        // Some editors put a mark before the text.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let text = mcp::check(text).map_err(|bad| unusable(bad.to_string()))?;
        let Ok(Value::Array(found)) = serde_json::from_str(text) else {
            return Err(unusable(
                "it must be a list: [{\"name\", \"url\"}]".to_owned(),
            ));
        };
        let entries = registry.sort(found);
        Ok((registry, entries))
    }

    fn sort(&mut self, found: Vec<Value>) -> Entries {
        let (mut good, mut bad) = Entries::default();
        for (at, entry) in found.into_iter().enumerate() {
            match Draft::from_list(&entry) {
                Ok(draft) => {
                    if entry.as_object().is_some_and(|it| it.len() > 2) || draft.kind == "STDIO" {
                        self.longer.insert(draft.name.clone(), entry);
                    }
                    good.push(draft);
                }
                Err(why) => {
                    bad.push((format!("entry {}", at + 1), why));
                    self.refused.push(entry);
                }
            }
        }
        (good, bad)
    }

    /// An entry that was read but cannot be registered; it stays in the file.
    pub(super) fn refuse(&mut self, draft: &Draft) {
        let entry = self.longer.remove(&draft.name);
        self.refused
            .push(entry.unwrap_or_else(|| json!({"name": draft.name, "url": draft.config["url"]})));
    }

    /// Writes the file anew: whole, or not at all.
    pub(super) fn save<'a>(
        &self,
        servers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    ) -> io::Result<()> {
        let entry = |(name, url): (&str, Option<&str>)| match (self.longer.get(name), url) {
            (Some(longer), url) if url.is_none_or(|url| longer["url"] == url) => {
                Some(longer.clone())
            }
            (_, Some(url)) => Some(json!({"name": name, "url": url})),
            _ => None,
        };
        let entries: Vec<Value> = servers
            .filter_map(entry)
            .chain(self.refused.iter().cloned())
            .collect();
        let text = serde_json::to_string_pretty(&entries).map_err(io::Error::other)?;
        write(&self.path, &format!("{text}\n"))
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
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
