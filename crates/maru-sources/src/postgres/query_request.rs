//! What is asked of the server, and how it is put.

use std::time::Duration;

use tokio_postgres::{Statement, types::Type};

use super::value::{TextParameter, declared_type};
use crate::{QueryLimits, QueryValue, rows::unique_column_names, statement::MAX_IDENTIFIER_BYTES};

/// A statement with its values, to be run within limits.
#[derive(Debug)]
pub(super) struct QueryRequest<'a> {
    pub(super) sql: &'a str,
    pub(super) values: &'a [&'a QueryValue],
    pub(super) limits: QueryLimits,
    /// How long a query of its connection may take if nobody says otherwise.
    pub(super) connection_timeout: Duration,
}

/// What goes into a statement and comes out of it.
#[derive(Debug)]
pub(super) struct StatementShape {
    pub(super) parameters: Vec<Type>,
    pub(super) columns: Vec<String>,
    pub(super) types: Vec<Type>,
    /// Whether columns are called otherwise than the statement calls them.
    pub(super) has_renamed_columns: bool,
}

impl QueryRequest<'_> {
    /// The types that its values are given with.
    pub(super) fn declared_types(&self) -> Vec<Type> {
        self.values.iter().map(|it| declared_type(it)).collect()
    }

    /// The values as they are sent.
    pub(super) fn text_parameters(&self) -> impl ExactSizeIterator<Item = TextParameter<'_>> {
        self.values.iter().map(|it| TextParameter(it))
    }
}

impl StatementShape {
    pub(super) fn from_prepared(statement: &Statement) -> Self {
        let names = || statement.columns().iter().map(tokio_postgres::Column::name);
        let columns = unique_column_names(names(), MAX_IDENTIFIER_BYTES);
        Self {
            has_renamed_columns: !columns.iter().map(String::as_str).eq(names()),
            columns,
            types: statement
                .columns()
                .iter()
                .map(|it| it.type_().clone())
                .collect(),
            parameters: statement.params().to_vec(),
        }
    }

    /// A statement of this shape as a sub-query whose rows are JSON texts; only a query can
    /// stand there. A row that is longer than the whole answer may be is left
    /// out by the server.
    pub(super) fn json_rows_query(&self, asked: &QueryRequest<'_>) -> String {
        let query = self.subquery_alias();
        let names = if self.has_renamed_columns {
            let names: Vec<String> = self.columns.iter().map(|it| quote_identifier(it)).collect();
            format!("({})", names.join(","))
        } else {
            String::new()
        };
        let (sql, most, bytes) = (asked.sql, asked.limits.rows + 1, asked.limits.max_bytes);
        format!(
            "SELECT CASE WHEN pg_catalog.octet_length(j) OPERATOR(pg_catalog.<=) {bytes} \
             THEN j END FROM (SELECT pg_catalog.row_to_json({query})::pg_catalog.text AS j \
             FROM (\n{sql}\n) AS {query}{names} LIMIT {most}) AS _r"
        )
    }

    /// A name for the sub-query that no column has.
    pub(super) fn subquery_alias(&self) -> String {
        let mut name = String::from("_q");
        while self.columns.contains(&name) {
            name.push('_');
        }
        name
    }
}

/// A name as SQL has it.
pub(super) fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
