//! The tools by which a client finds and calls tools that it does not list: `find_tools`,
//! `call_tool` and `call_read_only_tool`. The catalog handles them itself.

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt as _;
use maru_protocol::{RpcError, object_members};
use serde_json::{Value, json};

use super::{
    call_arguments::CallArguments,
    entry::{CatalogEntry, CatalogEntryKind},
    result::EntryResult,
    search::RankedTool,
    view::CatalogView,
};

/// One of these tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchTool {
    /// Finds tools by what they do.
    Find,
    /// Calls any tool.
    Call,
    /// Calls tools that say that they change nothing, so that a client need not ask its user.
    CallReadOnly,
}

/// A call through `call_tool`.
#[derive(Debug)]
pub(super) struct InnerCall {
    /// The tool.
    pub(super) name: String,
    /// Its arguments.
    pub(super) arguments: Arc<CallArguments>,
}

/// How many tools are found if the call does not say.
const DEFAULT_FOUND_TOOLS: usize = 5;
const MAX_FOUND_TOOLS: usize = 20;

static FIND: LazyLock<Arc<CatalogEntry>> = LazyLock::new(|| {
    search_entry(json!({
        "name": "find_tools",
        "title": "Find tools",
        "description": "Finds tools by what they do, best first, with the schemas of their arguments. \
            Call what it finds with call_tool, or with call_read_only_tool if its annotations say readOnlyHint.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_FOUND_TOOLS, "default": DEFAULT_FOUND_TOOLS},
            },
            "required": ["query"],
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
    }))
});

static CALL: LazyLock<Arc<CatalogEntry>> = LazyLock::new(|| {
    search_entry(json!({
        "name": "call_tool",
        "title": "Call a tool",
        "description": "Calls a tool that find_tools found.",
        "inputSchema": call_schema(),
        "annotations": {"readOnlyHint": false, "destructiveHint": true},
    }))
});

static CALL_READ_ONLY: LazyLock<Arc<CatalogEntry>> = LazyLock::new(|| {
    search_entry(json!({
        "name": "call_read_only_tool",
        "title": "Call a read-only tool",
        "description": "Calls a tool that find_tools found and whose annotations say readOnlyHint. Refuses all others.",
        "inputSchema": call_schema(),
        "annotations": {"readOnlyHint": true, "destructiveHint": false},
    }))
});

fn call_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name that find_tools gave"},
            "arguments": {"type": "object", "description": "Arguments that fit its inputSchema"},
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

fn search_entry(described: Value) -> Arc<CatalogEntry> {
    let handler = |_| {
        let error = RpcError::invalid_params("this tool is only called through the catalog");
        futures_util::future::ready(Err(error)).boxed()
    };
    CatalogEntry::builtin(CatalogEntryKind::Tool, described, Arc::new(handler))
}

impl SearchTool {
    const ALL: [Self; 3] = [Self::Find, Self::Call, Self::CallReadOnly];

    /// The tool of this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Find => "find_tools",
            Self::Call => "call_tool",
            Self::CallReadOnly => "call_read_only_tool",
        }
    }

    /// As the catalog lists it.
    pub(super) fn entry(self) -> &'static Arc<CatalogEntry> {
        match self {
            Self::Find => &FIND,
            Self::Call => &CALL,
            Self::CallReadOnly => &CALL_READ_ONLY,
        }
    }

    /// Refuses to call `entry` if that may change something and this must not.
    pub(super) fn check_target(self, entry: &CatalogEntry) -> Result<(), String> {
        if self == Self::Call || entry.is_read_only() {
            return Ok(());
        }
        let name = entry.listed_name();
        Err(format!(
            "{name} may change something; call it with call_tool"
        ))
    }
}

/// The view of a client that searches: the search tools and the favorites instead of all
/// tools.
pub(super) fn search_view(view: &CatalogView, favorites: &[String]) -> CatalogView {
    let tools = SearchTool::ALL.into_iter().map(|it| it.entry());
    let favorites = favorites
        .iter()
        .filter(|it| SearchTool::from_name(it).is_none())
        .filter_map(|it| view.tools.get(it));
    let others = view
        .entries()
        .filter(|it| it.kind() != CatalogEntryKind::Tool);
    let entries: Vec<Arc<CatalogEntry>> = tools.chain(favorites).chain(others).cloned().collect();
    CatalogView::build(&entries, |entry| view.name_of(entry).unwrap_or(entry.key()))
}

/// The arguments of `find_tools`: what to find, and how many tools.
pub(super) fn find_arguments(arguments: &CallArguments) -> (&str, usize) {
    let query = arguments["query"].as_str().unwrap_or_default();
    let limit = arguments.integer("limit");
    let limit = limit.and_then(|it| usize::try_from(it).ok());
    let limit = limit.unwrap_or(DEFAULT_FOUND_TOOLS);
    (query, limit.clamp(1, MAX_FOUND_TOOLS))
}

/// The result of `find_tools`: tools of `view` as they are listed.
pub(super) fn found_tools(view: &CatalogView, ranked: &[RankedTool], limit: usize) -> EntryResult {
    let found = ranked
        .iter()
        .filter(|it| it.is_match && !it.entry.is_hidden_from_models());
    let found = found.filter_map(|it| Some((view.name_of(&it.entry)?, &it.entry)));
    let tools: Vec<Value> = found
        .take(limit)
        .map(|(name, entry)| {
            let listing = entry.listing();
            let mut tool = json!({"name": name});
            for member in ["description", "inputSchema", "annotations"] {
                if !listing[member].is_null() {
                    tool[member] = listing[member].clone();
                }
            }
            tool
        })
        .collect();
    EntryResult::structured(&json!({"tools": tools}))
}

/// The call that the arguments of `call_tool` describe. They were checked by its schema.
pub(super) async fn inner_call(arguments: &CallArguments) -> Result<InnerCall, RpcError> {
    let name = arguments["name"].as_str().unwrap_or_default().to_owned();
    // The raw text keeps the digits of numbers.
    let mut members = object_members(arguments.text()).into_iter().flatten();
    let raw = members.find_map(|(name, raw)| (name == "arguments").then_some(raw));
    let raw = raw.filter(|it| *it != "null");
    Ok(InnerCall {
        name,
        arguments: Arc::new(CallArguments::parse(raw).await?),
    })
}

/// What a client tells its model, if it searches.
pub(super) const SEARCH_INSTRUCTIONS: &str = "Not all tools are listed. Find a tool for a task with find_tools, \
     then call it with call_tool, or with call_read_only_tool if its annotations say readOnlyHint.";
