//! Tools, prompts and resources, of maru itself and of every server: one catalog for all callers.

#![forbid(unsafe_code)]

pub mod builtin;
mod call_arguments;
mod call_leases;
mod caller;
mod catalog;
mod context;
pub mod custom;
mod disabled_tools;
mod entry;
mod extensions;
mod header_parameter;
mod input_schema;
mod name;
mod not_found;
mod override_manager;
mod page_cursor;
mod quota;
pub mod request_state;
pub mod result;
mod rules;
mod search;
mod search_tools;
pub mod server_uri;
mod snapshot;
mod sources;
mod token_bucket;
mod tool_override;
mod toolset;
mod toolset_manager;
mod view;
mod visibility;

pub use call_arguments::CallArguments;
pub use caller::{Caller, CatalogScope};
pub use catalog::{Catalog, ExtensionCall, ServerConnector};
pub use context::{ClientConnection, InputResponses, RequestContext};
pub use disabled_tools::DisabledTools;
pub use entry::{
    CatalogEntry, CatalogEntryKind, EntryAction, EntryHandler, EntryRequest, EntryResponse,
    InputRequired, OWN_SERVER_NAME, ResourceSubscription, SubscribeResource,
};
pub use extensions::{
    SKILLS_EXTENSION, TASKS_EXTENSION, UI_EXTENSION, relayed_extensions, ui_settings,
};
pub use header_parameter::{HeaderParameter, parse_header_parameters};
pub use name::public_name;
pub use not_found::{resource_not_found, unknown_name};
pub use override_manager::OverrideManager;
pub use page_cursor::PageCursors;
pub use quota::{CallQuota, QuotaExceeded, QuotaTarget};
pub use result::{EntryResult, ResultLimits, ResultStatus, StructuredContent};
pub use search::{RankedTool, ToolSearch, estimate_tokens};
pub use snapshot::CatalogSnapshot;
pub use sources::{
    OpenSource, SampleData, SampleMode, SourceError, SourceManager, SourceOptions, SourcePreview,
};
pub use tool_override::{InvalidOverride, ParameterOverride, ToolOverride, ToolOverrides};
pub use toolset::{InvalidToolset, Toolset, Toolsets};
pub use toolset_manager::{ToolsetChange, ToolsetError, ToolsetManager};
pub use view::{CatalogView, EntryList};
pub use visibility::VisibleCatalog;
