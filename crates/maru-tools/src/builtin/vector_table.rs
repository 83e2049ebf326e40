//! A table of PostgreSQL with a column of pgvector, as the index behind `get_sim_search`.

use maru_config::PgvectorSettings;
use maru_retrieval::Embedder;
use maru_sources::{DataSource, QueryLimits, QueryParameters, QueryValue};
use serde_json::Value;

use super::data::caller_query;
use crate::caller::ToolCaller;

/// The parameter that holds the vector of a query.
const QUESTION: &str = "question";

/// Finds the nearest rows of a table.
#[derive(Clone, Debug)]
pub struct VectorTable {
    settings: PgvectorSettings,
}

/// What is searched, and for whom.
#[derive(Debug)]
pub(super) struct NearestSearch<'a> {
    pub(super) queries: &'a [String],
    /// How many texts each query gets.
    pub(super) count: usize,
    pub(super) caller: &'a ToolCaller,
}

impl VectorTable {
    /// The table of the settings.
    pub fn new(settings: PgvectorSettings) -> Self {
        Self { settings }
    }

    /// The name of its source.
    pub(super) fn source_name(&self) -> &str {
        &self.settings.source
    }

    /// The texts that are nearest to each query, the nearest first.
    pub(super) async fn search(
        &self,
        source: &DataSource,
        embedder: &Embedder,
        search: &NearestSearch<'_>,
    ) -> Result<Value, String> {
        self.check_model(embedder)?;
        let vectors = embedder.embed(search.queries).await;
        let vectors = vectors.map_err(|error| error.to_string())?;
        if let Some(first) = vectors.first() {
            self.check_dimension(source, embedder, first.len()).await?;
        }
        let (parameters, limits) = caller_query(source, search.caller);
        let limits = QueryLimits {
            rows: limits.rows.min(search.count),
            ..limits
        };
        let sql = self.nearest_sql(limits.rows);
        let mut found = Vec::with_capacity(vectors.len());
        for vector in &vectors {
            let mut parameters = parameters.clone();
            parameters.set(QUESTION, vector_text(vector));
            found.push(nearest_texts(source, &sql, &parameters, limits).await?);
        }
        Ok(found.into())
    }

    fn nearest_sql(&self, count: usize) -> String {
        let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let table: Vec<String> = self.settings.table.splitn(2, '.').map(quote).collect();
        let (table, text) = (table.join("."), quote(&self.settings.text_column));
        let vector = quote(&self.settings.vector_column);
        format!(
            "SELECT {text} AS t FROM {table} WHERE {vector} IS NOT NULL ORDER BY {vector} <=> :{QUESTION} LIMIT {count}"
        )
    }

    /// Vectors of different models cannot be compared, even if they have one dimension.
    fn check_model(&self, embedder: &Embedder) -> Result<(), String> {
        match &self.settings.model {
            Some(made_by) if made_by != embedder.model() => Err(format!(
                "the vectors of {} were made by {made_by}, and the embedding model is {}; set embedding.model to the one that made them",
                self.settings.table,
                embedder.model()
            )),
            _ => Ok(()),
        }
    }

    async fn check_dimension(
        &self,
        source: &DataSource,
        embedder: &Embedder,
        dimension: usize,
    ) -> Result<(), String> {
        let columns = source.describe(&self.settings.table).await;
        let columns = columns.map_err(|error| error.to_string())?;
        let name = &self.settings.vector_column;
        let column = columns.iter().find(|it| it.name == *name);
        let column = column
            .ok_or_else(|| format!("the table {} has no column {name}", self.settings.table))?;
        // `vector` alone takes any dimension; then the rows decide.
        let declared = column.data_type.split_once('(');
        let declared: Option<usize> =
            declared.and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok());
        match declared {
            Some(declared) if declared != dimension => Err(format!(
                "the vectors of {}.{name} have {declared} dimensions, and the embedding model {} makes {dimension}",
                self.settings.table,
                embedder.model()
            )),
            _ => Ok(()),
        }
    }
}

/// A vector in the text form of pgvector.
pub(crate) fn vector_text(vector: &[f32]) -> QueryValue {
    let numbers: Vec<String> = vector.iter().map(ToString::to_string).collect();
    QueryValue::Text(format!("[{}]", numbers.join(",")))
}

async fn nearest_texts(
    source: &DataSource,
    sql: &str,
    parameters: &QueryParameters,
    limits: QueryLimits,
) -> Result<Value, String> {
    let rows = source.query(sql, parameters, limits).await;
    let rows = rows.map_err(|error| error.to_string())?;
    let rows: Vec<Value> = serde_json::from_str(&rows.json).unwrap_or_default();
    Ok(rows.into_iter().map(|mut row| row["t"].take()).collect())
}
