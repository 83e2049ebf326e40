//! Tools that an admin switched off.

use std::{collections::HashSet, sync::Arc};

use super::view::CatalogView;

/// The tools that are switched off, by server and name on that server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisabledTools(HashSet<(String, String)>);

impl DisabledTools {
    /// Whether the tool is switched off.
    pub fn is_disabled(&self, server: &str, tool: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&(server.to_owned(), tool.to_owned()))
    }

    /// Switches a tool; returns whether that changed anything.
    pub fn set_enabled(&mut self, server: &str, tool: &str, on: bool) -> bool {
        let key = (server.to_owned(), tool.to_owned());
        if on {
            self.0.remove(&key)
        } else {
            self.0.insert(key)
        }
    }

    /// Server and name of each, also of tools that are not there now, in order.
    pub fn list(&self) -> Vec<(&str, &str)> {
        let keys = self.0.iter();
        let mut keys: Vec<_> = keys.map(|(server, tool)| (&**server, &**tool)).collect();
        keys.sort_unstable();
        keys
    }

    /// The view without the tools that are switched off.
    pub(super) fn enabled_part(&self, server: &str, view: &Arc<CatalogView>) -> Arc<CatalogView> {
        let is_on = |tool: &str| !self.is_disabled(server, tool);
        if view.tools.keys().all(is_on) {
            return Arc::clone(view);
        }
        Arc::new(view.without_tools(|tool| !is_on(tool)))
    }
}

impl FromIterator<(String, String)> for DisabledTools {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(off: T) -> Self {
        Self(off.into_iter().collect())
    }
}
