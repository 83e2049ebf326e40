//! What is asked of the server, and how it is put.

use std::time::Duration;

use tokio_postgres::{Statement, types::Type};

use super::value::{Text, given_type};
use crate::source::{Limits, Value, rows::distinct, statement::MAX_NAME};

/// A statement with its values, to be run within limits.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) sql: &'a str,
    pub(super) values: &'a [&'a Value],
    pub(super) limits: Limits,
    /// How long a query of its connection may take if nobody says otherwise.
    pub(super) timeout: Duration,
}

/// What goes into a statement and comes out of it.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) parameters: Vec<Type>,
    pub(super) columns: Vec<String>,
    pub(super) types: Vec<Type>,
    /// Whether columns are called otherwise than the statement calls them.
    pub(super) renamed: bool,
}

impl Asked<'_> {
    /// The types that its values are given with.
    pub(super) fn given(&self) -> Vec<Type> {
        self.values.iter().map(|it| given_type(it)).collect()
    }

    /// The values as they are sent.
    pub(super) fn texts(&self) -> impl ExactSizeIterator<Item = Text<'_>> {
        self.values.iter().map(|it| Text(it))
    }
}

impl Shape {
    pub(super) fn of(statement: &Statement) -> Self {
        let names = || statement.columns().iter().map(tokio_postgres::Column::name);
        let columns = distinct(names(), MAX_NAME);
        Self {
            renamed: !columns.iter().map(String::as_str).eq(names()),
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
    pub(super) fn as_json(&self, asked: &Asked<'_>) -> String {
        let query = self.query_name();
        let names = match self.renamed {
            true => {
                let names: Vec<String> = self.columns.iter().map(|it| identifier(it)).collect();
                format!("({})", names.join(","))
            }
            false => String::new(),
        };
        let (sql, most, bytes) = (asked.sql, asked.limits.rows + 1, asked.limits.bytes);
        format!(
            "SELECT CASE WHEN pg_catalog.octet_length(j) OPERATOR(pg_catalog.<=) {bytes} \
             THEN j END FROM (SELECT pg_catalog.row_to_json({query})::pg_catalog.text AS j \
             FROM (\n{sql}\n) AS {query}{names} LIMIT {most}) AS _r"
        )
    }

    /// A name for the sub-query that no column has.
    pub(super) fn query_name(&self) -> String {
        let mut name = String::from("_q");
        while self.columns.contains(&name) {
            name.push('_');
        }
        name
    }
}

/// A name as SQL has it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
