//! Which servers and tools a token is good for.

use std::collections::BTreeSet;

/// The lists of a token. One that is absent allows everything, an empty one nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    /// Names of servers; maru's own tools are those of `maru`.
    servers: Option<BTreeSet<String>>,
    /// Names of tools, as they are listed or as `server.tool`.
    tools: Option<BTreeSet<String>>,
}

impl Grants {
    /// The lists; `None` if there are none.
    pub fn new(servers: Option<Vec<String>>, tools: Option<Vec<String>>) -> Option<Self> {
        let grants = Self {
            servers: servers.map(BTreeSet::from_iter),
            tools: tools.map(BTreeSet::from_iter),
        };
        (grants != Self::default()).then_some(grants)
    }

    /// Whether the server is allowed, be it with some of its tools only.
    pub fn allows_server(&self, server: &str) -> bool {
        self.servers.as_ref().is_none_or(|it| it.contains(server))
    }

    /// Whether a tool is allowed: `public` is the name it is listed under, `name`
    /// the one on its own server.
    pub fn allows_tool(&self, server: &str, name: &str, public: &str) -> bool {
        let listed = |tools: &BTreeSet<String>| {
            tools.contains(public) || tools.contains(&format!("{server}.{name}"))
        };
        self.allows_server(server) && self.tools.as_ref().is_none_or(listed)
    }

    /// Whether prompts and resources of a server are allowed. Who lists tools and
    /// no servers wants these tools and nothing else.
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
        Grants::new(servers.map(list), tools.map(list)).unwrap()
    }

    #[test]
    fn absent_list_allows_all_and_an_empty_one_nothing() {
        assert_eq!(Grants::new(None, None), None);
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
        let both = grants(Some(&["gx"]), Some(&["fx__echo"]));
        assert!(!both.allows_tool("fx", "echo", "fx__echo"));
    }
}
