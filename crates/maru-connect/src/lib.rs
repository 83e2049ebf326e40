//! What a client needs to use a hub: one table of clients that the command line, the console
//! and the documentation share.
//!
//! Nothing here reads or writes a file. [`ClientFile::merge`] changes the text of one.

#![forbid(unsafe_code)]

mod clients;
mod file;
mod guide;
mod hub;
mod json_text;
mod toml_text;

pub use clients::{client_guides, client_ids};
pub use file::{ClientFile, ClientFilePaths, Error, FileFormat, OperatingSystem};
pub use guide::{ClientGuide, ConnectMethod, ConnectSection, Note};
pub use hub::{HubTarget, MODEL_PLACEHOLDER, TOKEN_PLACEHOLDER, command_line, quote_word};
