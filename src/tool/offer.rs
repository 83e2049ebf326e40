//! One thing that can be asked for: a tool, a prompt or a resource.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{arguments::Arguments, peer::Peer};
use crate::mcp::RpcError;

/// The server that maru's own offers belong to.
pub const OWN_SERVER: &str = "maru";

/// What kind of thing is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Called with arguments.
    Tool,
    /// Rendered with arguments.
    Prompt,
    /// Read by its address.
    Resource,
    /// A family of resources, read by addresses that fit its pattern.
    Template,
}

/// Something on offer. Its key is a name, an address, or a pattern of addresses.
pub struct Offer {
    pub(super) kind: Kind,
    pub(super) server: Arc<str>,
    pub(super) key: String,
    /// Its description in a listing, without the key: members of a JSON object.
    pub(super) members: String,
    pub(super) arguments: Option<Arguments>,
    pub(super) handler: Handler,
}

/// Answers what is asked of an offer.
pub type Handler = Arc<dyn Fn(Ask) -> BoxFuture<'static, Result<Answer, RpcError>> + Send + Sync>;

/// A question to an offer.
#[derive(Debug)]
pub struct Ask {
    /// What to do.
    pub action: Action,
    /// The way back to who asks, while the answer is being made.
    pub peer: Peer,
}

/// What to do with an offer.
#[derive(Debug)]
pub enum Action {
    /// Call the tool; the arguments are an object that fits its schema.
    Call(Arc<Value>),
    /// Render the prompt with the arguments of an object.
    Get(Arc<Value>),
    /// Read this address.
    Read(String),
    /// Suggest values for the argument that begin with the text.
    Complete {
        /// The argument's name.
        argument: String,
        /// What was typed so far.
        value: String,
    },
}

/// What comes back.
#[derive(Debug)]
pub enum Answer {
    /// The result, a JSON object without `resultType`.
    Complete(String),
    /// The caller must be asked first; then the same question is put again.
    InputRequired(InputRequired),
}

/// Questions to the caller, as MCP requests by key.
#[derive(Clone, Debug, Default)]
pub struct InputRequired {
    /// `{"method", "params"}` by key.
    pub requests: BTreeMap<String, Value>,
    /// Handed back with the answers.
    pub state: Option<String>,
}

impl Offer {
    /// One of maru's own offers. `described` is its entry in a listing.
    ///
    /// Panics when `described` is not an object or its `inputSchema` is no
    /// schema: ours are constants.
    pub fn own(kind: Kind, mut described: Value, handler: Handler) -> Arc<Self> {
        let members = described
            .as_object_mut()
            .expect("a description is an object");
        let key = members.shift_remove(kind.key_member());
        let key = key
            .and_then(|it| it.as_str().map(str::to_owned))
            .expect("an offer has a key");
        let arguments = (kind == Kind::Tool).then(|| {
            Arguments::new(&key, &members["inputSchema"]).expect("our own schemas are valid")
        });
        let text = described.to_string();
        Arc::new(Self {
            kind,
            server: OWN_SERVER.into(),
            key,
            members: text[1..text.len() - 1].to_owned(),
            arguments,
            handler,
        })
    }

    /// The name under which everyone sees it.
    pub(super) fn public_key(&self) -> &str {
        &self.key
    }
}

impl Kind {
    /// The member of a listing's entry that identifies it.
    pub(super) const fn key_member(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::Template => "uriTemplate",
        }
    }
}

impl fmt::Debug for Offer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Offer({:?} {}.{})", self.kind, self.server, self.key)
    }
}
