//! The tools that runs choose from.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

use crate::{
    llm::Tool,
    tool::{Offer, Scope, Snapshot},
};

/// Every tool of a snapshot, as models see it.
#[derive(Debug)]
pub(super) struct Toolbox {
    pub(super) tools: Vec<Known>,
    /// What each is about, as vectors; made when there are too many to offer all.
    pub(super) vectors: OnceCell<Vec<Vec<f32>>>,
}

/// A tool.
#[derive(Debug)]
pub(super) struct Known {
    /// As the catalog lists it.
    pub(super) name: String,
    /// `server.tool`.
    pub(super) qualified: String,
    /// Where it comes from.
    pub(super) server: Arc<str>,
    pub(super) description: String,
    parameters: Value,
    /// Whether it may destroy something.
    pub(super) destructive: bool,
    /// About what its description costs.
    pub(super) tokens: usize,
}

/// Asks for more tools, where not all are offered.
pub(super) const FIND: &str = "find_tools";
/// The agent itself is no tool of a run.
const NOT_OFFERED: &[&str] = &[FIND, "ask_agent"];
const MAX_DESCRIPTION: usize = 2000;

impl Toolbox {
    /// `destructive` are the names of tools that need approval besides those that
    /// say so themselves.
    pub(super) fn of(snapshot: &Snapshot, destructive: &[String]) -> Self {
        let view = snapshot.view(&Scope::All);
        let offers = view.map_or(&[][..], |view| view.tools.offers());
        let offers = offers
            .iter()
            .filter(|it| !NOT_OFFERED.contains(&it.public_key()));
        Self {
            tools: offers.map(|it| Known::of(it, destructive)).collect(),
            vectors: OnceCell::new(),
        }
    }
}

impl Known {
    fn of(offer: &Arc<Offer>, destructive: &[String]) -> Self {
        let described = offer.described();
        let name = offer.public_key().to_owned();
        let qualified = format!("{}.{}", offer.server(), offer.key());
        let description = described["description"].as_str().unwrap_or_default();
        let description: String = description.chars().take(MAX_DESCRIPTION).collect();
        let listed = |it: &String| *it == name || *it == qualified;
        Self {
            destructive: described["annotations"]["destructiveHint"] == true
                || destructive.iter().any(listed),
            tokens: tokens(&described.to_string()) + tokens(&name),
            server: Arc::clone(offer.server()),
            parameters: match &described["inputSchema"] {
                Value::Object(schema) => Value::Object(schema.clone()),
                _ => json!({"type": "object"}),
            },
            description,
            qualified,
            name,
        }
    }

    /// As models see it.
    pub(super) fn tool(&self) -> Tool {
        Tool {
            name: self.name.clone(),
            shown: Some(self.qualified.clone()),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            other: Map::new(),
        }
    }

    /// What it is found by.
    pub(super) fn about(&self) -> String {
        let words = self.qualified.replace(['_', '-', '.'], " ");
        format!("{words}\n{}", self.description)
    }
}

/// The tool that finds others.
pub(super) fn find_tools() -> Tool {
    Tool {
        name: FIND.to_owned(),
        shown: None,
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

/// About how many tokens a text costs: four plain letters, or one of any other
/// script.
pub(super) fn tokens(text: &str) -> usize {
    let plain = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|it| !it.is_ascii()).count();
    plain / 4 + other + 1
}
