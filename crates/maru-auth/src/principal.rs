//! Principals: authenticated callers and their roles.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use serde_json::{Value, json};

use super::Grants;
use maru_config::ToolListing;

/// What a caller may do. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRole {
    /// Lists tools, servers and settings.
    Reader,
    /// Calls tools.
    Agent,
    /// Changes servers, tools, tokens and settings.
    Admin,
}

/// An authenticated caller. There is no default, so that nobody is one by accident.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    role: AccessRole,
    /// The servers and tools that the principal is limited to; `None` means no limit.
    grants: Option<Arc<Grants>>,
    /// Claims of a signed token, for tools that ask who calls.
    claims: Option<Arc<BTreeMap<String, String>>>,
    /// Whether its clients list or search tools, if its token says so.
    tool_listing: Option<ToolListing>,
}

/// The principal of requests without a token. No token may have this name.
const LOCAL_PRINCIPAL: &str = "local";

/// Claims do not count: a refreshed token has others and is the same principal.
impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.role, &self.grants) == (&other.name, other.role, &other.grants)
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.name, self.role, &self.grants).hash(state);
    }
}

impl AccessRole {
    /// All roles, from the fewest to the most permissions.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Agent, Self::Admin];

    /// Parses the name of a role.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// The name of the role in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }
}

impl Principal {
    /// The principal of a program on this machine that sent no token.
    pub fn local() -> Self {
        Self {
            name: LOCAL_PRINCIPAL.into(),
            role: AccessRole::Agent,
            grants: None,
            claims: None,
            tool_listing: None,
        }
    }

    /// The principal of a program on this machine that sent no token, where `local_admin`
    /// makes such programs admins.
    pub(super) fn local_admin() -> Self {
        Self {
            role: AccessRole::Admin,
            ..Self::local()
        }
    }

    pub(super) fn new(name: &str, role: AccessRole, grants: Option<Grants>) -> Self {
        Self {
            name: name.into(),
            role,
            grants: grants.map(Arc::new),
            claims: None,
            tool_listing: None,
        }
    }

    /// The same caller with at most this role, these servers and these tools.
    #[must_use]
    pub(super) fn limited_to(
        self,
        role: AccessRole,
        servers: Option<&[String]>,
        tools: Option<&[String]>,
    ) -> Self {
        let grants = if servers.is_none() && tools.is_none() {
            self.grants
        } else {
            let own = self.grants.map(Arc::unwrap_or_clone).unwrap_or_default();
            Some(Arc::new(own.limited_to(servers, tools)))
        };
        Self {
            role: self.role.min(role),
            grants,
            ..self
        }
    }

    /// The principal of a signed token with these claims.
    #[must_use]
    pub(super) fn with_claims(mut self, claims: BTreeMap<String, String>) -> Self {
        self.claims = Some(Arc::new(claims));
        self
    }

    /// The principal of a token whose clients list or search tools.
    #[must_use]
    pub(super) fn with_tool_listing(mut self, tool_listing: Option<ToolListing>) -> Self {
        self.tool_listing = tool_listing;
        self
    }

    /// Whether its clients list or search tools, if its token says so.
    pub fn tool_listing(&self) -> Option<ToolListing> {
        self.tool_listing
    }

    /// The toolset that the principal is limited to, if it is.
    pub fn toolset(&self) -> Option<&Arc<str>> {
        self.grants.as_ref()?.toolset()
    }

    /// What a statement may know of the caller: `name`, `role` and the claims of a signed
    /// token, which cannot replace the two.
    pub fn caller_values(&self) -> Arc<BTreeMap<String, String>> {
        let claims = self.claims.iter().flat_map(|it| it.iter());
        let claims = claims.map(|(name, value)| (name.clone(), value.clone()));
        let own = [("name", self.name()), ("role", self.role.as_str())];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Arc::new(claims.chain(own).collect())
    }

    /// Whether this is a program on this machine that sent no token.
    pub fn is_local(&self) -> bool {
        &*self.name == LOCAL_PRINCIPAL
    }

    /// Whether this is a program on this machine that is an admin without a token.
    pub fn is_local_admin(&self) -> bool {
        self.is_local() && self.role == AccessRole::Admin
    }

    /// What the principal is limited to, as JSON; null if it is not limited. Equal limits
    /// give equal values.
    pub fn limits(&self) -> Value {
        self.grants.as_ref().map_or(Value::Null, |it| it.to_json())
    }

    /// The principal as one hub names it to another. Two principals are equal if theirs
    /// are, without `claims`.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name(),
            "role": self.role.as_str(),
            "limits": self.limits(),
            "toolListing": self.tool_listing.map(ToolListing::as_str),
            "claims": self.claims.as_deref(),
        })
    }

    /// The principal that another hub named.
    pub fn from_json(record: &Value) -> Option<Self> {
        let role = AccessRole::parse(record["role"].as_str()?)?;
        let text = |name: &str| -> Option<Option<String>> {
            serde_json::from_value(record[name].clone()).ok()
        };
        let grants = match record.get("limits")? {
            Value::Null => None,
            limits => Some(Grants::from_json(limits)?),
        };
        let listing = text("toolListing")?;
        let principal = Self::new(record["name"].as_str()?, role, grants)
            .with_tool_listing(listing.as_deref().and_then(ToolListing::parse));
        let claims: Option<BTreeMap<String, String>> =
            serde_json::from_value(record["claims"].clone()).ok()?;
        Some(match claims {
            Some(claims) => principal.with_claims(claims),
            None => principal,
        })
    }

    /// The name in logs and the audit log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name as a shared string.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// The role of the principal.
    pub fn role(&self) -> AccessRole {
        self.role
    }

    /// Whether the principal may call tools.
    pub fn may_call(&self) -> bool {
        self.role >= AccessRole::Agent
    }

    /// The servers and tools that the principal is limited to, if it is.
    pub fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.as_ref()
    }

    /// Whether the principal may see anything of `server`. One that is limited to a toolset
    /// sees only that.
    pub fn may_reach(&self, server: &str) -> bool {
        self.grants
            .as_ref()
            .is_none_or(|grants| grants.toolset().is_none() && grants.allows_server(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn principal_is_the_same_at_the_other_hub() {
        let grants = |servers: Option<&[&str]>, tools: Option<&[&str]>| {
            let list = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect();
            Grants::new(servers.map(list), tools.map(list), None)
        };
        let claims = BTreeMap::from([("sub".to_owned(), "kim".to_owned())]);
        for principal in [
            Principal::local(),
            Principal::local_admin(),
            Principal::new("a", AccessRole::Reader, grants(Some(&[]), None)),
            Principal::new("a", AccessRole::Agent, grants(Some(&["fx"]), Some(&["x"]))),
            Principal::new("a", AccessRole::Admin, None).with_claims(claims),
            Principal::new(
                "a",
                AccessRole::Agent,
                Grants::new(None, None, Some("support".to_owned())),
            )
            .with_tool_listing(Some(ToolListing::Search)),
        ] {
            let other = Principal::from_json(&principal.to_json()).unwrap();
            assert_eq!(other, principal);
            assert_eq!(other.caller_values(), principal.caller_values());
            assert_eq!(other.tool_listing(), principal.tool_listing());
        }
        let mut unknown = Principal::local().to_json();
        unknown["role"] = json!("root");
        assert_eq!(Principal::from_json(&unknown), None);
    }
}
