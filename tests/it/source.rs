//! Sources against real databases: what they give, refuse and leave behind.

mod databases;
mod hostile;
mod postgres;
mod sqlite;
