//! The documentation that a hub serves at `/docs`: the Markdown of the repository, embedded
//! and rendered as HTML. Pages need no script and nothing from the internet.

#![forbid(unsafe_code)]

mod api_reference;
mod layout;
mod markdown;
mod pages;
mod search;

pub use api_reference::OPENAPI_JSON;
pub use markdown::{CodeBlock, code_blocks};
pub use pages::{DocFile, DocPage, doc_file, doc_page, doc_pages};
pub use search::search_page;

/// The address below which the hub serves the pages.
pub const DOCS_PATH: &str = "/docs";
