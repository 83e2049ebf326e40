//! What a server lists, as entries of the catalog.

use std::{collections::HashSet, sync::Arc};

use futures_util::FutureExt as _;
use maru_protocol::{push_json_string, to_json_string};
use serde_json::{Value, json};

use super::{
    Error,
    connect::ActiveConnection,
    forward::ForwardedRequest,
    handle::SharedConnection,
    handshake::{call_method, own_request_meta},
    hub_route::{self, HubRoute},
    sanitize::sanitize_entry,
    trust::PinnedDefinition,
};
use crate::tools::{
    CatalogEntry, CatalogEntryKind, EntryAction, EntryHandler, EntryRequest, HeaderParameter,
    ResourceSubscription, parse_header_parameters,
};

/// The most that one server may list of a kind.
const MAX_ENTRIES_PER_LIST: usize = 2000;
const MAX_LIST_PAGES: usize = 200;

/// Everything that a server offers.
#[derive(Debug, Default)]
pub(super) struct Refreshed {
    /// Each with its definition, if it is a tool.
    pub(super) offers: Vec<(Arc<CatalogEntry>, Option<PinnedDefinition>)>,
    /// What is not offered.
    pub(super) withheld: Vec<WithheldEntry>,
}

/// Something that a server lists and maru does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldEntry {
    /// Its name, as far as it can be shown.
    pub name: String,
    /// Why it is not offered.
    pub why: String,
    /// How it differs from what was accepted, if that is why.
    pub differences: Value,
}

/// A list that servers have.
struct ListMethod {
    kind: CatalogEntryKind,
    capability: &'static str,
    method: &'static str,
    member: &'static str,
}

const LIST_METHODS: [ListMethod; 4] = [
    ListMethod {
        kind: CatalogEntryKind::Tool,
        capability: "tools",
        method: "tools/list",
        member: "tools",
    },
    ListMethod {
        kind: CatalogEntryKind::Prompt,
        capability: "prompts",
        method: "prompts/list",
        member: "prompts",
    },
    ListMethod {
        kind: CatalogEntryKind::Resource,
        capability: "resources",
        method: "resources/list",
        member: "resources",
    },
    ListMethod {
        kind: CatalogEntryKind::ResourceTemplate,
        capability: "resources",
        method: "resources/templates/list",
        member: "resourceTemplates",
    },
];

/// Reads every list of the server, for the hub of this id.
pub(super) async fn fetch_listing(
    shared: &Arc<SharedConnection>,
    live: &ActiveConnection,
    hub_id: &str,
) -> Result<Refreshed, Error> {
    let route = HubRoute::new(hub_id, &live.session.capabilities)?;
    let mut listed = Refreshed::default();
    for list in &LIST_METHODS {
        if !live
            .session
            .capabilities
            .get(list.capability)
            .is_some_and(Value::is_object)
        {
            continue;
        }
        let entries = fetch_pages(live, list).await?;
        let mut seen = HashSet::new();
        for mut entry in entries {
            let shown = display_name(&entry);
            let hubs = match route.take_hubs(&mut entry) {
                Ok(hubs) => hubs,
                Err(why) => {
                    listed.withhold(shown, why);
                    continue;
                }
            };
            match sanitize_entry(list.kind, entry) {
                Ok((key, _)) if !seen.insert(key.clone()) => {
                    listed.withhold(shown, "the server lists it twice");
                }
                Ok((key, mut entry)) => {
                    let definition = (list.kind == CatalogEntryKind::Tool)
                        .then(|| PinnedDefinition::new(&entry));
                    hub_route::put_hubs(&mut entry, &hubs);
                    let offer = build_catalog_entry(shared, list.kind, key, &entry);
                    listed.offers.push((offer, definition));
                }
                Err(why) => listed.withhold(shown, why),
            }
        }
    }
    Ok(listed)
}

/// All pages of a list, as long as they end.
async fn fetch_pages(live: &ActiveConnection, list: &ListMethod) -> Result<Vec<Value>, Error> {
    let mut entries = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_LIST_PAGES {
        let mut page = match call_method(
            &live.link,
            list.method,
            &list_params(live, cursor.as_deref()),
        )
        .await?
        {
            Ok(page) => page,
            // It said it has such a list; then it has none.
            Err(_) if list.kind != CatalogEntryKind::Tool => break,
            Err(why) => {
                return Err(Error::InvalidMessage(format!(
                    "the server did not list its tools: error {}",
                    why.code
                )));
            }
        };
        if let Some(Value::Array(found)) = page.get_mut(list.member).map(Value::take) {
            entries.extend(found.into_iter().take(MAX_ENTRIES_PER_LIST - entries.len()));
        }
        let next = page["nextCursor"].as_str().map(str::to_owned);
        let Some(next) =
            next.filter(|it| entries.len() < MAX_ENTRIES_PER_LIST && cursors.insert(it.clone()))
        else {
            break;
        };
        cursor = Some(next);
    }
    Ok(entries)
}

fn list_params(live: &ActiveConnection, cursor: Option<&str>) -> Value {
    let mut params = json!({});
    if let Some(cursor) = cursor {
        params["cursor"] = cursor.into();
    }
    if live.session.version.is_modern() {
        params["_meta"] = own_request_meta();
    }
    params
}

impl Refreshed {
    fn withhold(&mut self, name: String, why: impl Into<String>) {
        self.withheld.push(WithheldEntry {
            name,
            why: why.into(),
            differences: Value::Null,
        });
    }
}

/// Names of the tools, sorted.
pub(super) fn tool_names(offers: &[Arc<CatalogEntry>]) -> Vec<String> {
    let tools = offers
        .iter()
        .filter(|it| it.kind() == CatalogEntryKind::Tool);
    let mut names: Vec<String> = tools.map(|it| it.key().to_owned()).collect();
    names.sort_unstable();
    names
}

fn display_name(entry: &Value) -> String {
    let name = ["name", "uri", "uriTemplate"]
        .iter()
        .find_map(|it| entry[it].as_str())
        .unwrap_or("?");
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(100)
        .collect()
}

fn build_catalog_entry(
    shared: &Arc<SharedConnection>,
    kind: CatalogEntryKind,
    key: String,
    entry: &Value,
) -> Arc<CatalogEntry> {
    let mirrors = parse_header_parameters(&entry["inputSchema"]).unwrap_or_default();
    let handler = entry_handler(Arc::clone(shared), kind, key.clone().into(), mirrors.into());
    let offer = CatalogEntry::from_server(shared.name().as_arc(), kind, key, entry, handler);
    Arc::new(match kind {
        CatalogEntryKind::Resource | CatalogEntryKind::ResourceTemplate => {
            let shared = Arc::clone(shared);
            offer.with_subscription(Arc::new(move |uri| watch_resource(&shared, uri)))
        }
        CatalogEntryKind::Tool | CatalogEntryKind::Prompt => offer,
    })
}

fn entry_handler(
    shared: Arc<SharedConnection>,
    kind: CatalogEntryKind,
    key: Arc<str>,
    mirrors: Arc<[HeaderParameter]>,
) -> EntryHandler {
    Arc::new(move |ask: EntryRequest| {
        let (shared, key, mirrors) = (Arc::clone(&shared), Arc::clone(&key), Arc::clone(&mirrors));
        async move {
            let question = build_forwarded_request(kind, &key, &mirrors, &ask.action);
            shared.forward(question, &ask.context).await
        }
        .boxed()
    })
}

/// The request that an action is on the server itself.
fn build_forwarded_request<'a>(
    kind: CatalogEntryKind,
    key: &'a str,
    mirrors: &[HeaderParameter],
    action: &'a EntryAction,
) -> ForwardedRequest<'a> {
    let named = |arguments: &str| {
        let mut params = String::with_capacity(key.len() + arguments.len() + 32);
        params.push_str("\"name\":");
        push_json_string(&mut params, key);
        params.push_str(",\"arguments\":");
        params.push_str(arguments);
        params
    };
    let plain = |method, key, params| ForwardedRequest {
        method,
        key,
        params,
        mirrors: Vec::new(),
    };
    match action {
        EntryAction::CallTool(arguments) => ForwardedRequest {
            method: "tools/call",
            key,
            params: named(arguments.text()),
            mirrors: mirrors
                .iter()
                .filter_map(|it| Some((it.header.clone(), it.header_value(arguments)?)))
                .collect(),
        },
        EntryAction::GetPrompt(arguments) => plain("prompts/get", key, named(arguments.text())),
        EntryAction::ReadResource(uri) => plain(
            "resources/read",
            uri.as_str(),
            format!("\"uri\":{}", to_json_string(uri)),
        ),
        EntryAction::Complete {
            argument,
            value,
            context,
        } => {
            let reference = match kind {
                CatalogEntryKind::Prompt | CatalogEntryKind::Tool => {
                    json!({"type": "ref/prompt", "name": key})
                }
                CatalogEntryKind::Resource | CatalogEntryKind::ResourceTemplate => {
                    json!({"type": "ref/resource", "uri": key})
                }
            };
            let argument = json!({"name": argument, "value": value});
            let context = context
                .as_ref()
                .map_or(String::new(), |it| format!(",\"context\":{it}"));
            plain(
                "completion/complete",
                key,
                format!("\"ref\":{reference},\"argument\":{argument}{context}"),
            )
        }
    }
}

/// Watches a resource on the connection there is now.
fn watch_resource(shared: &Arc<SharedConnection>, uri: &str) -> ResourceSubscription {
    let Some(live) = shared.active_connection() else {
        return Box::new(());
    };
    live.add_watcher(uri);
    Box::new(SubscriptionGuard {
        active: live,
        uri: uri.to_owned(),
    })
}

struct SubscriptionGuard {
    active: Arc<ActiveConnection>,
    uri: String,
}

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.active.remove_watcher(&self.uri);
    }
}
