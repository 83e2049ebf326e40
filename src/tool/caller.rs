//! Who asks, and which part of the catalog they see.

use std::{net::IpAddr, sync::Arc};

use crate::{
    access::Principal,
    mcp::{RpcError, code},
};

/// Which part of the catalog a caller looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All of it.
    #[default]
    All,
    /// One server, under its own names.
    Server(Arc<str>),
}

/// Who asks, and where they look.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Who asks.
    pub principal: Principal,
    /// Where they look.
    pub scope: Scope,
    /// Their address; absent from this machine without one.
    pub from: Option<IpAddr>,
}

impl Caller {
    /// Someone without an address.
    pub fn new(principal: Principal, scope: Scope) -> Self {
        Self {
            principal,
            scope,
            from: None,
        }
    }

    /// Readers may see what there is and ask for none of it.
    pub(super) fn check_role(&self) -> Result<(), RpcError> {
        match self.principal.may_call() {
            true => Ok(()),
            false => Err(RpcError::new(
                code::FORBIDDEN,
                "the token does not allow this; it needs the role agent",
            )),
        }
    }
}
