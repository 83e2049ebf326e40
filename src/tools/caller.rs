//! Who asks, and which part of the catalog they see.

use std::{net::IpAddr, sync::Arc};

use maru_protocol::{RpcError, code};

use crate::{auth::Principal, observability::journal::RequestId};

/// Which part of the catalog a caller looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatalogScope {
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
    pub scope: CatalogScope,
    /// Their address; absent from this machine without one.
    pub remote_ip: Option<IpAddr>,
}

/// Who calls one of maru's own tools, and in which request.
#[derive(Clone, Debug)]
pub(super) struct ToolCaller {
    /// Who calls.
    pub(super) principal: Principal,
    /// The request that the call is part of.
    pub(super) request: RequestId,
}

impl ToolCaller {
    /// A caller whose request begins here.
    pub(super) fn new(principal: Principal) -> Self {
        let request = RequestId::next();
        Self { principal, request }
    }
}

impl Caller {
    /// Someone without an address.
    pub fn new(principal: Principal, scope: CatalogScope) -> Self {
        Self {
            principal,
            scope,
            remote_ip: None,
        }
    }

    /// Readers may see what there is and ask for none of it.
    pub(super) fn require_call_role(&self) -> Result<(), RpcError> {
        if self.principal.may_call() {
            Ok(())
        } else {
            Err(RpcError::new(
                code::FORBIDDEN,
                "the token does not allow this; it needs the role agent",
            ))
        }
    }
}
