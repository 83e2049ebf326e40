//! The caller of a tool, and the part of the catalog that it sees.

use std::{net::IpAddr, sync::Arc};

use maru_protocol::{RpcError, code};

use maru_auth::Principal;
use maru_config::ToolListing;
use maru_observability::journal::RequestId;

/// Which part of the catalog a caller uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatalogScope {
    /// All of it.
    #[default]
    All,
    /// One server, whose entries have their own names, without the server's.
    Server(Arc<str>),
    /// A toolset, whose entries have their names in the list of all servers.
    Toolset(Arc<str>),
}

/// An authenticated caller and the part of the catalog that it uses.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The authenticated principal.
    pub principal: Principal,
    /// The part of the catalog.
    pub scope: CatalogScope,
    /// Whether it lists or searches tools, if its request says so.
    pub tool_listing: Option<ToolListing>,
    /// The caller's address; absent for callers that have none, such as the command line.
    pub remote_ip: Option<IpAddr>,
}

/// The principal and the request of a call to one of maru's own tools.
#[derive(Clone, Debug)]
pub(super) struct ToolCaller {
    /// The authenticated principal.
    pub(super) principal: Principal,
    /// The request that the call is part of.
    pub(super) request: RequestId,
}

impl ToolCaller {
    /// A caller with a new request id.
    pub(super) fn new(principal: Principal) -> Self {
        let request = RequestId::next();
        Self { principal, request }
    }
}

impl Caller {
    /// A caller without an address.
    pub fn new(principal: Principal, scope: CatalogScope) -> Self {
        Self {
            principal,
            scope,
            tool_listing: None,
            remote_ip: None,
        }
    }

    /// Refuses a reader, who may list the catalog but not use it.
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
