//! Everything that can be offered and called: one catalog for every caller.

mod arguments;
pub mod builtin;
mod caller;
mod catalog;
pub mod custom;
mod mirror;
mod name;
mod offer;
pub mod output;
mod peer;
mod quota;
mod rate;
mod seen;
mod switches;
mod unknown;
mod view;

pub use caller::{Caller, Scope};
pub use catalog::{Catalog, Snapshot, Waker};
pub use mirror::{Mirror, mirrors};
pub use name::public;
pub use offer::{
    Action, Answer, Ask, Handler, Input, InputRequired, Kind, OWN_SERVER, Offer, Watcher, Watching,
};
pub use output::ResultSizes;
pub use peer::{ClientConnection, Inputs, Peer};
pub use quota::{Quota, Target, TooMany};
pub use seen::{Seen, may_use};
pub use switches::Switches;
pub use unknown::no_resource;
pub use view::{Shelf, View};
