//! What a server lists, as offers of the catalog.

use std::{collections::HashSet, sync::Arc};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::{
    Error,
    forward::Question,
    handshake::{ask, own_meta},
    open::Live,
    repair::repair,
    route::{self, Route},
    shared::Shared,
    trust::Definition,
};
use crate::{
    mcp::push_text,
    tool::{Action, Ask, Handler, Kind, Mirror, Offer, Watching, mirrors},
};

/// The most that one server may list of a kind.
const MAX: usize = 2000;
const MAX_PAGES: usize = 200;

/// Everything that a server offers.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Each with its definition, if it is a tool.
    pub(super) offers: Vec<(Arc<Offer>, Option<Definition>)>,
    /// What is not offered.
    pub(super) withheld: Vec<Withheld>,
}

/// Something that a server lists and maru does not offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Its name, as far as it can be shown.
    pub name: String,
    /// Why it is not offered.
    pub why: String,
    /// How it differs from what was accepted, if that is why.
    pub differences: Value,
}

/// A list that servers have.
struct List {
    kind: Kind,
    capability: &'static str,
    method: &'static str,
    member: &'static str,
}

const LISTS: [List; 4] = [
    List {
        kind: Kind::Tool,
        capability: "tools",
        method: "tools/list",
        member: "tools",
    },
    List {
        kind: Kind::Prompt,
        capability: "prompts",
        method: "prompts/list",
        member: "prompts",
    },
    List {
        kind: Kind::Resource,
        capability: "resources",
        method: "resources/list",
        member: "resources",
    },
    List {
        kind: Kind::Template,
        capability: "resources",
        method: "resources/templates/list",
        member: "resourceTemplates",
    },
];

/// Reads every list of the server, for the hub of this id.
pub(super) async fn list(shared: &Arc<Shared>, live: &Live, hub_id: &str) -> Result<Listed, Error> {
    let route = Route::new(hub_id, &live.session.capabilities)?;
    let mut listed = Listed::default();
    for list in &LISTS {
        if !live
            .session
            .capabilities
            .get(list.capability)
            .is_some_and(Value::is_object)
        {
            continue;
        }
        let entries = read(live, list).await?;
        let mut seen = HashSet::new();
        for mut entry in entries {
            let shown = shown(&entry);
            let hubs = match route.take(&mut entry) {
                Ok(hubs) => hubs,
                Err(why) => {
                    listed.withhold(shown, why);
                    continue;
                }
            };
            match repair(list.kind, entry) {
                Ok((key, _)) if !seen.insert(key.clone()) => {
                    listed.withhold(shown, "the server lists it twice");
                }
                Ok((key, mut entry)) => {
                    let definition = (list.kind == Kind::Tool).then(|| Definition::new(&entry));
                    route::put(&mut entry, &hubs);
                    let offer = offer(shared, list.kind, key, &entry);
                    listed.offers.push((offer, definition));
                }
                Err(why) => listed.withhold(shown, why),
            }
        }
    }
    Ok(listed)
}

/// All pages of a list, as long as they end.
async fn read(live: &Live, list: &List) -> Result<Vec<Value>, Error> {
    let mut entries = Vec::new();
    let mut cursors = HashSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let mut page = match ask(&live.link, list.method, &params(live, cursor.as_deref())).await? {
            Ok(page) => page,
            // It said it has such a list; then it has none.
            Err(_) if list.kind != Kind::Tool => break,
            Err(why) => {
                return Err(Error::Garbage(format!(
                    "the server did not list its tools: error {}",
                    why.code
                )));
            }
        };
        if let Some(Value::Array(found)) = page.get_mut(list.member).map(Value::take) {
            entries.extend(found.into_iter().take(MAX - entries.len()));
        }
        let next = page["nextCursor"].as_str().map(str::to_owned);
        let Some(next) = next.filter(|it| entries.len() < MAX && cursors.insert(it.clone())) else {
            break;
        };
        cursor = Some(next);
    }
    Ok(entries)
}

fn params(live: &Live, cursor: Option<&str>) -> Value {
    let mut params = json!({});
    if let Some(cursor) = cursor {
        params["cursor"] = cursor.into();
    }
    if live.session.version.is_modern() {
        params["_meta"] = own_meta();
    }
    params
}

impl Listed {
    fn withhold(&mut self, name: String, why: impl Into<String>) {
        self.withheld.push(Withheld {
            name,
            why: why.into(),
            differences: Value::Null,
        });
    }
}

/// Names of the tools, sorted.
pub(super) fn tools(offers: &[Arc<Offer>]) -> Vec<String> {
    let tools = offers.iter().filter(|it| it.kind() == Kind::Tool);
    let mut names: Vec<String> = tools.map(|it| it.key().to_owned()).collect();
    names.sort_unstable();
    names
}

fn shown(entry: &Value) -> String {
    let name = ["name", "uri", "uriTemplate"]
        .iter()
        .find_map(|it| entry[it].as_str())
        .unwrap_or("?");
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(100)
        .collect()
}

fn offer(shared: &Arc<Shared>, kind: Kind, key: String, entry: &Value) -> Arc<Offer> {
    let mirrors = mirrors(&entry["inputSchema"]).unwrap_or_default();
    let handler = handler(Arc::clone(shared), kind, key.clone().into(), mirrors.into());
    let offer = Offer::of_server(shared.name().shared(), kind, key, entry, handler);
    Arc::new(match kind {
        Kind::Resource | Kind::Template => {
            let shared = Arc::clone(shared);
            offer.watched(Arc::new(move |uri| watch(&shared, uri)))
        }
        Kind::Tool | Kind::Prompt => offer,
    })
}

fn handler(shared: Arc<Shared>, kind: Kind, key: Arc<str>, mirrors: Arc<[Mirror]>) -> Handler {
    Arc::new(move |ask: Ask| {
        let (shared, key, mirrors) = (Arc::clone(&shared), Arc::clone(&key), Arc::clone(&mirrors));
        async move {
            let question = question(kind, &key, &mirrors, &ask.action);
            shared.ask(question, &ask.peer).await
        }
        .boxed()
    })
}

/// The request that an action is on the server itself.
fn question<'a>(kind: Kind, key: &'a str, mirrors: &[Mirror], action: &'a Action) -> Question<'a> {
    let named = |arguments: &str| {
        let mut params = String::with_capacity(key.len() + arguments.len() + 32);
        params.push_str("\"name\":");
        push_text(&mut params, key);
        params.push_str(",\"arguments\":");
        params.push_str(arguments);
        params
    };
    let plain = |method, key, params| Question {
        method,
        key,
        params,
        mirrors: Vec::new(),
    };
    match action {
        Action::Call(arguments) => Question {
            method: "tools/call",
            key,
            params: named(arguments.text()),
            mirrors: mirrors
                .iter()
                .filter_map(|it| Some((it.header.clone(), it.value(arguments)?)))
                .collect(),
        },
        Action::Get(arguments) => plain("prompts/get", key, named(arguments.text())),
        Action::Read(uri) => plain(
            "resources/read",
            uri.as_str(),
            format!("\"uri\":{}", Value::from(uri.as_str())),
        ),
        Action::Complete {
            argument,
            value,
            context,
        } => {
            let reference = match kind {
                Kind::Prompt | Kind::Tool => json!({"type": "ref/prompt", "name": key}),
                Kind::Resource | Kind::Template => json!({"type": "ref/resource", "uri": key}),
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
fn watch(shared: &Arc<Shared>, uri: &str) -> Watching {
    let Some(live) = shared.live() else {
        return Box::new(());
    };
    live.watch(uri);
    Box::new(Watched {
        live,
        uri: uri.to_owned(),
    })
}

struct Watched {
    live: Arc<Live>,
    uri: String,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.live.unwatch(&self.uri);
    }
}
