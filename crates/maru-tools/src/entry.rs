//! An entry of the catalog: a tool, a prompt, a resource or a resource template.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::future::BoxFuture;
use maru_protocol::RpcError;
use maru_retrieval::ToolTerms;
use serde_json::Value;

use super::{
    call_arguments::CallArguments,
    context::RequestContext,
    header_parameter::{HeaderParameter, parse_header_parameters},
    input_schema::InputSchema,
    name,
    result::{EntryResult, FailureFormat},
    search,
};
use maru_auth::Principal;

/// The server that maru's own entries belong to.
pub const OWN_SERVER_NAME: &str = "maru";

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CatalogEntryKind {
    /// Called with arguments.
    Tool,
    /// Rendered with arguments.
    Prompt,
    /// Read by its URI.
    Resource,
    /// A family of resources, read by URIs that match its template.
    ResourceTemplate,
    /// A server itself: its extensions, and the resources that it does not list.
    Server,
}

/// An entry of the catalog. Its key is a name, a URI or a URI template.
pub struct CatalogEntry {
    pub(super) kind: CatalogEntryKind,
    pub(super) server: Arc<str>,
    pub(super) key: String,
    /// Its key in the catalog of all servers, unless it is renamed. Grants, limits, the audit
    /// log and statistics know a tool by this name.
    pub(super) public_name: Arc<str>,
    /// Its name in lists, if an override renames it.
    renamed: Option<Arc<str>>,
    /// What toolsets know of it.
    traits: EntryTraits,
    /// Its description in a listing, without the key: members of a JSON object.
    pub(super) listing_members: String,
    /// Its description for clients of a version with a handshake, if it differs.
    pub(super) legacy_listing_members: Option<String>,
    pub(super) input_schema: Option<InputSchema>,
    pub(super) handler: EntryHandler,
    pub(super) subscribe: Option<SubscribeResource>,
    /// How maru itself reports that a call failed.
    pub(super) failure_format: FailureFormat,
    /// How long a call may take even if the limit of all calls is shorter, because its
    /// handler ends it by bounds of its own.
    own_timeout: Duration,
    header_parameters: Vec<HeaderParameter>,
    /// The terms by which it is found, made at the first search.
    search_terms: OnceLock<ToolTerms>,
}

/// What a tool declares of itself besides its description and schema.
#[derive(Clone, Debug, Default)]
struct EntryTraits {
    /// Annotations that are true.
    annotations: Vec<String>,
    tags: Vec<String>,
    /// The resource of its user interface (MCP Apps).
    ui_resource: Option<String>,
    /// Whether only user interfaces call it.
    is_hidden_from_models: bool,
    /// Whether user interfaces call it.
    is_for_interfaces: bool,
}

/// Subscribes to a resource; dropping the returned value ends the subscription.
pub type SubscribeResource = Arc<dyn Fn(&str) -> ResourceSubscription + Send + Sync>;

/// A subscription to a resource, which ends when this is dropped.
pub type ResourceSubscription = Box<dyn Any + Send + Sync>;

/// Handles the requests to an entry.
pub type EntryHandler =
    Arc<dyn Fn(EntryRequest) -> BoxFuture<'static, Result<EntryResponse, RpcError>> + Send + Sync>;

/// A request to an entry.
#[derive(Debug)]
pub struct EntryRequest {
    /// What to do.
    pub action: EntryAction,
    /// How the handler reaches its caller while it works.
    pub context: Arc<RequestContext>,
    /// The authenticated caller.
    pub principal: Principal,
}

/// What to do with an entry.
#[derive(Debug)]
pub enum EntryAction {
    /// Call the tool; the arguments are valid by its schema.
    CallTool(Arc<CallArguments>),
    /// Render the prompt with these arguments.
    GetPrompt(Arc<CallArguments>),
    /// Read the resource at this URI.
    ReadResource(String),
    /// Complete the value of an argument.
    Complete {
        /// The argument's name.
        argument: String,
        /// What was typed so far.
        value: String,
        /// The arguments that are known already, as the client wrote them.
        context: Option<String>,
    },
    /// Send a request of an extension to the server.
    CallExtension {
        /// The method.
        method: String,
        /// The parameters without `_meta`: members of a JSON object.
        params: String,
    },
}

/// The response to an [`EntryRequest`].
#[derive(Debug)]
pub enum EntryResponse {
    /// The result.
    Complete(EntryResult),
    /// The caller must answer these input requests; then the request is sent again.
    InputRequired(InputRequired),
}

/// Input requests to the caller, as MCP requests by key.
#[derive(Clone, Debug, Default)]
pub struct InputRequired {
    /// `{"method", "params"}` by key.
    pub requests: BTreeMap<String, Value>,
    /// The caller returns it with the answers.
    pub state: Option<String>,
}

impl CatalogEntry {
    /// One of maru's own entries. `described` is its entry in a listing.
    ///
    /// Panics if `described` is not an object or its `inputSchema` is not a valid schema;
    /// ours are constants.
    pub fn builtin(kind: CatalogEntryKind, described: Value, handler: EntryHandler) -> Arc<Self> {
        Arc::new(Self::new_builtin(kind, described, handler))
    }

    /// Like [`CatalogEntry::builtin`], but not shared yet.
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
            .expect("an entry has a key");
        let arguments = (kind == CatalogEntryKind::Tool).then(|| {
            InputSchema::new(&key, &members["inputSchema"]).expect("our own schemas are valid")
        });
        let mirrored = parse_header_parameters(&described["inputSchema"]).unwrap_or_default();
        Self {
            kind,
            server: OWN_SERVER_NAME.into(),
            public_name: key.as_str().into(),
            renamed: None,
            traits: EntryTraits::read(kind, &described),
            key,
            listing_members: object_members(&described),
            legacy_listing_members: None,
            input_schema: arguments,
            handler,
            subscribe: None,
            failure_format: FailureFormat::default(),
            own_timeout: Duration::ZERO,
            header_parameters: mirrored,
            search_terms: OnceLock::new(),
        }
    }

    /// A custom tool. `described` is its entry in a listing, without the name.
    pub(super) fn custom(name: String, described: &Value, handler: EntryHandler) -> Self {
        Self {
            public_name: name.as_str().into(),
            ..Self::from_server(
                &OWN_SERVER_NAME.into(),
                CatalogEntryKind::Tool,
                name,
                described,
                handler,
            )
        }
    }

    /// An entry of another server. `described` is its entry in a listing, without the key.
    /// Arguments are not checked against a schema that is too complex to compile.
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
                // Results contain URIs too, so they must not change.
                CatalogEntryKind::Resource
                | CatalogEntryKind::ResourceTemplate
                | CatalogEntryKind::Server => key.as_str().into(),
            },
            renamed: None,
            traits: EntryTraits::read(kind, described),
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
            own_timeout: Duration::ZERO,
            header_parameters: parse_header_parameters(&described["inputSchema"])
                .unwrap_or_default(),
            search_terms: OnceLock::new(),
        }
    }

    /// The tool with another listing and perhaps another name in lists. Calls go to the same
    /// handler.
    pub(super) fn redescribed(&self, name: Option<&str>, listing: &Value, tags: &[String]) -> Self {
        let mut traits = EntryTraits::read(self.kind, listing);
        traits.tags.extend(tags.iter().cloned());
        let schema = listing.get("inputSchema");
        let shown = name.unwrap_or(&self.key);
        Self {
            kind: self.kind,
            server: Arc::clone(&self.server),
            key: self.key.clone(),
            public_name: Arc::clone(&self.public_name),
            renamed: name.map(Arc::from),
            traits,
            listing_members: object_members(listing),
            legacy_listing_members: legacy_object_members(listing),
            input_schema: schema.and_then(|schema| {
                if *self.server == *OWN_SERVER_NAME {
                    InputSchema::new(shown, schema)
                } else {
                    InputSchema::new_untrusted(shown, schema)
                }
            }),
            handler: Arc::clone(&self.handler),
            subscribe: self.subscribe.clone(),
            failure_format: self.failure_format,
            own_timeout: self.own_timeout,
            header_parameters: parse_header_parameters(&listing["inputSchema"]).unwrap_or_default(),
            search_terms: OnceLock::new(),
        }
    }

    /// Sets how clients subscribe to the resource.
    #[must_use]
    pub fn with_subscription(mut self, subscribe: SubscribeResource) -> Self {
        self.subscribe = Some(subscribe);
        self
    }

    /// Sets how maru itself reports that a call failed.
    #[must_use]
    pub(super) fn with_failure_format(mut self, format: FailureFormat) -> Self {
        self.failure_format = format;
        self
    }

    /// Sets how long a call may take even if the limit of all calls is shorter.
    #[must_use]
    pub(super) fn with_own_timeout(mut self, timeout: Duration) -> Self {
        self.own_timeout = timeout;
        self
    }

    /// How long a call may take where the limit of all calls is `limit`.
    pub fn call_timeout(&self, limit: Duration) -> Duration {
        limit.max(self.own_timeout)
    }

    /// The result of a call that maru itself refused or ended.
    pub(super) fn failure(&self, message: &str) -> EntryResult {
        EntryResult::failure_in(self.failure_format, message)
    }

    /// Checks arguments; the error says what is wrong and what was expected.
    pub(super) fn validate_arguments(&self, arguments: &Value) -> Result<(), String> {
        match &self.input_schema {
            Some(expected) => expected.validate(arguments),
            None => Ok(()),
        }
    }

    /// Its name in the catalog of all servers.
    pub fn public_name(&self) -> &str {
        &self.public_name
    }

    /// Its name in the list of all servers.
    pub fn listed_name(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.public_name)
    }

    /// Its name in the list of its own server.
    pub(super) fn listed_key(&self) -> &str {
        self.renamed.as_deref().unwrap_or(&self.key)
    }

    /// Its name on its own server.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// `server.tool`.
    pub(super) fn qualified_name(&self) -> String {
        format!("{}.{}", self.server, self.key)
    }

    /// Its tags, of its server and of its override.
    pub(super) fn tags(&self) -> &[String] {
        &self.traits.tags
    }

    /// Whether it declares this annotation as true.
    pub(super) fn declares_annotation(&self, name: &str) -> bool {
        self.traits.annotations.iter().any(|it| it == name)
    }

    /// Whether it says that it changes nothing.
    pub(super) fn is_read_only(&self) -> bool {
        self.declares_annotation("readOnlyHint")
    }

    /// Whether only user interfaces call it, and models do not (MCP Apps).
    pub fn is_hidden_from_models(&self) -> bool {
        self.traits.is_hidden_from_models
    }

    /// Whether the user interfaces of its server call it, by its name there.
    pub(super) fn is_for_interfaces(&self) -> bool {
        self.traits.is_for_interfaces
    }

    /// The resource of its user interface.
    pub(super) fn ui_resource(&self) -> Option<&str> {
        self.traits.ui_resource.as_deref()
    }

    /// Parameters that are mirrored in headers.
    pub fn header_parameters(&self) -> &[HeaderParameter] {
        &self.header_parameters
    }

    /// The server that it belongs to.
    pub fn server(&self) -> &Arc<str> {
        &self.server
    }

    /// Its description in a listing, without the key.
    pub fn listing(&self) -> Value {
        serde_json::from_str(&format!("{{{}}}", self.listing_members)).unwrap_or_default()
    }

    /// The terms by which it is found.
    pub(super) fn search_terms(&self) -> &ToolTerms {
        self.search_terms
            .get_or_init(|| search::listing_terms(&self.server, self.listed_key(), &self.listing()))
    }

    /// Its kind.
    pub fn kind(&self) -> CatalogEntryKind {
        self.kind
    }
}

impl EntryTraits {
    fn read(kind: CatalogEntryKind, described: &Value) -> Self {
        if kind != CatalogEntryKind::Tool {
            return Self::default();
        }
        let annotations = described["annotations"].as_object().into_iter().flatten();
        let annotations = annotations.filter(|(_, value)| **value == true);
        let meta = &described["_meta"];
        // FastMCP lists the tags of a tool in its own member of `_meta`.
        let tags = [
            &meta["tags"],
            &meta["fastmcp"]["tags"],
            &meta["_fastmcp"]["tags"],
        ];
        let tags = tags.into_iter().filter_map(Value::as_array).flatten();
        let tags = tags.filter_map(Value::as_str).take(MAX_TAGS);
        let ui_resource = [&meta["ui"]["resourceUri"], &meta["ui/resourceUri"]];
        let ui_resource = ui_resource.into_iter().find_map(Value::as_str);
        let visibility = meta["ui"]["visibility"].as_array();
        let is_visible_to = |who: &str| visibility.is_none_or(|it| it.iter().any(|it| it == who));
        Self {
            annotations: annotations.map(|(name, _)| name.clone()).collect(),
            tags: tags.map(str::to_owned).collect(),
            ui_resource: ui_resource.map(str::to_owned),
            is_hidden_from_models: !is_visible_to("model"),
            is_for_interfaces: meta["ui"].is_object() && is_visible_to("app"),
        }
    }
}

/// How many tags of a server's tool are kept.
const MAX_TAGS: usize = 50;

impl EntryAction {
    /// The arguments of a tool call; other actions are refused.
    pub fn into_call_arguments(self) -> Result<Arc<CallArguments>, RpcError> {
        match self {
            Self::CallTool(arguments) => Ok(arguments),
            _ => Err(RpcError::invalid_params("a tool can only be called")),
        }
    }
}

/// The members of an object as text.
fn object_members(described: &Value) -> String {
    let text = described.to_string();
    text[1..text.len() - 1].to_owned()
}

/// The members without an output schema that is not of type object: older clients refuse
/// the whole list otherwise. `None` if nothing differs.
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
            Self::Tool | Self::Prompt | Self::Server => "name",
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
