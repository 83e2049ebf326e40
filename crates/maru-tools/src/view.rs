//! Tools, prompts and resources of one scope, with their listings as JSON.

use std::sync::{Arc, OnceLock};

use ahash::AHashMap;
use maru_protocol::{ProtocolVersion, remove_members};

use super::{
    entry::{CatalogEntry, CatalogEntryKind},
    search::estimate_tokens,
    server_uri,
};

/// All entries of one scope.
#[derive(Debug, Default)]
pub struct CatalogView {
    /// Tools by name.
    pub tools: EntryList,
    /// Prompts by name.
    pub prompts: EntryList,
    /// Resources by URI.
    pub resources: EntryList,
    /// Resource templates by URI template.
    pub templates: EntryList,
    /// Servers by name. No client lists them.
    pub(super) servers: EntryList,
}

/// Entries of one kind, sorted by key.
#[derive(Debug, Default)]
pub struct EntryList {
    entries: Vec<Arc<CatalogEntry>>,
    index: AHashMap<String, usize>,
    json: String,
    /// The listing for clients of a version with a handshake, if it differs.
    legacy_json: Option<String>,
    /// The listing for clients of a version without structured output, built on first use.
    unstructured_json: OnceLock<String>,
    /// About how many tokens the listing costs a model, counted on first use.
    tokens: OnceLock<usize>,
}

const MAX_URI_BYTES: usize = 2048;

impl CatalogView {
    /// Groups `entries` by kind; `key` is the name of an entry in this scope.
    pub(super) fn build(
        entries: &[Arc<CatalogEntry>],
        key: impl Fn(&CatalogEntry) -> &str + Copy,
    ) -> Self {
        let list = |kind: CatalogEntryKind| {
            let chosen = entries
                .iter()
                .filter(|it| it.kind == kind)
                .cloned()
                .collect();
            EntryList::build(chosen, key)
        };
        Self {
            tools: list(CatalogEntryKind::Tool),
            prompts: list(CatalogEntryKind::Prompt),
            resources: list(CatalogEntryKind::Resource),
            templates: list(CatalogEntryKind::ResourceTemplate),
            servers: list(CatalogEntryKind::Server),
        }
    }

    /// The view without the tools for which `off` is true.
    pub(super) fn without_tools(&self, off: impl Fn(&str) -> bool) -> Self {
        let kept = self
            .entries()
            .filter(|it| it.kind != CatalogEntryKind::Tool || !off(&it.key));
        let kept: Vec<Arc<CatalogEntry>> = kept.cloned().collect();
        Self::build(&kept, |entry| &entry.key)
    }

    /// Every entry of every kind.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<CatalogEntry>> {
        let lists = [
            &self.tools,
            &self.prompts,
            &self.resources,
            &self.templates,
            &self.servers,
        ];
        lists.into_iter().flat_map(|list| &list.entries)
    }

    /// Whether `tool` is one of its tools.
    pub(super) fn contains_tool(&self, tool: &CatalogEntry) -> bool {
        self.name_of(tool).is_some()
    }

    /// The name under which it lists `tool`, if that is one of its tools.
    pub(super) fn name_of<'a>(&self, tool: &'a CatalogEntry) -> Option<&'a str> {
        let mut names = [tool.listed_name(), tool.listed_key()].into_iter();
        let is_listed = |name: &&str| {
            let found = self.tools.get(name);
            found.is_some_and(|it| std::ptr::eq(&**it, tool))
        };
        names.find(is_listed)
    }

    /// The entry that `uri` is read from: a resource, a template, or for an address that is
    /// listed nowhere the tool whose user interface it is, or its server.
    pub(super) fn find_resource(&self, uri: &str) -> Option<&Arc<CatalogEntry>> {
        let server = server_uri::server_of(uri);
        // A template of another server may match anything.
        let is_of_server =
            |it: &&Arc<CatalogEntry>| server.is_none_or(|name| name == &**it.server());
        let template = || self.templates.find_template(uri, is_of_server);
        let interface = || {
            let mut tools = self.tools.entries.iter().filter(is_of_server);
            tools.find(|it| server.is_some() && it.ui_resource() == Some(uri))
        };
        let unlisted = || self.servers.get(server?);
        let listed = self.resources.get(uri).filter(is_of_server);
        listed
            .or_else(template)
            .or_else(interface)
            .or_else(unlisted)
    }

    /// The `list_changed` notifications for a client that saw `earlier`.
    pub fn changes_since(&self, earlier: &Self) -> Vec<&'static str> {
        let mut changed = Vec::new();
        if self.tools.json != earlier.tools.json {
            changed.push("notifications/tools/list_changed");
        }
        if self.prompts.json != earlier.prompts.json {
            changed.push("notifications/prompts/list_changed");
        }
        if self.resources.json != earlier.resources.json
            || self.templates.json != earlier.templates.json
        {
            changed.push("notifications/resources/list_changed");
        }
        changed
    }
}

impl EntryList {
    fn build(mut entries: Vec<Arc<CatalogEntry>>, key: impl Fn(&CatalogEntry) -> &str) -> Self {
        entries.sort_by(|a, b| key(a).cmp(key(b)));
        entries.dedup_by(|later, first| key(later) == key(first));
        let list = |members: fn(&CatalogEntry) -> &str| {
            let entries: Vec<String> = entries
                .iter()
                .map(|entry| listing_entry(entry.kind, key(entry), members(entry)))
                .collect();
            format!("[{}]", entries.join(","))
        };
        let json = list(|entry| &entry.listing_members);
        let differs = entries
            .iter()
            .any(|entry| entry.legacy_listing_members.is_some());
        let legacy_json = differs.then(|| {
            list(|entry| {
                entry
                    .legacy_listing_members
                    .as_ref()
                    .unwrap_or(&entry.listing_members)
            })
        });
        let index = entries
            .iter()
            .enumerate()
            .map(|(at, entry)| (key(entry).to_owned(), at));
        Self {
            index: index.collect(),
            json,
            legacy_json,
            unstructured_json: OnceLock::new(),
            tokens: OnceLock::new(),
            entries,
        }
    }

    /// The listing, a JSON array.
    pub fn json(&self) -> &str {
        if self.json.is_empty() {
            "[]"
        } else {
            &self.json
        }
    }

    /// The listing, a JSON array, for a client of this version.
    pub fn json_for(&self, version: ProtocolVersion) -> &str {
        if version.is_modern() {
            self.json()
        } else if version.has_structured_output() {
            self.legacy_json.as_deref().unwrap_or_else(|| self.json())
        } else {
            self.unstructured_json
                .get_or_init(|| without_output_schemas(self.json()))
        }
    }

    /// About how many tokens the listing costs a model.
    pub fn estimated_tokens(&self) -> usize {
        *self.tokens.get_or_init(|| estimate_tokens(self.json()))
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Every entry, sorted by key.
    pub fn entries(&self) -> &[Arc<CatalogEntry>] {
        &self.entries
    }

    /// The entry of this key.
    pub fn get(&self, key: &str) -> Option<&Arc<CatalogEntry>> {
        self.index.get(key).map(|at| &self.entries[*at])
    }

    /// The allowed template that matches `uri`.
    fn find_template(
        &self,
        uri: &str,
        is_allowed: impl Fn(&&Arc<CatalogEntry>) -> bool,
    ) -> Option<&Arc<CatalogEntry>> {
        let short = uri.len() <= MAX_URI_BYTES;
        let mut allowed = self.entries.iter().filter(is_allowed);
        allowed.find(|entry| short && template_matches(&entry.key, uri))
    }
}

fn without_output_schemas(listing: &str) -> String {
    let entries: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(listing).unwrap_or_default();
    let entries: Vec<_> = entries
        .iter()
        .map(|entry| remove_members(entry.get(), &["outputSchema"]))
        .collect();
    format!("[{}]", entries.join(","))
}

fn listing_entry(kind: CatalogEntryKind, key: &str, members: &str) -> String {
    let key_member = kind.key_member();
    let key = serde_json::Value::from(key);
    if members.is_empty() {
        format!("{{\"{key_member}\":{key}}}")
    } else {
        format!("{{\"{key_member}\":{key},{members}}}")
    }
}

/// Whether `uri` matches the template `a{x}b{y}`. A variable matches at least one character
/// other than `/` and ends at the next literal.
fn template_matches(pattern: &str, uri: &str) -> bool {
    let Some((fixed, rest)) = pattern.split_once('{') else {
        return pattern == uri;
    };
    let (Some(uri), Some((_, pattern))) = (uri.strip_prefix(fixed), rest.split_once('}')) else {
        return false;
    };
    let next = pattern.split('{').next().unwrap_or_default();
    let end = match next {
        "" => Some(uri.len()),
        next => uri
            .char_indices()
            .skip(1)
            .find(|(at, _)| uri[*at..].starts_with(next))
            .map(|(at, _)| at),
    };
    end.is_some_and(|end| {
        end > 0 && !uri[..end].contains('/') && template_matches(pattern, &uri[end..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_matches_the_whole_uri() {
        assert!(template_matches("doc://{id}", "doc://7"));
        assert!(template_matches("doc://{id}/data", "doc://가/data"));
        assert!(!template_matches("doc://{id}/data", "doc://1/2/data"));
        assert!(!template_matches("doc://{id}", "doc://"));
        assert!(!template_matches("doc://{id}", "file://7"));
        assert!(template_matches("doc://x", "doc://x"));
    }
}
