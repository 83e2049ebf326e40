//! A query as the server gets it.

use tokio_postgres::{Statement, types::Type};

use super::{
    read_transaction::SessionTimeouts,
    value::{TextParameter, declared_type, value_length},
    value_growth::ValueGrowth,
};
use crate::{
    QueryLimits, QueryValue, data_source::QueryOutput, rows::unique_column_names,
    statement::MAX_IDENTIFIER_BYTES,
};

/// A statement with its values, to be run within limits.
#[derive(Debug)]
pub(super) struct QueryRequest<'a> {
    pub(super) sql: &'a str,
    pub(super) values: &'a [&'a QueryValue],
    pub(super) limits: QueryLimits,
    pub(super) output: QueryOutput,
    /// How values grow by the statement.
    pub(super) growth: ValueGrowth,
    /// The deadlines that the session has unless the transaction sets others.
    pub(super) session_timeouts: SessionTimeouts,
    /// Settings of the transaction that identify the caller.
    pub(super) caller_settings: Vec<(&'a str, &'a str)>,
}

/// What goes into a statement and comes out of it.
#[derive(Clone, Debug)]
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

    /// How long the longest of its values is, in bytes.
    pub(super) fn longest_value(&self) -> u64 {
        let lengths = self.values.iter().map(|it| value_length(it));
        lengths.max().unwrap_or(0) as u64
    }

    /// The clause that takes the rows of one page, and one more that shows whether any follow.
    pub(super) fn page(&self) -> String {
        let limit = format!("LIMIT {}", self.limits.rows + 1);
        match self.limits.offset {
            0 => limit,
            offset => format!("{limit} OFFSET {offset}"),
        }
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

    /// A statement of this shape as a sub-query whose rows are JSON texts; only a query
    /// can stand there. A row that is longer than the whole answer may be is left out by
    /// the server.
    pub(super) fn json_rows_query(&self, request: &QueryRequest<'_>) -> String {
        let query = self.subquery_alias();
        let names = if self.has_renamed_columns {
            let names: Vec<String> = self.columns.iter().map(|it| quote_identifier(it)).collect();
            format!("({})", names.join(","))
        } else {
            String::new()
        };
        let (sql, bytes, page) = (request.sql, request.limits.max_bytes, request.page());
        let lengths = self.length_terms(&query);
        let fits = format!("{lengths} OPERATOR(pg_catalog.<=) {bytes}");
        // LIMIT keeps the inner query apart, so that each value is made once. A value is
        // measured before JSON is made of it, which takes several times its length.
        format!(
            "SELECT CASE WHEN pg_catalog.octet_length(j) OPERATOR(pg_catalog.<=) {bytes} \
             THEN j END FROM (SELECT CASE WHEN {fits} THEN \
             pg_catalog.row_to_json({query})::pg_catalog.text END AS j \
             FROM (SELECT * FROM (\n{sql}\n) AS {query}{names} {page}) AS {query} \
             OFFSET 0) AS _r"
        )
    }

    /// The sum of the lengths of a row's values, as far as they have any length.
    pub(super) fn length_terms(&self, query: &str) -> String {
        let both = self.columns.iter().zip(&self.types);
        let terms = both
            .filter(|(_, kind)| !has_fixed_length(kind))
            .map(|(name, kind)| {
                let length = match *kind {
                    Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::BYTEA => "octet_length",
                    // The length as it is stored; its text is seldom much longer.
                    _ => "pg_column_size",
                };
                let column = quote_identifier(name);
                format!("COALESCE(pg_catalog.{length}({query}.{column}), 0)::pg_catalog.int8")
            });
        let terms: Vec<String> = terms.collect();
        if terms.is_empty() {
            "0".to_owned()
        } else {
            terms.join(" OPERATOR(pg_catalog.+) ")
        }
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

fn has_fixed_length(kind: &Type) -> bool {
    let fixed = [
        Type::BOOL,
        Type::INT2,
        Type::INT4,
        Type::INT8,
        Type::FLOAT4,
        Type::FLOAT8,
        Type::UUID,
        Type::DATE,
        Type::TIME,
        Type::TIMESTAMP,
        Type::TIMESTAMPTZ,
        Type::NAME,
        Type::OID,
    ];
    fixed.contains(kind)
}
