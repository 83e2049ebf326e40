//! One thing that can be asked for: a tool, a prompt or a resource.

use std::{any::Any, collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{
    arguments::Arguments,
    mirror::{Mirror, mirrors},
    name,
    peer::Peer,
};
use crate::{
    access::Principal,
    mcp::{Params, RpcError},
};

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
    /// Its key beside the offers of all other servers.
    pub(super) public: Arc<str>,
    /// Its description in a listing, without the key: members of a JSON object.
    pub(super) members: String,
    /// The same for clients of a version with a handshake, where that differs.
    pub(super) legacy_members: Option<String>,
    pub(super) arguments: Option<Arguments>,
    pub(super) handler: Handler,
    pub(super) watcher: Option<Watcher>,
    mirrors: Vec<Mirror>,
}

/// Begins to watch a resource for someone; dropping what it gives ends that.
pub type Watcher = Arc<dyn Fn(&str) -> Watching + Send + Sync>;

/// Someone watches a resource as long as this is kept.
pub type Watching = Box<dyn Any + Send + Sync>;

/// Answers what is asked of an offer.
pub type Handler = Arc<dyn Fn(Ask) -> BoxFuture<'static, Result<Answer, RpcError>> + Send + Sync>;

/// A question to an offer.
#[derive(Debug)]
pub struct Ask {
    /// What to do.
    pub action: Action,
    /// The way back to who asks, while the answer is being made.
    pub peer: Arc<Peer>,
    /// Who asks.
    pub principal: Principal,
}

/// What to do with an offer.
#[derive(Debug)]
pub enum Action {
    /// Call the tool; the arguments are an object that fits its schema.
    Call(Arc<Input>),
    /// Render the prompt with the arguments of an object.
    Get(Arc<Input>),
    /// Read this address.
    Read(String),
    /// Suggest values for the argument that begin with the text.
    Complete {
        /// The argument's name.
        argument: String,
        /// What was typed so far.
        value: String,
        /// What is known besides, as the client wrote it.
        context: Option<String>,
    },
}

/// Arguments, an object: taken apart, and as the caller wrote it.
#[derive(Debug)]
pub struct Input {
    value: Value,
    text: Arc<str>,
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
        let mirrored = mirrors(&described["inputSchema"]).unwrap_or_default();
        Arc::new(Self {
            kind,
            server: OWN_SERVER.into(),
            public: key.as_str().into(),
            key,
            members: inside(&described),
            legacy_members: None,
            arguments,
            handler,
            watcher: None,
            mirrors: mirrored,
        })
    }

    /// A tool that people made. `described` is its entry in a listing, without
    /// the name; `null` may stand for an argument that is not given.
    pub(super) fn made(name: String, described: &Value, handler: Handler) -> Arc<Self> {
        Arc::new(Self {
            public: name.as_str().into(),
            ..Self::of_server(&OWN_SERVER.into(), Kind::Tool, name, described, handler)
        })
    }

    /// An offer of another server. `described` is its entry in a listing,
    /// without the key; a schema that cannot be checked here is not checked.
    pub fn of_server(
        server: &Arc<str>,
        kind: Kind,
        key: String,
        described: &Value,
        handler: Handler,
    ) -> Self {
        let schema = described.get("inputSchema").filter(|_| kind == Kind::Tool);
        Self {
            kind,
            server: Arc::clone(server),
            public: match kind {
                Kind::Tool | Kind::Prompt => name::public(server, &key).into(),
                // Addresses stand in results too, so they stay what they are.
                Kind::Resource | Kind::Template => key.as_str().into(),
            },
            arguments: schema.and_then(|schema| Arguments::checkable(&key, schema)),
            key,
            members: inside(described),
            legacy_members: legacy(described),
            handler,
            watcher: None,
            mirrors: mirrors(&described["inputSchema"]).unwrap_or_default(),
        }
    }

    /// Lets changes of the resource be watched.
    #[must_use]
    pub fn watched(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// What is wrong with arguments, and what would be right.
    pub(super) fn check(&self, arguments: &Value) -> Result<(), String> {
        match &self.arguments {
            Some(expected) => expected.check(arguments),
            None => Ok(()),
        }
    }

    /// The name under which everyone sees it.
    pub fn public_key(&self) -> &str {
        &self.public
    }

    /// The name on its own server.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Parameters that are mirrored in headers.
    pub fn mirrors(&self) -> &[Mirror] {
        &self.mirrors
    }

    /// Whose offer it is.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// Its description in a listing, without the key.
    pub fn described(&self) -> Value {
        serde_json::from_str(&format!("{{{}}}", self.members)).unwrap_or_default()
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl Input {
    /// Reads arguments from checked JSON; none are an empty object.
    pub fn read(raw: Option<&str>) -> Result<Self, RpcError> {
        Ok(Self {
            value: Value::Object(Params::object(raw, "arguments")?),
            text: raw.unwrap_or("{}").into(),
        })
    }

    /// As the caller wrote it: numbers keep their digits.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same, to be kept.
    pub(super) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

impl From<Value> for Input {
    fn from(value: Value) -> Self {
        let text = value.to_string().into();
        Self { value, text }
    }
}

impl Deref for Input {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// The members of an object as text.
fn inside(described: &Value) -> String {
    let text = described.to_string();
    text[1..text.len() - 1].to_owned()
}

/// Older clients take no list with an output schema that is not an object's.
fn legacy(described: &Value) -> Option<String> {
    let output = described.get("outputSchema")?;
    if output["type"] == "object" {
        return None;
    }
    let mut described = described.clone();
    described.as_object_mut()?.shift_remove("outputSchema");
    Some(inside(&described))
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
