//! Requests of extensions: the catalog finds the server that they are meant for.

use std::{borrow::Cow, sync::Arc};

use futures_util::future::join_all;
use maru_protocol::{
    RawJson, RequestParams, RpcError, code, collect_members, key, object_members,
    parse_json_string, push_json_string, remove_members, to_json_string,
};
use serde_json::{json, value::RawValue};
use tracing::debug;

use super::Catalog;
use crate::{
    caller::Caller,
    context::RequestContext,
    entry::{CatalogEntry, EntryAction, EntryResponse},
    extensions::{self, SKILLS_EXTENSION},
    not_found::resource_not_found,
    result::EntryResult,
    server_uri::original_uri,
    view::CatalogView,
};

/// A request of an extension.
#[derive(Clone, Copy, Debug)]
pub struct ExtensionCall<'a> {
    /// The method.
    pub method: &'a str,
    /// The parameters, an object.
    pub params: Option<RawJson<'a>>,
}

/// A request that passed through more hubs is not answered.
const MAX_HUB_HOPS: usize = 8;
/// The members of parameters that concern a single hop.
const HOP_MEMBERS: [&str; 3] = ["_meta", "inputResponses", "requestState"];
/// The most skills that are read from a server.
const MAX_SKILLS_PER_SERVER: usize = 1000;
const MAX_SKILL_PAGES: usize = 50;
const MAX_SKILLS_BYTES: usize = 8 << 20;

impl Catalog {
    /// Sends a request of an extension to its server: the one whose resource it names, or
    /// else the only one with an extension that the hub does not know. `skills/list` goes to
    /// all that have skills.
    pub async fn call_extension(
        &self,
        caller: &Caller,
        call: ExtensionCall<'_>,
        mut context: RequestContext,
    ) -> Result<EntryResult, RpcError> {
        let unknown = || RpcError::method_not_found(call.method);
        if !extensions::is_extension_method(call.method) {
            return Err(unknown());
        }
        let meta = self.meta_of_next_hop(context.meta.as_deref());
        context.meta = Some(meta.ok_or_else(unknown)?.into());
        let (snapshot, context) = (self.snapshot(), Arc::new(context));
        let view = snapshot.visible_to(caller)?;
        if call.method == "skills/list" {
            return self.list_skills(caller, &view, context).await;
        }
        caller.require_call_role()?;
        let uri = RequestParams::parse(call.params)?.uri;
        let uri = uri.and_then(parse_json_string);
        let server = find_server(&view, call.method, uri.as_deref())?;
        let server = server.ok_or_else(unknown)?;
        let action = EntryAction::CallExtension {
            method: call.method.to_owned(),
            params: forwarded_params(server.key(), call.params),
        };
        complete(self.invoke_or_error(caller, server, action, context).await)
    }

    /// The `_meta` of a request to the next server, which names the hubs on its way; `None`
    /// if this hub is one of them already.
    fn meta_of_next_hop(&self, meta: Option<&str>) -> Option<String> {
        let meta = meta.unwrap_or("{}");
        let mut members = object_members(meta)?;
        let path = members.find_map(|(name, raw)| (name == key::HUB_PATH).then_some(raw));
        let path = path.and_then(|it| serde_json::from_str::<Vec<String>>(it).ok());
        let mut path = path.unwrap_or_default();
        if path.len() >= MAX_HUB_HOPS || path.iter().any(|it| *it == **self.hub_id()) {
            return None;
        }
        path.push(self.hub_id().to_string());
        let rest = remove_members(meta, &[key::HUB_PATH]);
        let rest = rest.trim_ascii().trim_start_matches('{');
        let comma = if rest.trim_ascii_start().starts_with('}') {
            ""
        } else {
            ","
        };
        Some(format!(
            "{{\"{}\":{}{comma}{rest}",
            key::HUB_PATH,
            json!(path)
        ))
    }

    /// The skills of all servers. One that does not answer is left out.
    async fn list_skills(
        &self,
        caller: &Caller,
        view: &CatalogView,
        context: Arc<RequestContext>,
    ) -> Result<EntryResult, RpcError> {
        let servers = view.servers.entries().iter();
        let servers: Vec<Arc<CatalogEntry>> =
            servers.filter(|it| has_skills(it)).cloned().collect();
        if servers.is_empty() {
            return Err(RpcError::method_not_found("skills/list"));
        }
        // A loop, because the compiler cannot prove the future of a closure to be `Send`.
        let mut lists = Vec::new();
        for server in &servers {
            lists.push(self.skills_of(caller, server, &context));
        }
        let mut text = String::from("{\"skills\":[");
        let lists = join_all(lists).await.into_iter().zip(&servers);
        let skills = lists.filter_map(|(skills, server)| {
            let failed = |error: &RpcError| {
                debug!(
                    server.name = server.key(),
                    error = &*error.message,
                    "skills are not listed"
                );
            };
            skills.inspect_err(failed).ok()
        });
        for skill in skills.flatten() {
            if text.len() + skill.len() > MAX_SKILLS_BYTES {
                break;
            }
            text.push_str(if text.ends_with('[') { "" } else { "," });
            text.push_str(&skill);
        }
        text.push_str("]}");
        Ok(EntryResult::parse(text))
    }

    /// All pages of the skills of a server, each skill as JSON.
    async fn skills_of(
        &self,
        caller: &Caller,
        server: &CatalogEntry,
        context: &Arc<RequestContext>,
    ) -> Result<Vec<String>, RpcError> {
        let (mut skills, mut cursor) = (Vec::new(), None::<String>);
        for _ in 0..MAX_SKILL_PAGES {
            let cursor_member = cursor.map(|it| format!("\"cursor\":{}", to_json_string(&it)));
            let action = EntryAction::CallExtension {
                method: "skills/list".to_owned(),
                params: cursor_member.unwrap_or_default(),
            };
            let context = Arc::clone(context);
            let page = complete(self.invoke_or_error(caller, server, action, context).await)?;
            let mut next = None;
            for (name, raw) in object_members(page.as_json()).into_iter().flatten() {
                match &*name {
                    "skills" => {
                        let listed: Vec<&RawValue> = serde_json::from_str(raw).unwrap_or_default();
                        skills.extend(listed.iter().map(|it| it.get().to_owned()));
                    }
                    "nextCursor" => next = parse_json_string(raw).map(Cow::into_owned),
                    _ => (),
                }
            }
            if next.is_none() || skills.len() >= MAX_SKILLS_PER_SERVER {
                break;
            }
            cursor = next;
        }
        skills.truncate(MAX_SKILLS_PER_SERVER);
        Ok(skills)
    }
}

/// The server that a request is meant for.
fn find_server<'a>(
    view: &'a CatalogView,
    method: &str,
    uri: Option<&str>,
) -> Result<Option<&'a Arc<CatalogEntry>>, RpcError> {
    let named = uri.and_then(|uri| view.find_resource(uri));
    let named = named.and_then(|it| view.servers.get(it.server()));
    if method.starts_with("skills/") || method.starts_with("resources/") {
        if view.servers.entries().iter().all(|it| !has_skills(it)) {
            return Ok(None);
        }
        let not_found = || RpcError::invalid_params(resource_not_found(uri.unwrap_or("")).message);
        return named
            .filter(|it| has_skills(it))
            .ok_or_else(not_found)
            .map(Some);
    }
    let mut others = view.servers.entries().iter().filter(|it| has_unknown(it));
    let only = others.next().filter(|_| others.next().is_none());
    Ok(named.filter(|it| has_unknown(it)).or(only))
}

fn has_skills(server: &CatalogEntry) -> bool {
    extensions::declared_extensions(server).contains_key(SKILLS_EXTENSION)
}

fn has_unknown(server: &CatalogEntry) -> bool {
    let declared = extensions::declared_extensions(server);
    declared.keys().any(|it| extensions::is_unknown(it))
}

/// The members of the parameters as the server knows them.
fn forwarded_params(server: &str, params: Option<RawJson<'_>>) -> String {
    let members = params.and_then(collect_members).unwrap_or_default();
    let mut text = String::new();
    for member in members {
        if HOP_MEMBERS.contains(&&*member.name) {
            continue;
        }
        text.push_str(if text.is_empty() { "" } else { "," });
        push_json_string(&mut text, &member.name);
        text.push(':');
        match parse_json_string(member.value).filter(|_| member.name == "uri") {
            Some(uri) => push_json_string(&mut text, &original_uri(server, &uri)),
            None => text.push_str(member.value),
        }
    }
    text
}

fn complete(response: Result<EntryResponse, RpcError>) -> Result<EntryResult, RpcError> {
    match response? {
        EntryResponse::Complete(result) => Ok(result),
        EntryResponse::InputRequired(_) => Err(RpcError::new(
            code::INTERNAL_ERROR,
            "a request of an extension cannot request input through the hub",
        )),
    }
}
