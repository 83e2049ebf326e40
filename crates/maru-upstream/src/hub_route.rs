//! Prevents loops between hubs that publish each other's tools. Pure.
//!
//! Without this, two hubs registered with each other would list `b_a_b_a_…`, one level
//! more on each refresh. Each listed entry names the hubs that it passed through, and a
//! hub that finds its own id among them does not publish the entry again.

use maru_protocol::key;
use serde_json::{Value, json};

use super::Error;

/// An entry that passed through more hubs is not published.
const MAX_HUB_HOPS: usize = 8;
/// Longer ids do not come from maru and are ignored.
const MAX_HUB_ID_BYTES: usize = 64;

/// The id of this hub, and of the server if that is a hub too.
#[derive(Debug)]
pub(super) struct HubRoute<'a> {
    own: &'a str,
    server: Option<&'a str>,
}

impl<'a> HubRoute<'a> {
    /// Creates the route for a server with these capabilities; fails if the server is
    /// this hub.
    pub(super) fn new(own: &'a str, capabilities: &'a Value) -> Result<Self, Error> {
        let server = capabilities["experimental"][key::HUB_ID]["id"].as_str();
        if server == Some(own) {
            return Err(Error::Refused(
                "this is the hub itself; remove the server, a hub offers its own tools already"
                    .to_owned(),
            ));
        }
        Ok(Self {
            own,
            server: server.filter(|it| it.len() <= MAX_HUB_ID_BYTES),
        })
    }

    /// Removes and returns the hubs that an entry passed through. The remaining
    /// definition does not depend on hub ids, so it can be compared with the accepted
    /// one.
    pub(super) fn take_hubs(&self, entry: &mut Value) -> Result<Vec<String>, String> {
        let mut hubs: Vec<String> = self.server.iter().map(|it| (*it).to_owned()).collect();
        if let Some(meta) = entry.get_mut("_meta").and_then(Value::as_object_mut) {
            let named = meta.shift_remove(key::HUB_PATH);
            let named = named
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let ids = named.filter_map(Value::as_str).take(MAX_HUB_HOPS + 1);
            hubs.extend(
                ids.filter(|it| it.len() <= MAX_HUB_ID_BYTES)
                    .map(str::to_owned),
            );
            if meta.is_empty() {
                entry.as_object_mut().map(|it| it.shift_remove("_meta"));
            }
        }
        if hubs.iter().any(|it| it == self.own) {
            return Err("it comes from this hub, by way of another".to_owned());
        }
        if hubs.len() > MAX_HUB_HOPS {
            return Err(format!("it came through more than {MAX_HUB_HOPS} hubs"));
        }
        Ok(hubs)
    }
}

/// Writes the hubs that an entry passed through into its `_meta`.
pub(super) fn put_hubs(entry: &mut Value, hubs: &[String]) {
    if hubs.is_empty() {
        return;
    }
    if !entry["_meta"].is_object() {
        entry["_meta"] = json!({});
    }
    entry["_meta"][key::HUB_PATH] = json!(hubs);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(id: &str) -> Value {
        json!({"experimental": {key::HUB_ID: {"id": id}}})
    }

    #[test]
    fn entry_goes_round_once() {
        let (a, b, c) = (hub("a"), hub("b"), hub("c"));
        assert!(HubRoute::new("a", &a).is_err());
        // A tool of a is offered by b, then by c, and comes back to a.
        let mut entry = json!({"description": "x", "_meta": {"kept": 1}});
        let plain = entry.clone();
        for (own, from, expected) in [("b", &a, vec!["a"]), ("c", &b, vec!["b", "a"])] {
            let hubs = HubRoute::new(own, from)
                .unwrap()
                .take_hubs(&mut entry)
                .unwrap();
            assert_eq!(hubs, expected);
            assert_eq!(entry, plain);
            put_hubs(&mut entry, &hubs);
        }
        let back = HubRoute::new("a", &c).unwrap().take_hubs(&mut entry);
        assert!(back.unwrap_err().contains("comes from this hub"));
    }

    #[test]
    fn entry_of_a_plain_server_stays_as_it_is_and_a_long_way_ends() {
        let none = json!({});
        let mut entry = json!({"description": "x"});
        let hubs = HubRoute::new("a", &none)
            .unwrap()
            .take_hubs(&mut entry)
            .unwrap();
        put_hubs(&mut entry, &hubs);
        assert_eq!(entry, json!({"description": "x"}));
        let ids: Vec<String> = (0..9).map(|it| it.to_string()).collect();
        put_hubs(&mut entry, &ids);
        let refused = HubRoute::new("a", &none).unwrap().take_hubs(&mut entry);
        assert!(refused.unwrap_err().contains("more than 8 hubs"));
        assert_eq!(entry, json!({"description": "x"}));
    }
}
