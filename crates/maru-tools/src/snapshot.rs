//! The catalog at one moment. A request uses one snapshot, so that all its look-ups agree.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
};

use maru_config::ToolListing;
use maru_protocol::RpcError;
use maru_retrieval::ToolIndex;
use serde_json::{Map, Value};

use super::{
    caller::{Caller, CatalogScope},
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, CatalogEntryKind, ResourceSubscription},
    extensions::extensions_of,
    name,
    rules::CatalogRules,
    search,
    search_tools::{SEARCH_INSTRUCTIONS, SearchTool, search_view},
    tool_override::ToolOverrides,
    toolset::{Toolset, Toolsets},
    view::CatalogView,
    visibility::{CachedViews, ViewKey, VisibleCatalog, may_use},
};
use maru_auth::Principal;

/// The catalog at one moment.
#[derive(Debug, Default)]
pub struct CatalogSnapshot {
    all: CatalogView,
    servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    /// The views of toolsets, made on first use.
    toolset_views: BTreeMap<Arc<str>, OnceLock<CatalogView>>,
    cached_views: CachedViews,
    /// Ranks `all.tools`; built once.
    tool_index: OnceLock<ToolIndex>,
    /// All servers as they describe themselves, including the tools that are switched off.
    pub(super) all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
    pub(super) rules: CatalogRules,
}

/// What a client tells its model, unless its toolset has words of its own.
const INSTRUCTIONS: &str = "maru combines the tools of many servers. Call a tool by its listed name; \
     results are JSON in structuredContent and the same as text.";

impl CatalogSnapshot {
    pub(super) fn build(
        all_servers: BTreeMap<Arc<str>, Arc<CatalogView>>,
        rules: CatalogRules,
    ) -> Self {
        let servers = rules.apply(&all_servers);
        let entries: Vec<Arc<CatalogEntry>> = servers
            .values()
            .flat_map(|view| view.entries())
            .cloned()
            .collect();
        let toolsets = rules.toolsets.keys();
        Self {
            all: CatalogView::build(&entries, CatalogEntry::listed_name),
            servers,
            toolset_views: toolsets
                .map(|it| (Arc::clone(it), OnceLock::new()))
                .collect(),
            cached_views: CachedViews::default(),
            tool_index: OnceLock::new(),
            all_servers,
            rules,
        }
    }

    /// Every tool as its server describes it, and whether it is switched on.
    pub fn tools_with_state(&self) -> impl Iterator<Item = (&Arc<CatalogEntry>, bool)> {
        let tools = self
            .all_servers
            .values()
            .flat_map(|view| view.tools.entries());
        let disabled = &self.rules.disabled_tools;
        tools.map(|it| (it, !disabled.is_disabled(&it.server, &it.key)))
    }

    /// A tool as clients see it, by its server and its name there.
    pub fn listed_tool(&self, server: &str, key: &str) -> Option<&Arc<CatalogEntry>> {
        let tools = &self.servers.get(server)?.tools;
        let is_same = |it: &&Arc<CatalogEntry>| it.key() == key;
        tools
            .get(key)
            .filter(is_same)
            .or_else(|| tools.entries().iter().find(is_same))
    }

    /// Every tool that is switched on, sorted by its listed name.
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
        &self.rules.disabled_tools
    }

    /// How tools are described to clients.
    pub fn tool_overrides(&self) -> &ToolOverrides {
        &self.rules.overrides
    }

    /// The toolsets.
    pub fn toolsets(&self) -> &Toolsets {
        &self.rules.toolsets
    }

    /// Whether the toolset of this name exists and contains `entry`.
    pub fn toolset_contains(&self, name: &str, entry: &CatalogEntry) -> bool {
        let toolset = self.rules.toolsets.get(name);
        toolset.is_some_and(|it| it.contains(entry))
    }

    /// The view of a scope.
    pub fn view(&self, scope: &CatalogScope) -> Result<&CatalogView, RpcError> {
        let unknown = |what: &str, name: &str| {
            RpcError::invalid_params(format!("no {what} named {name:?} is connected"))
        };
        match scope {
            CatalogScope::All => Ok(&self.all),
            CatalogScope::Server(name) => {
                let view = self.servers.get(name).map(Arc::as_ref);
                view.ok_or_else(|| unknown("server", name))
            }
            CatalogScope::Toolset(name) => self.toolset_view(name).ok_or_else(|| {
                RpcError::invalid_params(format!("there is no toolset named {name:?}"))
            }),
        }
    }

    fn toolset_view(&self, name: &str) -> Option<&CatalogView> {
        let toolset = self.rules.toolsets.get(name)?;
        let view = self.toolset_views.get(name)?;
        let contains = |it: &CatalogEntry| toolset.contains(it);
        Some(view.get_or_init(|| {
            let entries = select_entries(&self.all, contains);
            CatalogView::build(&entries, CatalogEntry::listed_name)
        }))
    }

    /// The entries that `caller` may see and use.
    pub fn visible_to(&self, caller: &Caller) -> Result<VisibleCatalog<'_>, RpcError> {
        let whole = self.view(&caller.scope)?;
        if caller.principal.grants().is_none() {
            return Ok(VisibleCatalog::All(whole));
        }
        let key = ViewKey::visible(caller);
        let build = || {
            let entries = select_entries(whole, |it| self.may_use(&caller.principal, it));
            match caller.scope {
                CatalogScope::Server(_) => CatalogView::build(&entries, CatalogEntry::listed_key),
                CatalogScope::All | CatalogScope::Toolset(_) => {
                    CatalogView::build(&entries, CatalogEntry::listed_name)
                }
            }
        };
        Ok(VisibleCatalog::Cached(
            self.cached_views.get_or_build(key, build),
        ))
    }

    /// What the lists of `caller` contain: the entries that it may see, or the tools that
    /// find and call them.
    pub fn listed_to(&self, caller: &Caller) -> Result<VisibleCatalog<'_>, RpcError> {
        let view = self.visible_to(caller)?;
        if !self.is_searched(caller, &view) {
            return Ok(view);
        }
        let key = ViewKey::search(caller);
        let build = || search_view(&view, self.favorites(caller));
        Ok(VisibleCatalog::Cached(
            self.cached_views.get_or_build(key, build),
        ))
    }

    /// Whether `caller` searches its tools instead of listing them. The request decides, then
    /// the token, the toolset and the settings.
    fn is_searched(&self, caller: &Caller, view: &CatalogView) -> bool {
        let toolset = self.toolset_of(caller);
        let listing = caller
            .tool_listing
            .or(caller.principal.tool_listing())
            .or_else(|| toolset?.definition().tools)
            .unwrap_or(self.rules.search.tools);
        match listing {
            ToolListing::List => false,
            ToolListing::Search => true,
            ToolListing::Auto => view.tools.estimated_tokens() > self.rules.search.token_budget,
        }
    }

    fn favorites(&self, caller: &Caller) -> &[String] {
        let own = self.toolset_of(caller).map(|it| &it.definition().favorites);
        own.filter(|it| !it.is_empty())
            .unwrap_or(&self.rules.search.favorites)
    }

    /// The toolset of an endpoint, or else of a token.
    fn toolset_of(&self, caller: &Caller) -> Option<&Arc<Toolset>> {
        let name = match &caller.scope {
            CatalogScope::Toolset(name) => Some(name),
            CatalogScope::All | CatalogScope::Server(_) => caller.principal.toolset(),
        };
        self.rules.toolsets.get(name?)
    }

    /// The toolsets through which `caller` calls, whose limits count: that of the endpoint
    /// and that of the token.
    pub(super) fn toolsets_through(&self, caller: &Caller) -> impl Iterator<Item = &Arc<Toolset>> {
        let of_token = caller.principal.toolset();
        let of_endpoint = match &caller.scope {
            CatalogScope::Toolset(name) if Some(name) != of_token => Some(name),
            _ => None,
        };
        let names = of_token.into_iter().chain(of_endpoint);
        names.filter_map(|it| self.rules.toolsets.get(it))
    }

    /// The extensions that a client of `caller` is told of.
    pub fn extensions_for(&self, caller: &Caller) -> Map<String, Value> {
        let view = self.visible_to(caller);
        view.map(|it| extensions_of(&it)).unwrap_or_default()
    }

    /// What a client tells its model about the tools of `caller`.
    pub fn instructions_for(&self, caller: &Caller) -> String {
        let toolset = self.toolset_of(caller);
        let own = toolset.and_then(|it| it.definition().instructions.as_deref());
        let words = own.unwrap_or(INSTRUCTIONS);
        let is_searched = self
            .visible_to(caller)
            .is_ok_and(|view| self.is_searched(caller, &view));
        if is_searched {
            format!("{words}\n\n{SEARCH_INSTRUCTIONS}")
        } else {
            words.to_owned()
        }
    }

    /// Whether `principal` may see and use `entry`.
    pub fn may_use(&self, principal: &Principal, entry: &CatalogEntry) -> bool {
        let is_in_toolset = |name: &Arc<str>| self.toolset_contains(name, entry);
        may_use(principal, entry) && principal.toolset().is_none_or(is_in_toolset)
    }

    /// The search tool of this name, unless the caller's tools include one of that name.
    pub(super) fn search_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<SearchTool>, RpcError> {
        let Some(tool) = SearchTool::from_name(name) else {
            return Ok(None);
        };
        let view = self.visible_to(caller)?;
        let is_hidden = view.tools.get(name).is_some() && !self.is_searched(caller, &view);
        Ok((!is_hidden).then_some(tool))
    }

    /// A tool by its listed name, by `server.tool`, by the name that an override replaced or
    /// by the name that a user interface knows, if the caller may call it.
    pub(super) fn find_tool(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Option<&Arc<CatalogEntry>>, RpcError> {
        let view = self.view(&caller.scope)?;
        let found = view.tools.get(name).or_else(|| match &caller.scope {
            CatalogScope::Server(server) => self.listed_tool(server, name),
            CatalogScope::All | CatalogScope::Toolset(_) => {
                let found = self.tool_by_other_name(name);
                found.filter(|it| view.contains_tool(it))
            }
        });
        let found = found.filter(|it| self.may_use(&caller.principal, it));
        Ok(found.or_else(|| self.tool_of_interface(caller, view, name)))
    }

    /// The only tool that user interfaces call by this name. Their pages do not know that the
    /// hub puts the name of the server in front.
    fn tool_of_interface<'a>(
        &self,
        caller: &Caller,
        view: &'a CatalogView,
        name: &str,
    ) -> Option<&'a Arc<CatalogEntry>> {
        let tools = view.tools.entries().iter();
        let named = tools.filter(|it| it.key() == name && it.is_for_interfaces());
        let mut named = named.filter(|it| self.may_use(&caller.principal, it));
        named.next().filter(|_| named.next().is_none())
    }

    fn tool_by_other_name(&self, name: &str) -> Option<&Arc<CatalogEntry>> {
        let qualified = || {
            let (server, tool) = name.split_once('.')?;
            self.listed_tool(server, tool)
        };
        let replaced = || {
            let renamed = self.rules.overrides.iter();
            let mut renamed = renamed.filter(|(_, it)| it.name.is_some());
            renamed.find_map(|((server, tool), _)| {
                let found = self.listed_tool(server, tool);
                found.filter(|it| it.public_name() == name)
            })
        };
        qualified().or_else(replaced)
    }

    /// The server that may have a tool of this name once it is connected, if `caller` may
    /// use that tool.
    pub(super) fn server_to_connect<'a>(
        &'a self,
        caller: &Caller,
        tool: &'a str,
    ) -> Option<&'a str> {
        let mut renamed = self.rules.overrides.iter();
        let renamed = renamed.find(|(_, it)| it.name.as_deref() == Some(tool));
        let (server, public_name) = match renamed {
            Some(((server, key), _)) => (&**server, Cow::Owned(name::public_name(server, key))),
            None => (name::server_of(tool)?, Cow::Borrowed(tool)),
        };
        self.may_connect_for(caller, server, [tool, &public_name])
            .then_some(server)
    }

    fn may_connect_for(&self, caller: &Caller, server: &str, tool_names: [&str; 2]) -> bool {
        let grants = caller.principal.grants();
        grants.is_none_or(|it| it.allows_server(server))
            && self
                .toolsets_through(caller)
                .all(|it| it.may_contain(server, &tool_names))
            && caller
                .principal
                .toolset()
                .is_none_or(|it| self.rules.toolsets.contains_key(it))
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

/// The selected entries. The user interface of a selected tool belongs to it.
fn select_entries(
    view: &CatalogView,
    is_selected: impl Fn(&CatalogEntry) -> bool,
) -> Vec<Arc<CatalogEntry>> {
    let is_tool = |it: &&Arc<CatalogEntry>| it.kind() == CatalogEntryKind::Tool;
    let tools = view.entries().filter(is_tool);
    let tools: Vec<&Arc<CatalogEntry>> = tools.filter(|it| is_selected(it)).collect();
    // A server may name anything as a user interface; only an interface of its own counts.
    let interfaces: HashSet<(&str, &str)> = tools
        .iter()
        .filter_map(|it| Some((&**it.server(), it.ui_resource()?)))
        .filter(|(_, uri)| uri.starts_with("ui://"))
        .collect();
    let is_interface = |it: &CatalogEntry| {
        it.kind() == CatalogEntryKind::Resource && interfaces.contains(&(&**it.server(), it.key()))
    };
    let others = view.entries().filter(|it| !is_tool(it));
    let others = others.filter(|it| is_interface(it) || is_selected(it));
    tools.iter().copied().chain(others).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tool_brings_the_user_interface_of_its_own_server_and_nothing_else() {
        let entry = |server: &str, kind, key: &str, described: Value| {
            let server = Arc::from(server);
            let unused = Arc::new(|_| unreachable!());
            let key = key.to_owned();
            Arc::new(CatalogEntry::from_server(
                &server, kind, key, &described, unused,
            ))
        };
        let tool = |server: &str, key: &str, uri: &str| {
            let described = json!({"_meta": {"ui": {"resourceUri": uri}}});
            entry(server, CatalogEntryKind::Tool, key, described)
        };
        let resource =
            |server: &str, key: &str| entry(server, CatalogEntryKind::Resource, key, json!({}));
        let entries = [
            tool("bad", "t0", "ui://bad/face"),
            tool("bad", "t1", "ui://good/face"),
            tool("bad", "t2", "secret://bad"),
            tool("bad", "t3", "review"),
            tool("bad", "t4", "ui://{all}"),
            resource("bad", "ui://bad/face"),
            resource("bad", "secret://bad"),
            resource("good", "ui://good/face"),
            entry("good", CatalogEntryKind::Prompt, "review", json!({})),
            entry(
                "bad",
                CatalogEntryKind::ResourceTemplate,
                "ui://{all}",
                json!({}),
            ),
        ];
        let view = CatalogView::build(&entries, |it| it.key());
        let is_tool = |it: &CatalogEntry| it.kind() == CatalogEntryKind::Tool;
        let selected = select_entries(&view, is_tool);
        let others = selected.iter().filter(|it| !is_tool(it));
        let others: Vec<&str> = others.map(|it| it.key()).collect();
        assert_eq!(others, ["ui://bad/face"]);
    }
}
