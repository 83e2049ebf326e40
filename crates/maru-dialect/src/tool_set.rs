//! The offered tools of one request, and the lookup of a tool by the name a model wrote.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{json::JsonObject, schema::ParameterSchema};

/// What a model may put before a name.
const TOOL_NAME_PREFIXES: [&str; 4] = ["functions.", "function.", "tools.", "default_api."];

/// The most tools that are named in the explanation of a name that means none.
const MAX_NAMED_TOOLS: usize = 8;

/// The offered tools of one request, prepared once.
#[derive(Debug, Default)]
pub struct ToolSet {
    tools: Vec<ToolSignature>,
    by_name: HashMap<String, usize>,
    by_folded_name: HashMap<String, NameMatch>,
    /// By what is left of a name without its server.
    by_unqualified_name: HashMap<String, NameMatch>,
    /// The bytes that names begin with.
    name_first_bytes: FirstBytes,
}

/// A set of bytes.
#[derive(Debug)]
struct FirstBytes([bool; 256]);

impl Default for FirstBytes {
    fn default() -> Self {
        Self([false; 256])
    }
}

/// One offered tool.
#[derive(Debug)]
pub(super) struct ToolSignature {
    pub(super) name: String,
    pub(super) schema: ParameterSchema,
}

/// Which tool a folded name means.
#[derive(Clone, Copy, Debug)]
enum NameMatch {
    Unique(usize),
    Ambiguous,
}

impl ToolSet {
    /// Prepares tools given by name and JSON schema of their parameters.
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Self {
        let mut prepared = Self::default();
        for (name, schema) in tools {
            prepared.add(name, schema);
        }
        prepared
    }

    /// Whether a line that begins with these bytes may be a call that begins with its
    /// tool's name: `⟨n⟩(`, `⟨n⟩[ARGS]`, or the name alone.
    #[inline]
    pub(super) fn may_start_named_line(&self, line: &[u8]) -> bool {
        let first = line.first();
        first.is_some_and(|first| self.name_first_bytes.0[usize::from(*first)])
            && self.starts_named_line(line)
    }

    fn starts_named_line(&self, line: &[u8]) -> bool {
        let in_name = |b: &u8| b.is_ascii_alphanumeric() || b"_.-/".contains(b) || !b.is_ascii();
        let end = line.iter().position(|b| !in_name(b)).unwrap_or(line.len());
        match line.get(end) {
            Some(b'\n' | b'(' | b'[') => {
                let name = std::str::from_utf8(&line[..end]);
                name.is_ok_and(|name| self.by_name.contains_key(name))
            }
            Some(_) => false,
            None => {
                let mut names = self.tools.iter().map(|tool| tool.name.as_bytes());
                names.any(|name| name.starts_with(line))
            }
        }
    }

    /// Whether none are offered; then nothing is a call.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The one tool that `written` means, by the rules for names: spelling of
    /// words may differ, the words may not.
    pub(super) fn find(&self, written: &str) -> Option<&ToolSignature> {
        let name = trim_noise(written);
        self.lookup(name)
            .or_else(|| self.lookup(strip_known_prefix(name)))
            .or_else(|| self.lookup(strip_call_counter(strip_known_prefix(name))?))
            .map(|at| &self.tools[at])
    }

    /// Why no tool matches `written`, for the model.
    pub(super) fn explain_unknown(&self, written: &str) -> String {
        let name = strip_known_prefix(trim_noise(written));
        let meant = |tool: &&ToolSignature| {
            let mut short = unqualified(&tool.name);
            short.any(|short| fold_name(short) == fold_name(name))
        };
        let meant: Vec<&str> = self
            .tools
            .iter()
            .filter(meant)
            .map(|tool| tool.name.as_str())
            .take(MAX_NAMED_TOOLS)
            .collect();
        if meant.len() > 1 {
            let names = meant.join(", ");
            return format!("the name {name:?} is ambiguous; write one of {names}");
        }
        let all = self.tools.len() <= MAX_NAMED_TOOLS;
        let (names, lead) = if all {
            let names = self.tools.iter().map(|tool| tool.name.as_str());
            (names.collect(), "the tools are")
        } else {
            (self.nearest(name), "the nearest are")
        };
        if names.is_empty() {
            return format!("no tool is called {name:?}");
        }
        format!("no tool is called {name:?}; {lead} {}", names.join(", "))
    }

    /// The tools whose names share most words with `name`, the nearest first.
    fn nearest(&self, name: &str) -> Vec<&str> {
        let folded = fold_name(name);
        let words: HashSet<&str> = folded.split('_').filter(|word| !word.is_empty()).collect();
        let shared = |tool: &ToolSignature| {
            let folded = fold_name(&tool.name);
            let shared: HashSet<&str> = folded.split('_').filter(|it| words.contains(it)).collect();
            shared.len()
        };
        let names = self.tools.iter();
        let names = names.map(|tool| (shared(tool), tool.name.as_str()));
        let mut names: Vec<(usize, &str)> = names.filter(|(shared, _)| *shared > 0).collect();
        names.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
        names.truncate(MAX_NAMED_TOOLS);
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// The only tool that takes exactly such arguments.
    pub(super) fn find_by_keys(&self, arguments: &JsonObject) -> Option<&ToolSignature> {
        let fits = |tool: &&ToolSignature| {
            let known = |(key, _): &(String, _)| tool.schema.property(key).is_some();
            let given = |key: &String| arguments.iter().any(|(name, _)| name == key);
            arguments.iter().all(known) && tool.schema.required.iter().all(given)
        };
        let mut fitting = self.tools.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The tool and the property whose names were run together.
    pub(super) fn split_glued_key<'a>(&self, glued: &'a str) -> Option<(&ToolSignature, &'a str)> {
        self.tools.iter().find_map(|tool| {
            let key = glued.strip_prefix(tool.name.as_str())?;
            tool.schema.property(key).map(|_| (tool, key))
        })
    }

    /// The tool with exactly this name.
    pub(super) fn find_exact(&self, name: &str) -> Option<&ToolSignature> {
        self.by_name.get(name).map(|at| &self.tools[*at])
    }

    fn add(&mut self, name: &str, schema: &Value) {
        let at = self.tools.len();
        if let Some(first) = name.bytes().next() {
            self.name_first_bytes.0[usize::from(first)] = true;
        }
        self.by_name.entry(name.to_owned()).or_insert(at);
        insert(&mut self.by_folded_name, fold_name(name), at);
        for short in unqualified(name) {
            insert(&mut self.by_unqualified_name, fold_name(short), at);
        }
        self.tools.push(ToolSignature {
            name: name.to_owned(),
            schema: ParameterSchema::new(schema),
        });
    }

    fn lookup(&self, name: &str) -> Option<usize> {
        if name.is_empty() {
            return None;
        }
        let exact = self.by_name.get(name).copied();
        exact.or_else(|| self.lookup_folded(name))
    }

    fn lookup_folded(&self, name: &str) -> Option<usize> {
        let whole = fold_name(name);
        match self
            .by_folded_name
            .get(&whole)
            .or_else(|| self.by_unqualified_name.get(&whole))
        {
            Some(NameMatch::Unique(at)) => return Some(*at),
            Some(NameMatch::Ambiguous) => return None,
            None => (),
        }
        // The model added a server: the first shorter form that is offered.
        let found =
            unqualified(name).find_map(|short| self.by_folded_name.get(&fold_name(short)).copied());
        match found? {
            NameMatch::Unique(at) => Some(at),
            NameMatch::Ambiguous => None,
        }
    }
}

fn insert(map: &mut HashMap<String, NameMatch>, key: String, at: usize) {
    map.entry(key)
        .and_modify(|place| {
            if !matches!(place, NameMatch::Unique(known) if *known == at) {
                *place = NameMatch::Ambiguous;
            }
        })
        .or_insert(NameMatch::Unique(at));
}

/// Without space, quotes and leaked control tokens.
fn trim_noise(written: &str) -> &str {
    let end = written.find(['<', '｜', '\n']).unwrap_or(written.len());
    written[..end].trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '*'))
}

fn strip_known_prefix(name: &str) -> &str {
    let stripped = TOOL_NAME_PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    stripped.unwrap_or(name)
}

/// Without a call counter such as `:0` or `_1`.
fn strip_call_counter(name: &str) -> Option<&str> {
    let rest = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if rest.len() == name.len() {
        return None;
    }
    rest.strip_suffix([':', '_'])
}

/// One spelling for all: lower case, words joined by `_`.
fn fold_name(name: &str) -> String {
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
