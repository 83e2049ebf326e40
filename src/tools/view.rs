//! What one listener sees: tools, prompts and resources, ready to be listed.

use std::sync::{Arc, OnceLock};

use ahash::AHashMap;
use maru_protocol::{ProtocolVersion, remove_members};

use super::entry::{CatalogEntry, CatalogEntryKind};

/// Everything in one scope.
#[derive(Debug, Default)]
pub struct CatalogView {
    /// Tools by name.
    pub tools: EntryList,
    /// Prompts by name.
    pub prompts: EntryList,
    /// Resources by address.
    pub resources: EntryList,
    /// Families of resources by pattern.
    pub templates: EntryList,
}

/// Offers of one kind, sorted by key.
#[derive(Debug, Default)]
pub struct EntryList {
    entries: Vec<Arc<CatalogEntry>>,
    index: AHashMap<String, usize>,
    json: String,
    /// The listing for clients of a version with a handshake, where it differs.
    legacy_json: Option<String>,
    /// The listing for clients of a version without structured output, made when one
    /// asks.
    unstructured_json: OnceLock<String>,
}

const MAX_URI_BYTES: usize = 2048;

impl CatalogView {
    /// Sorts `offers` by kind; `key` gives each its name here.
    pub(super) fn build(
        offers: &[Arc<CatalogEntry>],
        key: impl Fn(&CatalogEntry) -> &str + Copy,
    ) -> Self {
        let shelf = |kind: CatalogEntryKind| {
            let chosen = offers
                .iter()
                .filter(|it| it.kind == kind)
                .cloned()
                .collect();
            EntryList::build(chosen, key)
        };
        Self {
            tools: shelf(CatalogEntryKind::Tool),
            prompts: shelf(CatalogEntryKind::Prompt),
            resources: shelf(CatalogEntryKind::Resource),
            templates: shelf(CatalogEntryKind::ResourceTemplate),
        }
    }

    /// The same without some of its tools.
    pub(super) fn without_tools(&self, off: impl Fn(&str) -> bool) -> Self {
        let kept = self
            .entries()
            .filter(|it| it.kind != CatalogEntryKind::Tool || !off(&it.key));
        let kept: Vec<Arc<CatalogEntry>> = kept.cloned().collect();
        Self::build(&kept, |offer| &offer.key)
    }

    /// Every offer of every kind.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<CatalogEntry>> {
        let shelves = [&self.tools, &self.prompts, &self.resources, &self.templates];
        shelves.into_iter().flat_map(|shelf| &shelf.entries)
    }

    /// What is read at `uri`.
    pub(super) fn find_resource(&self, uri: &str) -> Option<&Arc<CatalogEntry>> {
        self.resources
            .get(uri)
            .or_else(|| self.templates.find_template(uri))
    }

    /// The `list_changed` notifications owed to someone who saw `earlier`.
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
                .map(|offer| listing_entry(offer.kind, key(offer), members(offer)))
                .collect();
            format!("[{}]", entries.join(","))
        };
        let json = list(|offer| &offer.listing_members);
        let differs = entries
            .iter()
            .any(|offer| offer.legacy_listing_members.is_some());
        let legacy_json = differs.then(|| {
            list(|offer| {
                offer
                    .legacy_listing_members
                    .as_ref()
                    .unwrap_or(&offer.listing_members)
            })
        });
        let index = entries
            .iter()
            .enumerate()
            .map(|(at, offer)| (key(offer).to_owned(), at));
        Self {
            index: index.collect(),
            json,
            legacy_json,
            unstructured_json: OnceLock::new(),
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

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Every offer, sorted by key.
    pub fn entries(&self) -> &[Arc<CatalogEntry>] {
        &self.entries
    }

    /// The offer of this key.
    pub fn get(&self, key: &str) -> Option<&Arc<CatalogEntry>> {
        self.index.get(key).map(|at| &self.entries[*at])
    }

    /// The template whose pattern fits `uri`.
    pub(super) fn find_template(&self, uri: &str) -> Option<&Arc<CatalogEntry>> {
        let short = uri.len() <= MAX_URI_BYTES;
        self.entries
            .iter()
            .find(|offer| short && template_matches(&offer.key, uri))
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

/// Whether `uri` can come from the simple pattern `a{x}b{y}`; a variable
/// stands for at least one character without `/`, and ends at the next `b`.
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
    fn patterns_fit_whole_addresses() {
        assert!(template_matches("doc://{id}", "doc://7"));
        assert!(template_matches("doc://{id}/data", "doc://가/data"));
        assert!(!template_matches("doc://{id}/data", "doc://1/2/data"));
        assert!(!template_matches("doc://{id}", "doc://"));
        assert!(!template_matches("doc://{id}", "file://7"));
        assert!(template_matches("doc://x", "doc://x"));
    }
}
