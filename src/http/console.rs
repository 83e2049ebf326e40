//! The web console: its page, its files, who is signed in, and the one stream
//! of events that keeps every page up to date.

mod assets;
mod events;
mod publisher;
mod session;

pub(super) use assets::{asset, page};
pub use events::ConsoleEvents;
pub(super) use events::stream;
pub use publisher::publish_changes;
pub(super) use session::{create_sign_in_link, session_cookie, show, sign_in, sign_out};
