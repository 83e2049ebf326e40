//! Who may do what: every route for every role, lists of tokens, other binds.

pub(crate) mod bind;
mod configured_hosts;
mod lists;
mod local_admin;
pub(crate) mod oauth;
mod roles;
