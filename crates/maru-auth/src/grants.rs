//! Which servers, tools and toolset a restricted token may use.

use std::{collections::BTreeSet, sync::Arc};

/// The servers and tools that a token is limited to. An absent list allows everything, an
/// empty list nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    /// Server names; maru's own tools belong to the server `maru`.
    servers: Option<BTreeSet<String>>,
    /// Tool names, as they are listed or as `server.tool`.
    tools: Option<BTreeSet<String>>,
    /// The name of a toolset, which must contain a tool besides.
    toolset: Option<Arc<str>>,
}

impl Grants {
    /// Creates the grants of a token; `None` if it is not limited.
    pub fn new(
        servers: Option<Vec<String>>,
        tools: Option<Vec<String>>,
        toolset: Option<String>,
    ) -> Option<Self> {
        let grants = Self {
            servers: servers.map(BTreeSet::from_iter),
            tools: tools.map(BTreeSet::from_iter),
            toolset: toolset.map(Arc::from),
        };
        (grants != Self::default()).then_some(grants)
    }

    /// The lists of servers and of tools, as other hubs need them.
    pub(super) fn to_lists(&self) -> [Option<Vec<String>>; 2] {
        [&self.servers, &self.tools].map(|it| Some(it.as_ref()?.iter().cloned().collect()))
    }

    /// The same grants for at most these servers.
    #[must_use]
    pub(super) fn limited_to(&self, servers: &[String]) -> Self {
        let is_allowed = |it: &&String| self.allows_server(it);
        Self {
            servers: Some(servers.iter().filter(is_allowed).cloned().collect()),
            tools: self.tools.clone(),
            toolset: self.toolset.clone(),
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
        let is_listed = |tools: &BTreeSet<String>| {
            tools.contains(public_name) || tools.contains(&format!("{server}.{name}"))
        };
        self.allows_server(server) && self.tools.as_ref().is_none_or(is_listed)
    }

    /// Whether prompts and resources of a server are allowed. A token with a list of tools
    /// but no list of servers is meant for these tools and nothing else.
    pub fn allows_prompts_and_resources(&self, server: &str) -> bool {
        match (&self.servers, &self.tools) {
            (Some(servers), _) => servers.contains(server),
            (None, tools) => tools.is_none(),
        }
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
        let limited = limited.limited_to(&["gx".to_owned(), "hx".to_owned()]);
        assert_eq!(limited, grants(Some(&["gx"]), Some(&["gx__add"])));
        let both = grants(Some(&["gx"]), Some(&["fx__echo"]));
        assert!(!both.allows_tool("fx", "echo", "fx__echo"));
    }
}
