//! The offered tools of one request, and which of them a name means.

use std::collections::HashMap;

use serde_json::Value;

use super::{json::Object, schema::Schema};

/// What a model may put before a name.
const PREFIXES: [&str; 4] = ["functions.", "function.", "tools.", "default_api."];

/// The offered tools of one request, prepared once.
#[derive(Debug, Default)]
pub struct Tools {
    tools: Vec<Tool>,
    exact: HashMap<String, usize>,
    folded: HashMap<String, Place>,
    /// By what is left of a name without its server.
    short: HashMap<String, Place>,
}

/// One offered tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) schema: Schema,
}

/// Which tool a folded name means.
#[derive(Clone, Copy, Debug)]
enum Place {
    One(usize),
    Several,
}

impl Tools {
    /// Prepares tools given by name and JSON schema of their parameters.
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Self {
        let mut prepared = Self::default();
        for (name, schema) in tools {
            prepared.add(name, schema);
        }
        prepared
    }

    /// Whether none are offered; then nothing is a call.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The one tool that `written` means, by the rules for names: spelling of
    /// words may differ, the words may not.
    pub(super) fn find(&self, written: &str) -> Option<&Tool> {
        let name = cleaned(written);
        self.lookup(name)
            .or_else(|| self.lookup(unprefixed(name)))
            .or_else(|| self.lookup(uncounted(unprefixed(name))?))
            .map(|at| &self.tools[at])
    }

    /// The only tool that takes exactly such arguments.
    pub(super) fn find_by_keys(&self, arguments: &Object) -> Option<&Tool> {
        let fits = |tool: &&Tool| {
            let known = |(key, _): &(String, _)| tool.schema.property(key).is_some();
            let given = |key: &String| arguments.iter().any(|(name, _)| name == key);
            arguments.iter().all(known) && tool.schema.required.iter().all(given)
        };
        let mut fitting = self.tools.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The tool and the property whose names were run together.
    pub(super) fn split<'a>(&self, glued: &'a str) -> Option<(&Tool, &'a str)> {
        self.tools.iter().find_map(|tool| {
            let key = glued.strip_prefix(tool.name.as_str())?;
            tool.schema.property(key).map(|_| (tool, key))
        })
    }

    /// The tool with exactly this name.
    pub(super) fn tag(&self, name: &str) -> Option<&Tool> {
        self.exact.get(name).map(|at| &self.tools[*at])
    }

    fn add(&mut self, name: &str, schema: &Value) {
        let at = self.tools.len();
        self.exact.entry(name.to_owned()).or_insert(at);
        insert(&mut self.folded, folded(name), at);
        for short in unqualified(name) {
            insert(&mut self.short, folded(short), at);
        }
        self.tools.push(Tool {
            name: name.to_owned(),
            schema: Schema::new(schema),
        });
    }

    fn lookup(&self, name: &str) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let exact = self.exact.get(name).copied();
        exact.or_else(|| self.lookup_folded(name))
    }

    fn lookup_folded(&self, name: &str) -> Option<usize> {
        let whole = folded(name);
        match self.folded.get(&whole).or_else(|| self.short.get(&whole)) {
            Some(Place::One(at)) => return Some(*at),
            Some(Place::Several) => return None,
            None => (),
        }
        // The model added a server: the first shorter form that is offered.
        let found = unqualified(name).find_map(|short| self.folded.get(&folded(short)).copied());
        match found? {
            Place::One(at) => Some(at),
            Place::Several => None,
        }
    }
}

fn insert(map: &mut HashMap<String, Place>, key: String, at: usize) {
    map.entry(key)
        .and_modify(|place| {
            if !matches!(place, Place::One(known) if *known == at) {
                *place = Place::Several;
            }
        })
        .or_insert(Place::One(at));
}

/// Without space, quotes and leaked control tokens.
fn cleaned(written: &str) -> &str {
    let end = written.find(['<', '｜', '\n']).unwrap_or(written.len());
    written[..end].trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*'))
}

fn unprefixed(name: &str) -> &str {
    let stripped = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    stripped.unwrap_or(name)
}

/// Without a call counter such as `:0` or `_1`.
fn uncounted(name: &str) -> Option<&str> {
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if rest.len() == name.len() {
        return None;
    }
    rest.strip_suffix([':', '_'])
}

/// One spelling for all: lower case, words joined by `_`.
fn folded(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    let mut after_lower = false;
    for c in name.chars() {
        let separator = matches!(c, '-' | '_' | '.' | '/' | ':' | ' ');
        if (separator || (c.is_uppercase() && after_lower)) && !out.ends_with('_') {
            out.push('_');
        }
        if !separator {
            out.extend(c.to_lowercase());
        }
        after_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    out
}

/// The name without its server, then without the next part, and so on.
fn unqualified(name: &str) -> impl Iterator<Item = &str> {
    let cuts = name.char_indices().filter_map(|(at, c)| match c {
        '.' | '/' | ':' => Some(at + 1),
        '_' if name[at..].starts_with("__") => Some(at + 2),
        _ => None,
    });
    cuts.map(|at| &name[at..])
        .filter(|rest| !rest.is_empty() && !rest.starts_with('_'))
}
