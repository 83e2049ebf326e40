//! Settings of what MCP clients see of the tools.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How MCP clients get tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolSearchSettings {
    /// What `tools/list` answers, if neither the request (`/mcp?tools=search`), its token nor its toolset says otherwise. `list`: all tools. `search`: `find_tools`, which finds tools by what they do, `call_tool`, which calls them, and the favorites. `auto`: all tools while their schemas fit into `token_budget`, otherwise as `search`.
    pub tools: ToolListing,
    /// Estimated tokens of schemas up to which `auto` lists all tools.
    #[schemars(range(min = 100, max = 1_000_000))]
    pub token_budget: usize,
    /// Tools that `search` lists beside `find_tools`, by their names in the list.
    #[schemars(length(max = 100))]
    pub favorites: Vec<String>,
}

/// What `tools/list` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ToolListing {
    /// All tools.
    #[default]
    List,
    /// The tools that find and call all others, and favorites.
    Search,
    /// All tools while their schemas are small.
    Auto,
}

/// A named selection of tools of all servers, with an endpoint of its own: `/mcp/t/{name}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsetDefinition {
    /// Unique name: a-z, 0-9, `-` and `_`.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9_-]{0,62}$"))]
    pub name: String,
    /// What it is for, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it contains. A name of a tool, where `*` stands for any text (`files__*`, `get_*`); or `server:NAME`, with its prompts and resources; `tag:NAME`; `annotation:readOnlyHint`, for tools that say so of themselves.
    #[schemars(length(max = 1000))]
    pub include: Vec<String>,
    /// What it does not contain although `include` selects it, in the same forms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub exclude: Vec<String>,
    /// What the client tells its model about these tools, instead of maru's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20_000))]
    pub instructions: Option<String>,
    /// What `tools/list` answers; absent means as `tool_search.tools`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolListing>,
    /// Tools that a search lists beside `find_tools`, instead of `tool_search.favorites`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub favorites: Vec<String>,
    /// Calls per minute of all its callers together, at all hubs that share a PostgreSQL store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub calls_per_minute: Option<u32>,
    /// Calls per day of all its callers together, at all hubs that share a PostgreSQL store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub calls_per_day: Option<u32>,
}

impl Default for ToolSearchSettings {
    fn default() -> Self {
        Self {
            tools: ToolListing::List,
            token_budget: 8000,
            favorites: Vec::new(),
        }
    }
}

impl ToolListing {
    /// Parses `list`, `search` or `auto`.
    pub fn parse(name: &str) -> Option<Self> {
        let all = [Self::List, Self::Search, Self::Auto];
        all.into_iter().find(|it| it.as_str() == name)
    }

    /// Its name in settings, queries and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Search => "search",
            Self::Auto => "auto",
        }
    }
}
