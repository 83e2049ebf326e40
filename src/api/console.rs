//! The web console: its page, its files, who is signed in, and the one stream
//! of events that keeps every page up to date.

mod assets;
mod events;
mod pump;
mod session;

pub(super) use assets::{asset, page};
pub use events::Events;
pub(super) use events::stream;
pub use pump::pump;
pub(super) use session::{cookie, end, new_link, show, sign_in};
