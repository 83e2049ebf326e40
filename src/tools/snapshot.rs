//! What the catalog holds at one moment. A request works on one snapshot, so that a list
//! and the calls after it see the same tools.

use std::{collections::BTreeMap, sync::Arc};

use maru_protocol::RpcError;

use super::{
    caller::{Caller, CatalogScope},
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, ResourceSubscription},
    view::CatalogView,
    visibility::{FilteredViews, VisibleCatalog, may_use},
};

/// Everything that is available at one moment.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    all: CatalogView,
    servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    filtered_views: FilteredViews,
    /// The same, with what is switched off.
    pub(super) all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    pub(super) disabled_tools: Arc<DisabledTools>,
}

impl CatalogSnapshot {
    pub(super) fn build(
        all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
        disabled_tools: Arc<DisabledTools>,
    ) -> Self {
        let offered = |(name, view): (&Arc<str>, &Arc<CatalogView>)| {
            (Arc::clone(name), disabled_tools.enabled_part(name, view))
        };
        let servers: BTreeMap<_, _> = all_servers.iter().map(offered).collect();
        let offers: Vec<Arc<CatalogEntry>> = servers
            .values()
            .flat_map(|view| view.entries())
            .cloned()
            .collect();
        Self {
            all: CatalogView::build(&offers, CatalogEntry::public_name),
            servers,
            filtered_views: FilteredViews::default(),
            all_servers,
            disabled_tools,
        }
    }

    /// Every tool, also those that are switched off, and whether it is on.
    pub fn tools_with_state(&self) -> impl Iterator<Item = (&Arc<CatalogEntry>, bool)> {
        let tools = self
            .all_servers
            .values()
            .flat_map(|view| view.tools.entries());
        tools.map(|it| (it, !self.disabled_tools.is_disabled(&it.server, &it.key)))
    }

    /// Which tools are switched off.
    pub fn disabled_tools(&self) -> &DisabledTools {
        &self.disabled_tools
    }

    /// The part that `scope` names.
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

    /// What `caller` sees of the part they look at.
    pub fn visible_to(&self, caller: &Caller) -> Result<VisibleCatalog<'_>, RpcError> {
        let whole = self.view(&caller.scope)?;
        Ok(self.filtered_views.view_for(caller, whole))
    }

    /// A tool by the name it is listed under, or as `server.tool`, if it is the
    /// caller's to call.
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

    /// Begins to watch `uri` for someone; `None` if it cannot be read by them.
    pub fn subscribe_resource(&self, caller: &Caller, uri: &str) -> Option<ResourceSubscription> {
        caller.require_call_role().ok()?;
        let view = self.visible_to(caller).ok()?;
        let offer = view.find_resource(uri)?;
        let watching = offer.subscribe.as_ref().map(|watch| watch(uri));
        Some(watching.unwrap_or_else(|| Box::new(())))
    }

    /// Whether there is a server of this name.
    pub fn has_server(&self, name: &str) -> bool {
        self.servers.contains_key(name)
    }
}
