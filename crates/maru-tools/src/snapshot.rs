//! The catalog at one moment. A request uses one snapshot, so that all its look-ups agree.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use maru_protocol::RpcError;
use maru_retrieval::ToolIndex;

use super::{
    caller::{Caller, CatalogScope},
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, ResourceSubscription},
    search,
    view::CatalogView,
    visibility::{FilteredViews, VisibleCatalog, may_use},
};

/// The catalog at one moment.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    all: CatalogView,
    servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    filtered_views: FilteredViews,
    /// Ranks `all.tools`; built at the first search.
    tool_index: OnceLock<ToolIndex>,
    /// All servers, including the tools that are switched off.
    pub(super) all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    pub(super) disabled_tools: Arc<DisabledTools>,
}

impl CatalogSnapshot {
    pub(super) fn build(
        all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
        disabled_tools: Arc<DisabledTools>,
    ) -> Self {
        let enabled = |(name, view): (&Arc<str>, &Arc<CatalogView>)| {
            (Arc::clone(name), disabled_tools.enabled_part(name, view))
        };
        let servers: BTreeMap<_, _> = all_servers.iter().map(enabled).collect();
        let entries: Vec<Arc<CatalogEntry>> = servers
            .values()
            .flat_map(|view| view.entries())
            .cloned()
            .collect();
        Self {
            all: CatalogView::build(&entries, CatalogEntry::public_name),
            servers,
            filtered_views: FilteredViews::default(),
            tool_index: OnceLock::new(),
            all_servers,
            disabled_tools,
        }
    }

    /// Every tool, and whether it is switched on.
    pub fn tools_with_state(&self) -> impl Iterator<Item = (&Arc<CatalogEntry>, bool)> {
        let tools = self
            .all_servers
            .values()
            .flat_map(|view| view.tools.entries());
        tools.map(|it| (it, !self.disabled_tools.is_disabled(&it.server, &it.key)))
    }

    /// Every tool that is switched on, sorted by its public name.
    pub(super) fn all_tools(&self) -> &[Arc<CatalogEntry>] {
        self.all.tools.entries()
    }

    /// Ranks [`Self::all_tools`] by their words.
    pub(super) fn tool_index(&self) -> &ToolIndex {
        self.tool_index
            .get_or_init(|| search::build_index(self.all_tools()))
    }

    /// Whether the index is built.
    pub(super) fn has_tool_index(&self) -> bool {
        self.tool_index.get().is_some()
    }

    /// The tools that are switched off.
    pub fn disabled_tools(&self) -> &DisabledTools {
        &self.disabled_tools
    }

    /// The view of a scope.
    pub fn view(&self, scope: &CatalogScope) -> Result<&CatalogView, RpcError> {
        match scope {
            CatalogScope::All => Ok(&self.all),
            CatalogScope::Server(name) => {
                self.servers.get(name).map(Arc::as_ref).ok_or_else(|| {
                    RpcError::invalid_params(format!("no server named {name:?} is connected"))
                })
            }
        }
    }

    /// The entries that `caller` may see.
    pub fn visible_to(&self, caller: &Caller) -> Result<VisibleCatalog<'_>, RpcError> {
        let whole = self.view(&caller.scope)?;
        Ok(self.filtered_views.view_for(caller, whole))
    }

    /// A tool by its listed name or by `server.tool`, if the caller may call it.
    pub(super) fn find_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<&Arc<CatalogEntry>>, RpcError> {
        let qualified = || {
            let (server, tool) = name.split_once('.')?;
            self.servers.get(server)?.tools.get(tool)
        };
        let found = self.view(&caller.scope)?.tools.get(name);
        let found = found.or_else(|| match caller.scope {
            CatalogScope::All => qualified(),
            CatalogScope::Server(_) => None,
        });
        Ok(found.filter(|it| may_use(&caller.principal, it)))
    }

    /// Subscribes a caller to `uri`; `None` if the caller may not read it.
    pub fn subscribe_resource(&self, caller: &Caller, uri: &str) -> Option<ResourceSubscription> {
        caller.require_call_role().ok()?;
        let view = self.visible_to(caller).ok()?;
        let entry = view.find_resource(uri)?;
        let subscription = entry.subscribe.as_ref().map(|subscribe| subscribe(uri));
        Some(subscription.unwrap_or_else(|| Box::new(())))
    }

    /// Whether a server of this name is connected.
    pub fn has_server(&self, name: &str) -> bool {
        self.servers.contains_key(name)
    }
}
