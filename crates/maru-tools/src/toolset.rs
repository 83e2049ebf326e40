//! Toolsets: named selections of the catalog.

use std::{collections::BTreeMap, sync::Arc};

use maru_config::ToolsetDefinition;
use thiserror::Error;

use super::entry::{CatalogEntry, CatalogEntryKind};

/// The toolsets by name.
pub type Toolsets = BTreeMap<Arc<str>, Arc<Toolset>>;

/// A toolset, ready to select entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toolset {
    definition: ToolsetDefinition,
    include: Vec<EntrySelector>,
    exclude: Vec<EntrySelector>,
}

/// Why a definition is not a toolset.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct InvalidToolset {
    /// The member that is wrong.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Selects entries of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EntrySelector {
    /// Tools by name; `*` stands for any text.
    Name(String),
    /// Everything of one server.
    Server(String),
    /// Tools with this tag.
    Tag(String),
    /// Tools that declare this annotation as true.
    Annotation(String),
}

const MAX_SELECTORS: usize = 1000;
const MAX_SELECTOR_BYTES: usize = 200;
const MAX_TEXT_CHARS: usize = 20_000;

impl Toolset {
    /// Checks a definition.
    pub fn new(definition: ToolsetDefinition) -> Result<Self, InvalidToolset> {
        let invalid = |field, message: &str| InvalidToolset {
            field,
            message: message.to_owned(),
        };
        if !is_toolset_name(&definition.name) {
            let message = "a toolset's name has 1 to 63 of a-z, 0-9, - and _";
            return Err(invalid("name", message));
        }
        let texts = [&definition.description, &definition.instructions];
        let is_long = |it: &Option<String>| {
            it.as_ref()
                .is_some_and(|it| it.chars().count() > MAX_TEXT_CHARS)
        };
        if texts.into_iter().any(is_long) {
            let message = format!("is longer than {MAX_TEXT_CHARS} characters");
            return Err(invalid("instructions", &message));
        }
        if definition.favorites.len() > MAX_FAVORITES {
            let message = format!("has more than {MAX_FAVORITES} names");
            return Err(invalid("favorites", &message));
        }
        if definition.include.is_empty() {
            let message = "names no tool; \"*\" selects all";
            return Err(invalid("include", message));
        }
        Ok(Self {
            include: parse_selectors("include", &definition.include)?,
            exclude: parse_selectors("exclude", &definition.exclude)?,
            definition,
        })
    }

    /// What it was made from.
    pub fn definition(&self) -> &ToolsetDefinition {
        &self.definition
    }

    /// Whether it contains `entry`. Prompts and resources belong to it with their server.
    pub(super) fn contains(&self, entry: &CatalogEntry) -> bool {
        let selects = |all: &[EntrySelector]| all.iter().any(|it| it.selects(entry));
        selects(&self.include) && !selects(&self.exclude)
    }

    /// Whether a tool with one of these names, of a server that is not connected, may belong
    /// to it. Tags and annotations are unknown then.
    pub(super) fn may_contain(&self, server: &str, tool_names: &[&str]) -> bool {
        let may_select = |it: &EntrySelector| match it {
            EntrySelector::Name(pattern) => {
                tool_names.iter().any(|it| matches_pattern(pattern, it))
            }
            EntrySelector::Server(name) => name == server,
            EntrySelector::Tag(_) | EntrySelector::Annotation(_) => true,
        };
        self.include.iter().any(may_select)
    }
}

/// The most favorites that a search lists.
const MAX_FAVORITES: usize = 100;

impl EntrySelector {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > MAX_SELECTOR_BYTES {
            return None;
        }
        match text.split_once(':') {
            None => Some(Self::Name(text.to_owned())),
            Some((_, "")) => None,
            Some(("server", name)) => Some(Self::Server(name.to_owned())),
            Some(("tag", name)) => Some(Self::Tag(name.to_owned())),
            Some(("annotation", name)) => Some(Self::Annotation(name.to_owned())),
            Some(_) => None,
        }
    }

    fn selects(&self, entry: &CatalogEntry) -> bool {
        let is_tool = entry.kind() == CatalogEntryKind::Tool;
        match self {
            Self::Server(name) => **name == **entry.server(),
            Self::Name(pattern) => {
                let matches = |name: &str| matches_pattern(pattern, name);
                is_tool
                    && (matches(entry.public_name())
                        || matches(entry.listed_name())
                        || matches(&entry.qualified_name()))
            }
            Self::Tag(name) => is_tool && entry.tags().iter().any(|it| it == name),
            Self::Annotation(name) => is_tool && entry.declares_annotation(name),
        }
    }
}

fn parse_selectors(
    field: &'static str,
    texts: &[String],
) -> Result<Vec<EntrySelector>, InvalidToolset> {
    if texts.len() > MAX_SELECTORS {
        let message = format!("has more than {MAX_SELECTORS} entries");
        return Err(InvalidToolset { field, message });
    }
    let parse = |text: &String| {
        EntrySelector::parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(100).collect();
            let message = format!(
                "{shown:?} is neither a name of tools, with * for any text, nor server:NAME, tag:NAME or annotation:NAME"
            );
            InvalidToolset { field, message }
        })
    };
    texts.iter().map(parse).collect()
}

fn is_toolset_name(name: &str) -> bool {
    let is_allowed = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    (1..=63).contains(&name.len())
        && is_allowed(name.as_bytes()[0])
        && name
            .bytes()
            .all(|it| is_allowed(it) || it == b'-' || it == b'_')
}

/// Whether `name` matches a pattern in which `*` stands for any text. Linear in both: each
/// part is looked for once, from left to right.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(first) else {
        return false;
    };
    let Some((middle, last)) = rest.rsplit_once('*') else {
        return name.ends_with(rest);
    };
    for part in middle.split('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_the_whole_name() {
        for (pattern, name) in [
            ("echo", "echo"),
            ("*", ""),
            ("files__*", "files__read"),
            ("*read*", "files__read_all"),
            ("a*b*c", "a-b-b-c"),
            ("a*a", "aba"),
            ("**", "x"),
        ] {
            assert!(matches_pattern(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("echo", "echo2"),
            ("files__*", "file__read"),
            ("a*a", "a"),
            ("a*b*b", "a-b"),
            ("*x", "xy"),
        ] {
            assert!(!matches_pattern(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn definition_says_what_is_wrong_with_it() {
        let check = |name: &str, include: &[&str]| {
            let definition = ToolsetDefinition {
                name: name.to_owned(),
                include: include.iter().map(|it| (*it).to_owned()).collect(),
                ..ToolsetDefinition::default()
            };
            Toolset::new(definition).map_err(|it| it.field)
        };
        assert!(check("support", &["files__*", "server:maru", "tag:a"]).is_ok());
        assert_eq!(check("Support", &["*"]).unwrap_err(), "name");
        assert_eq!(check("../x", &["*"]).unwrap_err(), "name");
        assert_eq!(check("x", &[]).unwrap_err(), "include");
        assert_eq!(check("x", &["kind:y"]).unwrap_err(), "include");
        assert_eq!(check("x", &["tag:"]).unwrap_err(), "include");
    }
}
