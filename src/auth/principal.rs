//! Someone who was identified.

use std::sync::Arc;

use super::Grants;

/// What a caller may do; each role may do all that the one before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessRole {
    /// See what there is.
    Reader,
    /// Call tools.
    Agent,
    /// Change maru.
    Admin,
}

/// Someone who was identified. There is no default.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    name: Arc<str>,
    role: AccessRole,
    /// What they are restricted to; most are not.
    grants: Option<Arc<Grants>>,
}

/// The name of whoever showed no token; no token may have it.
const LOCAL_PRINCIPAL: &str = "local";

impl AccessRole {
    /// Every role, the least first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Agent, Self::Admin];

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// Its name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }
}

impl Principal {
    /// A program on this machine that showed no token.
    pub fn local() -> Self {
        Self {
            name: LOCAL_PRINCIPAL.into(),
            role: AccessRole::Agent,
            grants: None,
        }
    }

    pub(super) fn new(name: &str, role: AccessRole, grants: Option<Grants>) -> Self {
        Self {
            name: name.into(),
            role,
            grants: grants.map(Arc::new),
        }
    }

    /// Whether it is a program on this machine that showed no token.
    pub fn is_local(&self) -> bool {
        &*self.name == LOCAL_PRINCIPAL
    }

    /// The name in logs and audit.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same, to be kept.
    pub fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// What they may do.
    pub fn role(&self) -> AccessRole {
        self.role
    }

    /// Whether they may ask for what is done, not only see what there is.
    pub fn may_call(&self) -> bool {
        self.role >= AccessRole::Agent
    }

    /// What they are restricted to, if to anything.
    pub fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.as_ref()
    }

    /// Whether anything of `server` is theirs to see.
    pub fn may_reach(&self, server: &str) -> bool {
        self.grants
            .as_ref()
            .is_none_or(|grants| grants.allows_server(server))
    }
}
