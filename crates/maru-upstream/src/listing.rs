//! Reads a server's lists and turns them into catalog entries.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

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
    qualified_uris,
    sanitize::sanitize_entry,
    trust::PinnedDefinition,
};
use maru_tools::{
    CatalogEntry, CatalogEntryKind, EntryAction, EntryHandler, EntryRequest, HeaderParameter,
    ResourceSubscription, parse_header_parameters, relayed_extensions, server_uri::original_uri,
};

/// The most entries of one kind that are read from a server.
const MAX_ENTRIES_PER_LIST: usize = 2000;
const MAX_LIST_PAGES: usize = 200;

/// The result of reading all lists of a server.
#[derive(Debug, Default)]
pub(super) struct Refreshed {
    /// The usable entries; tools come with their definition.
    pub(super) offers: Vec<(Arc<CatalogEntry>, Option<PinnedDefinition>)>,
    /// Entries that are not published.
    pub(super) withheld: Vec<WithheldEntry>,
}

/// An entry that a server lists and maru does not publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldEntry {
    /// Its name, without control characters and shortened.
    pub name: String,
    /// Why it is not published.
    pub reason: String,
    /// How it differs from the accepted definition, if it was changed.
    pub differences: Value,
}

/// One list method of the protocol.
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

/// Reads every list of the server on behalf of the hub with this id.
pub(super) async fn fetch_listing(
    shared: &Arc<SharedConnection>,
    connection: &ActiveConnection,
    hub_id: &str,
) -> Result<Refreshed, Error> {
    let route = HubRoute::new(hub_id, &connection.session.capabilities)?;
    let mut listed = Refreshed::default();
    let extensions = relayed_extensions(&connection.session.capabilities);
    let own = json!({"extensions": extensions});
    let key = shared.name().as_str().to_owned();
    let server = build_catalog_entry(shared, CatalogEntryKind::Server, key, &own);
    listed.offers.push((server, None));
    for list in &LIST_METHODS {
        if !connection
            .session
            .capabilities
            .get(list.capability)
            .is_some_and(Value::is_object)
        {
            continue;
        }
        let entries = fetch_pages(connection, list).await?;
        let mut seen = HashSet::new();
        for mut entry in entries {
            let name = display_name(&entry);
            let hubs = match route.take_hubs(&mut entry) {
                Ok(hubs) => hubs,
                Err(reason) => {
                    listed.withhold(name, reason);
                    continue;
                }
            };
            match sanitize_entry(list.kind, entry) {
                Ok((key, _)) if !seen.insert(key.clone()) => {
                    listed.withhold(name, "the server lists it twice");
                }
                Ok((key, mut entry)) => {
                    let definition = (list.kind == CatalogEntryKind::Tool)
                        .then(|| PinnedDefinition::new(&entry));
                    hub_route::put_hubs(&mut entry, &hubs);
                    let offer = build_catalog_entry(shared, list.kind, key, &entry);
                    listed.offers.push((offer, definition));
                }
                Err(reason) => listed.withhold(name, reason),
            }
        }
    }
    Ok(listed)
}

/// Reads all pages of a list, within limits.
async fn fetch_pages(
    connection: &ActiveConnection,
    list: &ListMethod,
) -> Result<Vec<Value>, Error> {
    let mut entries = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_LIST_PAGES {
        let mut page = match call_method(
            &connection.link,
            list.method,
            &list_params(connection, cursor.as_deref()),
        )
        .await?
        {
            Ok(page) => page,
            // The server declared the capability but does not support the method.
            Err(_) if list.kind != CatalogEntryKind::Tool => break,
            Err(reason) => {
                return Err(Error::InvalidMessage(format!(
                    "the server did not list its tools: error {}",
                    reason.code
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

fn list_params(connection: &ActiveConnection, cursor: Option<&str>) -> Value {
    let mut params = json!({});
    if let Some(cursor) = cursor {
        params["cursor"] = cursor.into();
    }
    if connection.session.version.is_modern() {
        params["_meta"] = own_request_meta();
    }
    params
}

impl Refreshed {
    fn withhold(&mut self, name: String, reason: impl Into<String>) {
        self.withheld.push(WithheldEntry {
            name,
            reason: reason.into(),
            differences: Value::Null,
        });
    }
}

/// Returns the sorted names of the tools.
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
    let server = shared.name().as_arc();
    let mut entry = entry.clone();
    let key = qualified_uris::qualify_entry(server, kind, key, &mut entry);
    let offer = CatalogEntry::from_server(server, kind, key, &entry, handler);
    Arc::new(match kind {
        CatalogEntryKind::Resource
        | CatalogEntryKind::ResourceTemplate
        | CatalogEntryKind::Server => {
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
    Arc::new(move |mut entry_request: EntryRequest| {
        let (shared, key, mirrors) = (Arc::clone(&shared), Arc::clone(&key), Arc::clone(&mirrors));
        if let EntryAction::ReadResource(uri) = &mut entry_request.action
            && let Cow::Owned(original) = original_uri(shared.name().as_str(), uri)
        {
            *uri = original;
        }
        async move {
            let request = build_forwarded_request(kind, &key, &mirrors, &entry_request.action);
            let response = shared
                .forward(request, &entry_request.context, &entry_request.principal)
                .await?;
            let server = shared.name().as_str();
            Ok(qualified_uris::qualify_response(server, response))
        }
        .boxed()
    })
}

/// Builds the request that performs an action on the server.
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
    let plain = |method: &'static str, key, params| ForwardedRequest {
        method: Cow::Borrowed(method),
        key,
        params,
        mirrors: Vec::new(),
    };
    match action {
        EntryAction::CallTool(arguments) => ForwardedRequest {
            method: Cow::Borrowed("tools/call"),
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
                CatalogEntryKind::Prompt | CatalogEntryKind::Tool | CatalogEntryKind::Server => {
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
        EntryAction::CallExtension { method, params } => ForwardedRequest {
            method: Cow::Owned(method.clone()),
            ..plain("", "", params.clone())
        },
    }
}

/// Subscribes to a resource on the active connection.
pub(super) fn watch_resource(shared: &Arc<SharedConnection>, uri: &str) -> ResourceSubscription {
    let Some(connection) = shared.active_connection() else {
        return Box::new(());
    };
    let uri = original_uri(shared.name().as_str(), uri).into_owned();
    connection.add_watcher(&uri);
    Box::new(SubscriptionGuard {
        active: connection,
        uri,
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
