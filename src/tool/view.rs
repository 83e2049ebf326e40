//! What one listener sees: tools, prompts and resources, ready to be listed.

use std::sync::Arc;

use ahash::AHashMap;

use super::offer::{Kind, Offer};

/// Everything in one scope.
#[derive(Debug, Default)]
pub struct View {
    /// Tools by name.
    pub tools: Shelf,
    /// Prompts by name.
    pub prompts: Shelf,
    /// Resources by address.
    pub resources: Shelf,
    /// Families of resources by pattern.
    pub templates: Shelf,
}

/// Offers of one kind, sorted by key.
#[derive(Debug, Default)]
pub struct Shelf {
    offers: Vec<Arc<Offer>>,
    index: AHashMap<String, usize>,
    json: String,
    /// The listing for clients of a version with a handshake, where it differs.
    legacy: Option<String>,
}

const MAX_URI: usize = 2048;

impl View {
    /// Sorts `offers` by kind; `key` gives each its name here.
    pub(super) fn build(offers: &[Arc<Offer>], key: impl Fn(&Offer) -> &str + Copy) -> Self {
        let shelf = |kind: Kind| {
            let chosen = offers
                .iter()
                .filter(|it| it.kind == kind)
                .cloned()
                .collect();
            Shelf::build(chosen, key)
        };
        Self {
            tools: shelf(Kind::Tool),
            prompts: shelf(Kind::Prompt),
            resources: shelf(Kind::Resource),
            templates: shelf(Kind::Template),
        }
    }

    /// The same without some of its tools.
    pub(super) fn without_tools(&self, off: impl Fn(&str) -> bool) -> Self {
        let kept = self
            .offers()
            .filter(|it| it.kind != Kind::Tool || !off(&it.key));
        let kept: Vec<Arc<Offer>> = kept.cloned().collect();
        Self::build(&kept, |offer| &offer.key)
    }

    /// Every offer of every kind.
    pub(super) fn offers(&self) -> impl Iterator<Item = &Arc<Offer>> {
        let shelves = [&self.tools, &self.prompts, &self.resources, &self.templates];
        shelves.into_iter().flat_map(|shelf| &shelf.offers)
    }

    /// What is read at `uri`.
    pub(super) fn resource(&self, uri: &str) -> Option<&Arc<Offer>> {
        self.resources
            .get(uri)
            .or_else(|| self.templates.fitting(uri))
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

impl Shelf {
    fn build(mut offers: Vec<Arc<Offer>>, key: impl Fn(&Offer) -> &str) -> Self {
        offers.sort_by(|a, b| key(a).cmp(key(b)));
        offers.dedup_by(|later, first| key(later) == key(first));
        let list = |members: fn(&Offer) -> &str| {
            let entries: Vec<String> = offers
                .iter()
                .map(|offer| entry(offer.kind, key(offer), members(offer)))
                .collect();
            format!("[{}]", entries.join(","))
        };
        let json = list(|offer| &offer.members);
        let differs = offers.iter().any(|offer| offer.legacy_members.is_some());
        let legacy =
            differs.then(|| list(|offer| offer.legacy_members.as_ref().unwrap_or(&offer.members)));
        let index = offers
            .iter()
            .enumerate()
            .map(|(at, offer)| (key(offer).to_owned(), at));
        Self {
            index: index.collect(),
            json,
            legacy,
            offers,
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

    /// The listing for a client of a version with a handshake.
    pub fn legacy_json(&self) -> &str {
        self.legacy.as_deref().unwrap_or_else(|| self.json())
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.index.keys().map(String::as_str)
    }

    /// Every offer, sorted by key.
    pub fn offers(&self) -> &[Arc<Offer>] {
        &self.offers
    }

    /// The offer of this key.
    pub fn get(&self, key: &str) -> Option<&Arc<Offer>> {
        self.index.get(key).map(|at| &self.offers[*at])
    }

    /// The template whose pattern fits `uri`.
    pub(super) fn fitting(&self, uri: &str) -> Option<&Arc<Offer>> {
        let short = uri.len() <= MAX_URI;
        self.offers
            .iter()
            .find(|offer| short && fits(&offer.key, uri))
    }
}

fn entry(kind: Kind, key: &str, members: &str) -> String {
    let key_member = kind.key_member();
    let key = serde_json::Value::from(key);
    match members.is_empty() {
        true => format!("{{\"{key_member}\":{key}}}"),
        false => format!("{{\"{key_member}\":{key},{members}}}"),
    }
}

/// Whether `uri` can come from the simple pattern `a{x}b{y}`; a variable
/// stands for at least one character without `/`, and ends at the next `b`.
fn fits(pattern: &str, uri: &str) -> bool {
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
    end.is_some_and(|end| end > 0 && !uri[..end].contains('/') && fits(pattern, &uri[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_addresses() {
        assert!(fits("doc://{id}", "doc://7"));
        assert!(fits("doc://{id}/data", "doc://가/data"));
        assert!(!fits("doc://{id}/data", "doc://1/2/data"));
        assert!(!fits("doc://{id}", "doc://"));
        assert!(!fits("doc://{id}", "file://7"));
        assert!(fits("doc://x", "doc://x"));
    }
}
