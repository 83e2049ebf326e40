//! Who may do what: every route for every role, lists of tokens, other binds.

mod bind;
mod lists;
mod oauth;
mod roles;
