//! The web console: its page and files, sign-in, and the event stream that keeps open pages
//! up to date.

mod assets;
mod events;
mod publisher;
mod session;

pub(super) use assets::{asset, missing_page, page};
pub use events::ConsoleEvents;
pub(super) use events::stream;
pub use publisher::publish_changes;
pub use session::cookie_suffix;
pub(super) use session::{
    create_sign_in_link, session_cookie, show, sign_in, sign_out, signed_in_response,
};
