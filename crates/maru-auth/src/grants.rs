//! Which servers, tools and toolset a restricted token may use.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

/// The servers and tools that a token is limited to. An absent list allows everything, an
/// empty list nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    /// Server names; maru's own tools belong to the server `maru`.
    servers: Option<BTreeSet<String>>,
    /// Tool names, as they are listed or as `server.tool`.
    tools: Option<BTreeSet<String>>,
    /// Those of the tools that a person allowed a client, as `server.tool`.
    chosen_tools: Option<BTreeSet<String>>,
    /// The name of a toolset, which must contain a tool besides.
    toolset: Option<Arc<str>>,
    /// Whether no prompts and resources are allowed, on whatever servers.
    is_tools_only: bool,
}

impl Grants {
    /// Creates the grants of a token; `None` if it is not limited.
    pub fn new(
        servers: Option<Vec<String>>,
        tools: Option<Vec<String>>,
        toolset: Option<String>,
    ) -> Option<Self> {
        let grants = Self {
            // A list of tools without one of servers means these tools and nothing else.
            is_tools_only: servers.is_none() && tools.is_some(),
            servers: servers.map(BTreeSet::from_iter),
            tools: tools.map(BTreeSet::from_iter),
            chosen_tools: None,
            toolset: toolset.map(Arc::from),
        };
        (grants != Self::default()).then_some(grants)
    }

    /// All limits in an order of their own: equal grants have equal texts.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "servers": self.servers,
            "tools": self.tools,
            "chosenTools": self.chosen_tools,
            "toolset": self.toolset.as_deref(),
            "toolsOnly": self.is_tools_only,
        })
    }

    /// The grants of which [`Grants::to_json`] made this; `None` if it is something else.
    pub(super) fn from_json(record: &Value) -> Option<Self> {
        let list = |name: &str| -> Option<Option<BTreeSet<String>>> {
            serde_json::from_value(record[name].clone()).ok()
        };
        let toolset: Option<String> = serde_json::from_value(record["toolset"].clone()).ok()?;
        Some(Self {
            servers: list("servers")?,
            tools: list("tools")?,
            chosen_tools: list("chosenTools")?,
            toolset: toolset.map(Arc::from),
            is_tools_only: record["toolsOnly"].as_bool()?,
        })
    }

    /// The same grants for at most these servers and at most these tools, named
    /// `server.tool`. A choice of tools means these tools and nothing else.
    #[must_use]
    pub(super) fn limited_to(self, servers: Option<&[String]>, tools: Option<&[String]>) -> Self {
        let is_allowed = |it: &&String| self.allows_server(it);
        let servers = servers.map(|it| it.iter().filter(is_allowed).cloned().collect());
        let own = self.chosen_tools.as_ref();
        let is_chosen = |it: &&String| own.is_none_or(|own| own.contains(*it));
        let chosen = tools.map(|it| it.iter().filter(is_chosen).cloned().collect());
        Self {
            servers: servers.or(self.servers),
            is_tools_only: self.is_tools_only || tools.is_some(),
            chosen_tools: chosen.or(self.chosen_tools),
            ..self
        }
    }

    /// The names of the allowed servers; `None` if all are.
    pub fn servers(&self) -> Option<&BTreeSet<String>> {
        self.servers.as_ref()
    }

    /// The names of the allowed tools; `None` if all are.
    pub fn tools(&self) -> Option<&BTreeSet<String>> {
        self.tools.as_ref()
    }

    /// Whether the server is allowed, possibly with only some of its tools.
    pub fn allows_server(&self, server: &str) -> bool {
        self.servers.as_ref().is_none_or(|it| it.contains(server))
    }

    /// The toolset that limits it besides. Only the catalog knows what that contains.
    pub fn toolset(&self) -> Option<&Arc<str>> {
        self.toolset.as_ref()
    }

    /// Whether a tool is allowed. `public_name` is the name it is listed under, `name` its
    /// name on its own server.
    pub fn allows_tool(&self, server: &str, name: &str, public_name: &str) -> bool {
        let is_chosen = |tools: &BTreeSet<String>| tools.contains(&format!("{server}.{name}"));
        let is_listed = |tools: &BTreeSet<String>| tools.contains(public_name) || is_chosen(tools);
        self.allows_server(server)
            && self.tools.as_ref().is_none_or(is_listed)
            && self.chosen_tools.as_ref().is_none_or(is_chosen)
    }

    /// Whether prompts and resources of a server are allowed.
    pub fn allows_prompts_and_resources(&self, server: &str) -> bool {
        !self.is_tools_only && self.allows_server(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(servers: Option<&[&str]>, tools: Option<&[&str]>) -> Grants {
        let list = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect();
        Grants::new(servers.map(list), tools.map(list), None).unwrap()
    }

    #[test]
    fn absent_list_allows_all_and_an_empty_one_nothing() {
        assert_eq!(Grants::new(None, None, None), None);
        let nothing = grants(None, Some(&[]));
        assert!(
            !nothing.allows_tool("fx", "echo", "fx__echo")
                && !nothing.allows_prompts_and_resources("fx")
        );
        let nobody = grants(Some(&[]), None);
        assert!(
            !nobody.allows_tool("fx", "echo", "fx__echo")
                && !nobody.allows_prompts_and_resources("fx")
        );
        let server = grants(Some(&["fx"]), None);
        assert!(
            server.allows_tool("fx", "echo", "fx__echo")
                && server.allows_prompts_and_resources("fx")
        );
        assert!(!server.allows_tool("gx", "echo", "gx__echo"));
        for name in ["fx__echo", "fx.echo"] {
            let tool = grants(None, Some(&[name]));
            assert!(tool.allows_tool("fx", "echo", "fx__echo"));
            assert!(!tool.allows_tool("fx", "add", "fx__add"));
        }
        let limited = grants(Some(&["fx", "gx"]), Some(&["gx__add"]));
        let limited = limited.limited_to(Some(&["gx".to_owned(), "hx".to_owned()]), None);
        assert_eq!(limited, grants(Some(&["gx"]), Some(&["gx__add"])));
        let both = grants(Some(&["gx"]), Some(&["fx__echo"]));
        assert!(!both.allows_tool("fx", "echo", "fx__echo"));
    }

    #[test]
    fn choice_of_servers_opens_nothing() {
        let tool = grants(None, Some(&["fx__echo"]));
        assert!(!tool.allows_prompts_and_resources("fx"));
        let limited = tool.limited_to(Some(&["fx".to_owned()]), None);
        let other_hub = Grants::from_json(&limited.to_json()).unwrap();
        assert_eq!(other_hub, limited);
        for limited in [limited, other_hub] {
            assert!(limited.allows_tool("fx", "echo", "fx__echo"));
            assert!(!limited.allows_tool("fx", "add", "fx__add"));
            assert!(!limited.allows_prompts_and_resources("fx"));
        }
    }

    #[test]
    fn choice_of_tools_leaves_those_that_the_account_has_and_nothing_else() {
        let chosen = ["fx.echo".to_owned(), "gx.add".to_owned()];
        let account = grants(Some(&["fx"]), Some(&["fx__echo", "fx__add"]));
        for account in [account, grants(Some(&["fx"]), None)] {
            let limited = account.limited_to(None, Some(&chosen));
            assert_eq!(Grants::from_json(&limited.to_json()), Some(limited.clone()));
            assert!(limited.allows_tool("fx", "echo", "fx__echo"));
            assert!(!limited.allows_tool("fx", "add", "fx__add"));
            assert!(!limited.allows_tool("gx", "add", "gx__add"));
            assert!(!limited.allows_prompts_and_resources("fx"));
            // The choice names a tool by its server, whatever it is listed as.
            assert!(!limited.allows_tool("fx", "add", "fx.echo"));
        }
        let nothing = Grants::default().limited_to(None, Some(&[]));
        assert!(!nothing.allows_tool("fx", "echo", "fx__echo"));
    }
}
