//! Sources against real databases: what they give, refuse and leave behind.

mod fixture;
mod hostile;
mod postgres;
mod sqlite;
