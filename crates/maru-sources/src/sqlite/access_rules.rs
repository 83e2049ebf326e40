//! Which tables and functions a statement may use.

use std::collections::{HashMap, HashSet};

use rusqlite::{
    Connection,
    hooks::{AuthAction, AuthContext},
};

use crate::SourceSettings;

/// Functions that only calculate. `json_pretty` is none of them: it fills each line with as
/// much space as it is deep, and nothing ends it before it is done.
const SAFE_FUNCTIONS: &str = "
    -> ->> abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling char coalesce
    concat concat_ws cos cosh count cume_dist current_date current_time current_timestamp
    date datetime degrees dense_rank exp first_value floor format glob group_concat hex
    highlight if ifnull iif instr json json_array json_array_insert json_array_length
    json_error_position json_extract json_group_array json_group_object json_insert
    json_object  json_quote json_remove json_replace json_set json_type
    json_valid jsonb jsonb_array jsonb_extract jsonb_group_array jsonb_group_object
    jsonb_insert jsonb_object jsonb_remove jsonb_replace jsonb_set julianday lag
    last_value lead length like likelihood likely ln log log10 log2 lower ltrim match max
    median min mod nth_value ntile nullif octet_length percent_rank percentile
    percentile_cont percentile_disc pi pow power printf quote radians random rank replace
    round row_number rtrim sign sin sinh snippet soundex sqrt strftime string_agg substr
    substring subtype sum tan tanh time timediff total trim trunc typeof unicode unistr
    unistr_quote unixepoch unlikely upper zeroblob
";
/// Tables that are made of their arguments.
const TABLE_FUNCTIONS: &[&str] = &["json_each", "json_tree", "jsonb_each", "jsonb_tree"];
/// What a full-text index keeps its data in; it reads them by statements of its
/// own.
const SHADOW_TABLE_SUFFIXES: &[&str] = &[
    "_data",
    "_idx",
    "_content",
    "_docsize",
    "_config",
    "_node",
    "_rowid",
    "_parent",
    "_segments",
    "_segdir",
    "_stat",
];

/// What may be used, with all names in lower case.
#[derive(Debug, Default)]
pub(super) struct SqliteAccessRules {
    /// The tables and views that may be read, by their names as written.
    allowed: HashMap<String, String>,
    /// Every relation and module there is.
    existing: HashSet<String>,
    views: Vec<String>,
    functions: HashSet<String>,
    /// What views read, learnt from SQLite.
    view_reads: HashMap<String, HashSet<String>>,
    is_frozen: bool,
}

pub(super) enum StatementVerdict {
    Allow,
    Refuse(String),
}

impl SqliteAccessRules {
    /// The rules for the schema as it is now.
    pub(super) fn load(
        connection: &Connection,
        settings: &SourceSettings,
    ) -> rusqlite::Result<Self> {
        let mut rules = Self::default();
        let more = settings.functions.iter().map(|it| it.to_ascii_lowercase());
        let built_in = SAFE_FUNCTIONS.split_ascii_whitespace().map(str::to_owned);
        rules.functions = built_in.chain(more).collect();
        let listed: HashSet<String> = settings
            .relations
            .iter()
            .map(|it| relation_key(it))
            .collect();
        let mut modules = Vec::new();
        for (name, kind, is_module) in load_relations(connection)? {
            let key = name.to_ascii_lowercase();
            rules.existing.insert(key.clone());
            if kind == "module" || (!listed.is_empty() && !listed.contains(&key)) {
                continue;
            }
            if kind == "view" {
                rules.views.push(name.clone());
            }
            if is_module {
                modules.push(key.clone());
            }
            rules.allowed.insert(key, name);
        }
        let shadows = modules.iter().flat_map(|it| {
            SHADOW_TABLE_SUFFIXES
                .iter()
                .map(move |end| format!("{it}{end}"))
        });
        let reads = rules.view_reads.entry(String::new()).or_default();
        reads.extend(shadows);
        Ok(rules)
    }

    /// The views that may be read.
    pub(super) fn views(&self) -> Vec<String> {
        self.views.clone()
    }

    /// The relation as it is written, if it may be read.
    pub(super) fn find_relation(&self, name: &str) -> Option<&str> {
        self.allowed.get(&relation_key(name)).map(String::as_str)
    }

    /// Notes what a view reads while it is prepared.
    pub(super) fn record_view_read(&mut self, context: &AuthContext<'_>) {
        let AuthAction::Read { table_name, .. } = context.action else {
            return;
        };
        if let (Some(view), false) = (context.accessor, self.is_frozen) {
            let reads = self
                .view_reads
                .entry(view.to_ascii_lowercase())
                .or_default();
            reads.insert(table_name.to_ascii_lowercase());
        }
    }

    /// Nothing more is learnt: from here on maru's statements are about data.
    pub(super) fn freeze(&mut self) {
        self.is_frozen = true;
    }

    /// Whether a name means what may be read through a view only. A statement
    /// may not have it: SQLite tells views and the statement's own names apart
    /// no better than by name.
    pub(super) fn is_view_only(&self, name: &str) -> bool {
        !self.allowed.contains_key(name)
            && self
                .view_reads
                .iter()
                .any(|(view, reads)| !view.is_empty() && reads.contains(name))
    }

    /// `names_relations` says that the answer names every relation, also those behind views.
    pub(super) fn authorize(
        &self,
        context: &AuthContext<'_>,
        names_relations: bool,
    ) -> StatementVerdict {
        match context.action {
            AuthAction::Select | AuthAction::Recursive => StatementVerdict::Allow,
            AuthAction::Function { function_name } => self.authorize_function(function_name),
            AuthAction::Read {
                table_name,
                column_name: "",
            } if self.is_local(table_name) => StatementVerdict::Allow,
            AuthAction::Read { table_name, .. } => {
                let accessor = context.accessor.filter(|_| !names_relations);
                self.authorize_table(table_name, accessor)
            }
            // A full-text index looks whether its file has changed.
            AuthAction::Pragma {
                pragma_name: "data_version",
                pragma_value: None,
            } => StatementVerdict::Allow,
            _ => StatementVerdict::Refuse("a query may only read".to_owned()),
        }
    }

    /// Whether a name can only be one that the statement itself gave to
    /// something. SQLite asks for it when no column of it is used.
    fn is_local(&self, name: &str) -> bool {
        let key = name.to_ascii_lowercase();
        let system = ["sqlite_", "pragma_"].iter().any(|it| key.starts_with(it));
        !system && !self.existing.contains(&key)
    }

    fn authorize_function(&self, name: &str) -> StatementVerdict {
        let key = name.to_ascii_lowercase();
        if self.functions.contains(&key) {
            StatementVerdict::Allow
        } else {
            StatementVerdict::Refuse(format!("the function {name} may not be called"))
        }
    }

    fn authorize_table(&self, name: &str, accessor: Option<&str>) -> StatementVerdict {
        let key = name.to_ascii_lowercase();
        let by = accessor.map(str::to_ascii_lowercase).unwrap_or_default();
        let behind = |view: &str| {
            self.view_reads
                .get(view)
                .is_some_and(|it| it.contains(&key))
        };
        let is_made = TABLE_FUNCTIONS.contains(&key.as_str());
        if self.allowed.contains_key(&key) || is_made || behind(&by) || behind("") {
            StatementVerdict::Allow
        } else {
            StatementVerdict::Refuse(format!(
                "the relation {name} is not one that this source offers"
            ))
        }
    }
}

/// Name, kind, and whether a module keeps it.
fn load_relations(connection: &Connection) -> rusqlite::Result<Vec<(String, String, bool)>> {
    let mut relations = connection.prepare(
        "SELECT name, type, coalesce(sql, '') LIKE 'CREATE VIRTUAL%' FROM main.sqlite_schema
         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         UNION ALL SELECT name, 'module', 1 FROM pragma_module_list",
    )?;
    let rows = relations.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// A name from outside as a key; the only schema is `main`.
fn relation_key(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    name.strip_prefix("main.")
        .map(str::to_owned)
        .unwrap_or(name)
}
