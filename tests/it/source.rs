//! Sources against real databases: what they give, refuse and leave behind.

mod databases;
mod document_variables;
mod hostile;
mod parameters;
mod pgvector;
mod postgres;
mod postgres_load;
mod postgres_tls;
mod sqlite;
