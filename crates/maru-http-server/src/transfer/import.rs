//! Reads the file: of this version, of older ones, or of a desktop client.

use std::collections::BTreeSet;

use maru_upstream::{ServerDraft, drafts_from_import};
use serde_json::{Map, Value, json};

use super::{
    FILE_VERSION,
    export::READ_ONLY_MEMBERS,
    import_item::{FILE_SECTIONS, ItemKind},
    placeholders::{PlaceholderValues, escape},
    without_nulls,
};

/// The most things that a file may have.
const MAX_ITEMS: usize = 20_000;

/// What should be imported, and how.
pub(super) struct ImportRequest {
    pub(super) items: Vec<(ItemKind, Value)>,
    pub(super) values: Map<String, Value>,
    pub(super) dry_run: bool,
    /// `true`, or the names of the servers whose warnings are accepted.
    accept_warnings: Value,
}

impl ImportRequest {
    /// Parses the body of a request; an error says what is wrong with the document.
    /// The placeholders of a client's file that have no value go into `missing`.
    pub(super) fn parse(body: &Value, missing: &mut BTreeSet<String>) -> Result<Self, String> {
        let values = body["values"].as_object().cloned().unwrap_or_default();
        let items = parse_document(&body["document"], &values, missing)?;
        if items.len() > MAX_ITEMS {
            return Err(format!("the file has more than {MAX_ITEMS} entries"));
        }
        Ok(Self {
            items,
            values,
            dry_run: body["dryRun"] == true,
            accept_warnings: body["acceptWarnings"].clone(),
        })
    }

    pub(super) fn accepts_warnings_of(&self, server: &str) -> bool {
        let names = self.accept_warnings.as_array();
        self.accept_warnings == true || names.is_some_and(|it| it.iter().any(|name| name == server))
    }
}

/// The things in a file of this version, in a list of tools, or in a client's file.
fn parse_document(
    document: &Value,
    values: &Map<String, Value>,
    missing: &mut BTreeSet<String>,
) -> Result<Vec<(ItemKind, Value)>, String> {
    if let Some(version) = document.get("maru") {
        if version.as_u64() != Some(FILE_VERSION) {
            return Err(format!(
                "the file has version {version}; this maru reads version {FILE_VERSION}"
            ));
        }
        return parse_sections(document);
    }
    let is_tool = |it: &Value| it.get("tool_type").is_some();
    let tools = document.as_array().or(document["tools"].as_array());
    if let Some(tools) = tools.filter(|it| !it.is_empty() && it.iter().all(is_tool)) {
        return Ok(tools
            .iter()
            .map(|it| (ItemKind::Tool, old_tool(it)))
            .collect());
    }
    let values = PlaceholderValues {
        values,
        current: None,
    };
    let filled = values.fill(document, "", missing);
    let drafts = drafts_from_import(&filled).map_err(|error| {
        format!("this is neither a file of maru export nor one of an MCP client: {error}")
    })?;
    let servers = drafts.into_iter().map(|(name, draft)| match draft {
        Ok(draft) => Ok((ItemKind::Server, server_value(&draft))),
        Err(error) => Err(format!("{name}: {error}")),
    });
    servers.collect()
}

fn parse_sections(document: &Value) -> Result<Vec<(ItemKind, Value)>, String> {
    let known = |name: &str| {
        matches!(name, "maru" | "sampleData") || FILE_SECTIONS.iter().any(|(it, _)| *it == name)
    };
    let members = document.as_object().ok_or("the file must be an object")?;
    if let Some(unknown) = members.keys().find(|it| !known(it)) {
        return Err(format!("unknown member {unknown:?}"));
    }
    let mut items = Vec::new();
    if let Some(mode) = members.get("sampleData") {
        items.push((ItemKind::SampleData, json!({"mode": mode})));
    }
    for (name, kind) in FILE_SECTIONS {
        let list = match members.get(name) {
            None => continue,
            Some(list) => list.as_array().ok_or(format!("{name} must be a list"))?,
        };
        if let Some(index) = list
            .iter()
            .position(|it| kind.name_of(it).trim().is_empty())
        {
            return Err(format!("entry {} of {name} has no name", index + 1));
        }
        items.extend(list.iter().map(|it| (kind, it.clone())));
    }
    Ok(items)
}

/// A custom tool of an older export, without the members that the hub sets.
fn old_tool(tool: &Value) -> Value {
    let members = tool.as_object().into_iter().flatten();
    let members =
        members.filter(|(name, it)| !READ_ONLY_MEMBERS.contains(&name.as_str()) && !it.is_null());
    members
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

fn server_value(draft: &ServerDraft) -> Value {
    without_nulls(json!({
        "name": draft.name,
        "description": draft.description,
        "transportType": draft.kind,
        // Its placeholders are filled in.
        "config": escape(&draft.config),
        "version": draft.version,
        "autoConnect": draft.auto_connect,
        "enabled": draft.enabled,
        "trust": draft.trust.map(|it| it.as_str()),
        "requiredProtocolVersion": draft.required_version,
    }))
}
