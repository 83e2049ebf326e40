//! One thing that can be asked for: a tool, a prompt or a resource.

use std::{any::Any, collections::BTreeMap, fmt, ops::Deref, sync::Arc};

use futures_util::future::BoxFuture;
use maru_protocol::{RequestParams, RpcError};
use serde_json::Value;

use super::{
    context::RequestContext,
    header_parameter::{HeaderParameter, parse_header_parameters},
    input_schema::{InputSchema, parse_integer},
    name,
    result::{EntryResult, FailureFormat},
};
use crate::auth::Principal;

/// The server that maru's own entries belong to.
pub const OWN_SERVER_NAME: &str = "maru";

/// What kind of thing is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CatalogEntryKind {
    /// Called with arguments.
    Tool,
    /// Rendered with arguments.
    Prompt,
    /// Read by its address.
    Resource,
    /// A family of resources, read by addresses that fit its pattern.
    ResourceTemplate,
}

/// Something that can be called, rendered or read. Its key is a name, an address, or a pattern of addresses.
pub struct CatalogEntry {
    pub(super) kind: CatalogEntryKind,
    pub(super) server: Arc<str>,
    pub(super) key: String,
    /// Its key beside the entries of all other servers.
    pub(super) public_name: Arc<str>,
    /// Its description in a listing, without the key: members of a JSON object.
    pub(super) listing_members: String,
    /// The same for clients of a version with a handshake, where that differs.
    pub(super) legacy_listing_members: Option<String>,
    pub(super) input_schema: Option<InputSchema>,
    pub(super) handler: EntryHandler,
    pub(super) subscribe: Option<SubscribeResource>,
    /// How maru itself says that a call failed.
    pub(super) failure_format: FailureFormat,
    header_parameters: Vec<HeaderParameter>,
}

/// Begins to watch a resource for someone; dropping what it gives ends that.
pub type SubscribeResource = Arc<dyn Fn(&str) -> ResourceSubscription + Send + Sync>;

/// Someone watches a resource as long as this is kept.
pub type ResourceSubscription = Box<dyn Any + Send + Sync>;

/// Answers what is asked of an entry.
pub type EntryHandler =
    Arc<dyn Fn(EntryRequest) -> BoxFuture<'static, Result<EntryResponse, RpcError>> + Send + Sync>;

/// A question to an entry.
#[derive(Debug)]
pub struct EntryRequest {
    /// What to do.
    pub action: EntryAction,
    /// The way back to who asks, while the answer is being made.
    pub context: Arc<RequestContext>,
    /// Who asks.
    pub principal: Principal,
}

/// What to do with an entry.
#[derive(Debug)]
pub enum EntryAction {
    /// Call the tool; the arguments are an object that fits its schema.
    CallTool(Arc<CallArguments>),
    /// Render the prompt with the arguments of an object.
    GetPrompt(Arc<CallArguments>),
    /// Read this address.
    ReadResource(String),
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
pub struct CallArguments {
    value: Value,
    text: Arc<str>,
}

/// What comes back.
#[derive(Debug)]
pub enum EntryResponse {
    /// The result.
    Complete(EntryResult),
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

impl CatalogEntry {
    /// One of maru's own entries. `described` is its entry in a listing.
    ///
    /// Panics when `described` is not an object or its `inputSchema` is no
    /// schema: ours are constants.
    pub fn builtin(kind: CatalogEntryKind, described: Value, handler: EntryHandler) -> Arc<Self> {
        Arc::new(Self::new_builtin(kind, described, handler))
    }

    /// The entry of [`CatalogEntry::builtin`], to be changed before it is shared.
    pub(super) fn new_builtin(
        kind: CatalogEntryKind,
        mut described: Value,
        handler: EntryHandler,
    ) -> Self {
        let members = described
            .as_object_mut()
            .expect("a description is an object");
        let key = members.shift_remove(kind.key_member());
        let key = key
            .and_then(|it| it.as_str().map(str::to_owned))
            .expect("an offer has a key");
        let arguments = (kind == CatalogEntryKind::Tool).then(|| {
            InputSchema::new(&key, &members["inputSchema"]).expect("our own schemas are valid")
        });
        let mirrored = parse_header_parameters(&described["inputSchema"]).unwrap_or_default();
        Self {
            kind,
            server: OWN_SERVER_NAME.into(),
            public_name: key.as_str().into(),
            key,
            listing_members: object_members(&described),
            legacy_listing_members: None,
            input_schema: arguments,
            handler,
            subscribe: None,
            failure_format: FailureFormat::default(),
            header_parameters: mirrored,
        }
    }

    /// A custom tool. `described` is its entry in a listing, without
    /// the name; `null` may stand for an argument that is not given.
    pub(super) fn custom(name: String, described: &Value, handler: EntryHandler) -> Arc<Self> {
        Arc::new(Self {
            public_name: name.as_str().into(),
            ..Self::from_server(
                &OWN_SERVER_NAME.into(),
                CatalogEntryKind::Tool,
                name,
                described,
                handler,
            )
        })
    }

    /// An entry of another server. `described` is its entry in a listing,
    /// without the key; a schema that cannot be checked here is not checked.
    pub fn from_server(
        server: &Arc<str>,
        kind: CatalogEntryKind,
        key: String,
        described: &Value,
        handler: EntryHandler,
    ) -> Self {
        let schema = described
            .get("inputSchema")
            .filter(|_| kind == CatalogEntryKind::Tool);
        Self {
            kind,
            server: Arc::clone(server),
            public_name: match kind {
                CatalogEntryKind::Tool | CatalogEntryKind::Prompt => {
                    name::public_name(server, &key).into()
                }
                // Addresses stand in results too, so they stay what they are.
                CatalogEntryKind::Resource | CatalogEntryKind::ResourceTemplate => {
                    key.as_str().into()
                }
            },
            input_schema: schema.and_then(|schema| InputSchema::new_untrusted(&key, schema)),
            key,
            listing_members: object_members(described),
            legacy_listing_members: legacy_object_members(described),
            handler,
            subscribe: None,
            failure_format: match described.get("outputSchema") {
                None => FailureFormat::SuccessFlag,
                Some(_) => FailureFormat::TextOnly,
            },
            header_parameters: parse_header_parameters(&described["inputSchema"])
                .unwrap_or_default(),
        }
    }

    /// Lets changes of the resource be watched.
    #[must_use]
    pub fn with_subscription(mut self, watcher: SubscribeResource) -> Self {
        self.subscribe = Some(watcher);
        self
    }

    /// Sets how maru itself says that a call failed.
    #[must_use]
    pub(super) fn with_failure_format(mut self, format: FailureFormat) -> Self {
        self.failure_format = format;
        self
    }

    /// A call of it that maru itself ended, for example because of wrong arguments.
    pub(super) fn failure(&self, message: &str) -> EntryResult {
        EntryResult::failure_in(self.failure_format, message)
    }

    /// What is wrong with arguments, and what would be right.
    pub(super) fn validate_arguments(&self, arguments: &Value) -> Result<(), String> {
        match &self.input_schema {
            Some(expected) => expected.validate(arguments),
            None => Ok(()),
        }
    }

    /// The name under which everyone sees it.
    pub fn public_name(&self) -> &str {
        &self.public_name
    }

    /// The name on its own server.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Parameters that are mirrored in headers.
    pub fn header_parameters(&self) -> &[HeaderParameter] {
        &self.header_parameters
    }

    /// Whose offer it is.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// Its description in a listing, without the key.
    pub fn listing(&self) -> Value {
        serde_json::from_str(&format!("{{{}}}", self.listing_members)).unwrap_or_default()
    }

    /// What kind of thing it is.
    pub fn kind(&self) -> CatalogEntryKind {
        self.kind
    }
}

impl CallArguments {
    /// Reads arguments from checked JSON; none are an empty object.
    pub fn parse(raw: Option<&str>) -> Result<Self, RpcError> {
        Ok(Self {
            value: Value::Object(RequestParams::object_or_empty(raw, "arguments")?),
            text: raw.unwrap_or("{}").into(),
        })
    }

    /// As the caller wrote it: numbers keep their digits.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An argument that is a whole number: `2026`, `2026.0` or `"2026"`.
    pub fn integer(&self, name: &str) -> Option<i64> {
        parse_integer(&self.value[name])
    }

    /// The arguments as the caller wrote them, to be kept.
    pub(super) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

impl From<Value> for CallArguments {
    fn from(value: Value) -> Self {
        let text = value.to_string().into();
        Self { value, text }
    }
}

impl Deref for CallArguments {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// The members of an object as text.
fn object_members(described: &Value) -> String {
    let text = described.to_string();
    text[1..text.len() - 1].to_owned()
}

/// Older clients take no list with an output schema that is not an object's.
fn legacy_object_members(described: &Value) -> Option<String> {
    let output = described.get("outputSchema")?;
    if output["type"] == "object" {
        return None;
    }
    let mut described = described.clone();
    described.as_object_mut()?.shift_remove("outputSchema");
    Some(object_members(&described))
}

impl CatalogEntryKind {
    /// The member of a listing's entry that identifies it.
    pub(super) const fn key_member(self) -> &'static str {
        match self {
            Self::Tool | Self::Prompt => "name",
            Self::Resource => "uri",
            Self::ResourceTemplate => "uriTemplate",
        }
    }
}

impl fmt::Debug for CatalogEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "CatalogEntry({:?} {}.{})",
            self.kind, self.server, self.key
        )
    }
}
