//! The tools that runs can use.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value, json};

use maru_llm::ChatTool;
use maru_tools::{CatalogEntry, CatalogScope, CatalogSnapshot, RankedTool, estimate_tokens};

/// Every tool of a snapshot, as models see it.
#[derive(Debug)]
pub(super) struct Toolbox {
    pub(super) tools: Vec<AgentTool>,
    /// The snapshot that they are from.
    pub(super) snapshot: Arc<CatalogSnapshot>,
    /// The position of each tool by its public name.
    positions: HashMap<String, usize>,
}

/// A tool as runs see it.
#[derive(Debug)]
pub(super) struct AgentTool {
    /// As the catalog lists it.
    pub(super) name: String,
    /// `server.tool`.
    pub(super) qualified_name: String,
    /// Where it comes from.
    pub(super) server: Arc<str>,
    /// As the catalog has it.
    pub(super) entry: Arc<CatalogEntry>,
    pub(super) description: String,
    parameters: Value,
    /// Whether it may destroy something.
    pub(super) is_destructive: bool,
    /// About what its description costs.
    pub(super) tokens: usize,
}

/// Asks for more tools, where not all are offered.
pub(super) const FIND_TOOLS: &str = "find_tools";
/// A run does not get the agent itself as a tool.
const EXCLUDED_TOOLS: &[&str] = &[FIND_TOOLS, "ask_agent"];
const MAX_DESCRIPTION_CHARS: usize = 2000;

impl Toolbox {
    /// `destructive` are the names of tools that need approval besides those that
    /// say so themselves.
    pub(super) fn from_snapshot(snapshot: &Arc<CatalogSnapshot>, destructive: &[String]) -> Self {
        let view = snapshot.view(&CatalogScope::All);
        let entries = view.map_or(&[][..], |view| view.tools.entries());
        let entries = entries.iter().filter(|it| {
            !EXCLUDED_TOOLS.contains(&it.public_name()) && !it.is_hidden_from_models()
        });
        let tools: Vec<AgentTool> = entries
            .map(|it| AgentTool::from_entry(it, destructive))
            .collect();
        let positions = tools.iter().enumerate();
        Self {
            positions: positions.map(|(at, it)| (it.name.clone(), at)).collect(),
            tools,
            snapshot: Arc::clone(snapshot),
        }
    }

    /// The positions of ranked tools, in their order.
    pub(super) fn positions_of(&self, ranked: &[RankedTool]) -> Vec<usize> {
        let names = ranked.iter().map(|it| it.entry.listed_name());
        names
            .filter_map(|it| self.positions.get(it).copied())
            .collect()
    }

    /// What `find_tools` returns for the tools at these positions.
    pub(super) fn describe_found(&self, found: &[usize]) -> String {
        let lines = found.iter().map(|at| {
            let tool = &self.tools[*at];
            format!("{}: {}", tool.qualified_name, tool.description)
        });
        let lines: Vec<String> = lines.collect();
        if lines.is_empty() {
            "no tool was found".to_owned()
        } else {
            format!("These tools can be called now:\n{}", lines.join("\n"))
        }
    }
}

impl AgentTool {
    fn from_entry(entry: &Arc<CatalogEntry>, destructive: &[String]) -> Self {
        let described = entry.listing();
        let name = entry.listed_name().to_owned();
        let qualified_name = format!("{}.{}", entry.server(), entry.key());
        let description = described["description"].as_str().unwrap_or_default();
        let description: String = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
        let listed =
            |it: &String| *it == name || *it == qualified_name || *it == entry.public_name();
        Self {
            is_destructive: described["annotations"]["destructiveHint"] == true
                || destructive.iter().any(listed),
            tokens: estimate_tokens(&described.to_string()) + estimate_tokens(&name),
            server: Arc::clone(entry.server()),
            entry: Arc::clone(entry),
            parameters: match &described["inputSchema"] {
                Value::Object(schema) => Value::Object(schema.clone()),
                _ => json!({"type": "object"}),
            },
            description,
            qualified_name,
            name,
        }
    }

    /// As models see it.
    pub(super) fn to_llm_tool(&self) -> ChatTool {
        ChatTool {
            name: self.name.clone(),
            prompt_name: Some(self.qualified_name.clone()),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            other: Map::new(),
        }
    }

    /// Whether a model that writes `name` means this tool: spelling may differ, and the
    /// server may be left out.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let fold = |it: &str| it.to_lowercase().replace(['-', '.', '/'], "_");
        let name = fold(name);
        let names = [&*self.name, &*self.qualified_name, self.entry.key()];
        names.into_iter().any(|it| fold(it) == name)
    }
}

/// The message to the model about a rejected call when it can search for tools; `hidden` is
/// the tool that it meant, if that exists but is not offered.
pub(super) fn advise_search(reason: &str, hidden: Option<&AgentTool>) -> String {
    match hidden {
        Some(tool) => format!(
            "the tool {} exists but is not offered yet; call {FIND_TOOLS} with what it should do, then call it",
            tool.qualified_name
        ),
        None => format!("{reason}; {FIND_TOOLS} finds tools that are not offered yet"),
    }
}

/// The tool that finds others.
pub(super) fn find_tools_definition() -> ChatTool {
    ChatTool {
        name: FIND_TOOLS.to_owned(),
        prompt_name: None,
        description:
            "Finds more tools by what they do. Those that it finds can be called from then on."
                .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What the tool should do"}},
            "required": ["query"],
            "additionalProperties": false,
        }),
        other: Map::new(),
    }
}
