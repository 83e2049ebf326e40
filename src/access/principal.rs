//! Someone who was identified.

use std::sync::Arc;

use super::Grants;

/// What a caller may do; each role may do all that the one before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
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
    role: Role,
    /// What they are restricted to; most are not.
    grants: Option<Arc<Grants>>,
}

/// The name of whoever showed no token; no token may have it.
const LOCAL: &str = "local";

impl Role {
    /// Every role, the least first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Agent, Self::Admin];

    /// The role of this name.
    pub fn read(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Its name in the API and the store.
    pub fn name(self) -> &'static str {
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
            name: LOCAL.into(),
            role: Role::Agent,
            grants: None,
        }
    }

    pub(super) fn new(name: &str, role: Role, grants: Option<Grants>) -> Self {
        Self {
            name: name.into(),
            role,
            grants: grants.map(Arc::new),
        }
    }

    /// Whether it is a program on this machine that showed no token.
    pub fn is_local(&self) -> bool {
        &*self.name == LOCAL
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
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether they may ask for what is done, not only see what there is.
    pub fn may_call(&self) -> bool {
        self.role >= Role::Agent
    }

    /// What they are restricted to, if to anything.
    pub fn grants(&self) -> Option<&Arc<Grants>> {
        self.grants.as_ref()
    }

    /// Whether anything of `server` is theirs to see.
    pub fn may_reach(&self, server: &str) -> bool {
        self.grants
            .as_ref()
            .is_none_or(|grants| grants.has_server(server))
    }
}
