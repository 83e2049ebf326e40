//! What people set about the catalog: which tools are switched off, how tools are described,
//! which toolsets there are, and whether clients list or search tools.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use maru_config::ToolSearchSettings;

use super::{
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, CatalogEntryKind},
    search_tools::SearchTool,
    tool_override::ToolOverrides,
    toolset::Toolsets,
    view::CatalogView,
};

/// The rules by which a snapshot is made. Cloning shares them.
#[derive(Clone, Debug, Default)]
pub(super) struct CatalogRules {
    pub(super) disabled_tools: Arc<DisabledTools>,
    pub(super) overrides: Arc<ToolOverrides>,
    pub(super) toolsets: Arc<Toolsets>,
    pub(super) search: Arc<ToolSearchSettings>,
}

type ServerViews = BTreeMap<Arc<str>, Arc<CatalogView>>;

impl CatalogRules {
    /// The servers without the tools that are switched off, and with the others as clients
    /// see them.
    pub(super) fn apply(&self, servers: &ServerViews) -> ServerViews {
        let enabled = servers.iter().map(|(name, view)| {
            let part = self.disabled_tools.enabled_part(name, view);
            (Arc::clone(name), part)
        });
        let mut servers: ServerViews = enabled.collect();
        let names = self.usable_names(&servers);
        let mut overridden: BTreeMap<&Arc<str>, Vec<&Arc<str>>> = BTreeMap::new();
        for (server, tool) in self.overrides.keys() {
            overridden.entry(server).or_default().push(tool);
        }
        for (server, _) in overridden {
            if let Some(view) = servers.get_mut(server) {
                *view = Arc::new(self.overridden_view(server, view, &names));
            }
        }
        servers
    }

    fn overridden_view(
        &self,
        server: &Arc<str>,
        view: &CatalogView,
        names: &HashSet<(Arc<str>, Arc<str>)>,
    ) -> CatalogView {
        let entries = view.entries().map(|entry| {
            let key = (Arc::clone(server), Arc::from(entry.key()));
            let is_tool = entry.kind() == CatalogEntryKind::Tool;
            match self.overrides.get(&key).filter(|_| is_tool) {
                None => Arc::clone(entry),
                Some(change) => {
                    let name = change.name.as_deref().filter(|_| names.contains(&key));
                    Arc::new(change.apply(entry, name))
                }
            }
        });
        let entries: Vec<Arc<CatalogEntry>> = entries.collect();
        CatalogView::build(&entries, CatalogEntry::listed_key)
    }

    /// The tools whose new name no other tool has. The others keep their own, so that no tool
    /// takes the place of another.
    fn usable_names(&self, servers: &ServerViews) -> HashSet<(Arc<str>, Arc<str>)> {
        let mut renamed = self.overrides.iter().filter(|(_, it)| it.name.is_some());
        let Some(first) = renamed.next() else {
            return HashSet::new();
        };
        let tools = servers
            .values()
            .flat_map(|it| it.tools.entries())
            .map(|it| it.public_name().to_owned());
        let mut taken: HashSet<String> = tools.collect();
        let mut usable = HashSet::new();
        for (key, change) in std::iter::once(first).chain(renamed) {
            let (server, tool) = key;
            let name = change.name.as_deref().unwrap_or_default();
            let siblings = servers.get(server).map(|it| &it.tools);
            let is_sibling = siblings.is_some_and(|it| it.get(name).is_some()) && name != &**tool;
            let is_reserved = SearchTool::from_name(name).is_some();
            if !is_sibling && !is_reserved && taken.insert(name.to_owned()) {
                usable.insert(key.clone());
            }
        }
        usable
    }
}
