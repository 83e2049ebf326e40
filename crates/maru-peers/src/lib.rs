//! Messages between the hubs that share a PostgreSQL database.
//!
//! Hubs have no connections to each other. A message is a row of one table, sealed with the
//! key that the hubs share, and a notification of PostgreSQL wakes its recipient. Messages
//! belong to an [`Exchange`]: one hub opens it with a [`PeerTopic`], both send, either ends
//! it. A hub whose store nobody can share has no [`PeerHubs`].

#![forbid(unsafe_code)]

mod error;
mod exchange;
mod hub_key;
mod outbox;
mod peer_hubs;
mod peer_topic;

pub use error::Error;
pub use exchange::{Exchange, PeerRequest};
pub use hub_key::HubKey;
pub use peer_hubs::{HubNote, NoteChange, PeerHub, PeerHubs};
pub use peer_topic::PeerTopic;
