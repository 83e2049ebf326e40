//! Advice about the role that a source connects with.

use std::collections::BTreeSet;

use maru_postgres::PostgresAddress;
use tracing::warn;

use super::{query_request::quote_identifier, system_catalog::SystemCatalog};
use crate::SourceSettings;

/// The role that the advice makes.
const READER_ROLE: &str = "maru_reader";
/// How many tables the advice names; of more it names the schemas.
const MAX_NAMED_TABLES: usize = 20;

/// Logs what a role could do beside reading, and the statements that make one which
/// could not.
pub(super) fn warn_about_role(
    source: &str,
    address: &PostgresAddress,
    settings: &SourceSettings,
    catalog: &SystemCatalog,
) {
    if address.is_unverified_remote() {
        let place = address.redacted_location();
        warn!(source.name = %source, "source {source}, {place}: the server's certificate is not verified; set sslmode=verify-full");
    }
    if catalog.write_privileges.is_empty() {
        return;
    }
    let powers = catalog.write_privileges.join(", ");
    let statements = reader_role_statements(settings, catalog);
    warn!(source.name = %source, powers, "the role of source {source} {powers}; maru lets it only read, but a role that can only read is safer: {statements}");
}

/// The statements that make a role which may read what the source offers.
fn reader_role_statements(settings: &SourceSettings, catalog: &SystemCatalog) -> String {
    let allowed = catalog.relations.values().filter(|it| it.is_allowed);
    let tables: BTreeSet<(&str, &str)> = allowed
        .map(|it| (it.schema.as_str(), it.name.as_str()))
        .collect();
    let schemas: BTreeSet<&str> = tables.iter().map(|(schema, _)| *schema).collect();
    let names_tables = !settings.relations.is_empty() && tables.len() <= MAX_NAMED_TABLES;
    let mut statements = vec![format!(
        "CREATE ROLE {READER_ROLE} LOGIN PASSWORD '…' NOSUPERUSER NOCREATEDB NOCREATEROLE;"
    )];
    for schema in schemas {
        let schema = quote_identifier(schema);
        statements.push(format!("GRANT USAGE ON SCHEMA {schema} TO {READER_ROLE};"));
        if !names_tables {
            statements.push(format!(
                "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {READER_ROLE};"
            ));
        }
    }
    if names_tables {
        let named = |(schema, name): &(&str, &str)| {
            format!("{}.{}", quote_identifier(schema), quote_identifier(name))
        };
        let tables: Vec<String> = tables.iter().map(named).collect();
        statements.push(format!(
            "GRANT SELECT ON {} TO {READER_ROLE};",
            tables.join(", ")
        ));
    }
    // The log is one line for each event, so line breaks would be escaped.
    statements.join(" ")
}
