//! The table of what requests to models used, by day, caller, model and backend.

use super::{CellValue, DatabaseError, Error, PortableStatement, ResultRow, Store};

/// What the requests of one day, caller, model and backend used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUsageRow {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// The name of the principal.
    pub caller: String,
    /// The model, by the name in the settings.
    pub model: String,
    /// Host and port of the backend.
    pub backend: String,
    /// What they used.
    pub totals: UsageTotals,
}

/// Sums over requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Requests that ended, whatever their outcome.
    pub requests: i64,
    /// Requests that got no complete response because of a failure.
    pub errors: i64,
    /// Requests whose tokens were estimated, because the backend did not report them.
    pub estimated: i64,
    /// Tokens of the prompts, cached ones included.
    pub input_tokens: i64,
    /// Tokens of the prompts that came from the backend's cache.
    pub cached_tokens: i64,
    /// Tokens of the responses, reasoning included.
    pub output_tokens: i64,
    /// Tokens of reasoning.
    pub reasoning_tokens: i64,
    /// Requests whose response began.
    pub responses: i64,
    /// Milliseconds from the request to the first piece of the response, summed.
    pub first_token_ms: i64,
    /// Milliseconds from the request to its end, summed.
    pub duration_ms: i64,
    /// Billionths of the currency.
    pub cost: i64,
}

/// Usage that is written in one transaction, exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageBatch {
    /// A name of the running hub that no other has.
    pub writer: String,
    /// Counts the batches of this writer.
    pub number: i64,
    /// The time in milliseconds since the Unix epoch.
    pub at: i64,
    /// Rows that are added to those in the table.
    pub rows: Vec<ModelUsageRow>,
}

/// Selects usage; an absent field matches everything.
#[derive(Clone, Debug, Default)]
pub struct ModelUsageFilter {
    /// From this day on.
    pub first_day: i64,
    /// Up to and including this day.
    pub last_day: i64,
    /// Usage of this principal.
    pub caller: Option<String>,
    /// Usage of this model.
    pub model: Option<String>,
    /// Usage of this backend.
    pub backend: Option<String>,
    /// Whether days are apart; otherwise `day` is 0.
    pub by_day: bool,
    /// Whether principals are apart; otherwise `caller` is empty.
    pub by_caller: bool,
    /// Whether models are apart; otherwise `model` is empty.
    pub by_model: bool,
    /// Whether backends are apart; otherwise `backend` is empty.
    pub by_backend: bool,
    /// Maximum number of rows.
    pub limit: i64,
}

const ADD: PortableStatement = PortableStatement {
    attempted: "count the usage of models",
    sql: "INSERT INTO model_usage (day, caller, model, backend, requests, errors, estimated,
            input_tokens, cached_tokens, output_tokens, reasoning_tokens, responses,
            first_token_ms, duration_ms, cost)
          VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
          ON CONFLICT (day, caller, model, backend) DO UPDATE SET
            requests = model_usage.requests + excluded.requests,
            errors = model_usage.errors + excluded.errors,
            estimated = model_usage.estimated + excluded.estimated,
            input_tokens = model_usage.input_tokens + excluded.input_tokens,
            cached_tokens = model_usage.cached_tokens + excluded.cached_tokens,
            output_tokens = model_usage.output_tokens + excluded.output_tokens,
            reasoning_tokens = model_usage.reasoning_tokens + excluded.reasoning_tokens,
            responses = model_usage.responses + excluded.responses,
            first_token_ms = model_usage.first_token_ms + excluded.first_token_ms,
            duration_ms = model_usage.duration_ms + excluded.duration_ms,
            cost = model_usage.cost + excluded.cost
          RETURNING day",
};
/// Fails on a batch that was written: a hub whose connection broke cannot know that.
const ADD_BATCH: PortableStatement = PortableStatement {
    attempted: "count the usage of models",
    sql: "INSERT INTO model_usage_batch (writer, number, at) VALUES ($1, $2, $3)
          RETURNING number",
};
const FIND_BATCH: PortableStatement = PortableStatement {
    attempted: "find the last usage that was counted",
    sql: "SELECT number FROM model_usage_batch WHERE writer = $1 AND number = $2",
};
const FORGET_BATCHES: PortableStatement = PortableStatement {
    attempted: "count the usage of models",
    sql: "DELETE FROM model_usage_batch WHERE (writer = $1 AND number < $2) OR at < $3
          RETURNING number",
};
/// An absent filter is an empty text, so that one statement serves every filter and every
/// grouping. PostgreSQL returns `numeric` for a sum of integers, hence the casts.
const SUM: PortableStatement = PortableStatement {
    attempted: "sum up the usage of models",
    sql: "SELECT g.day, g.caller, g.model, g.backend,
            CAST(sum(g.requests) AS BIGINT), CAST(sum(g.errors) AS BIGINT),
            CAST(sum(g.estimated) AS BIGINT), CAST(sum(g.input_tokens) AS BIGINT),
            CAST(sum(g.cached_tokens) AS BIGINT), CAST(sum(g.output_tokens) AS BIGINT),
            CAST(sum(g.reasoning_tokens) AS BIGINT), CAST(sum(g.responses) AS BIGINT),
            CAST(sum(g.first_token_ms) AS BIGINT), CAST(sum(g.duration_ms) AS BIGINT),
            CAST(sum(g.cost) AS BIGINT)
          FROM (SELECT CASE WHEN CAST($1 AS BIGINT) = 1 THEN day ELSE 0 END AS day,
                  CASE WHEN CAST($2 AS BIGINT) = 1 THEN caller ELSE '' END AS caller,
                  CASE WHEN CAST($3 AS BIGINT) = 1 THEN model ELSE '' END AS model,
                  CASE WHEN CAST($4 AS BIGINT) = 1 THEN backend ELSE '' END AS backend,
                  requests, errors, estimated, input_tokens, cached_tokens, output_tokens,
                  reasoning_tokens, responses, first_token_ms, duration_ms, cost
                FROM model_usage
                WHERE day >= $5 AND day <= $6 AND ($7 = '' OR caller = $7)
                  AND ($8 = '' OR model = $8) AND ($9 = '' OR backend = $9)) g
          GROUP BY g.day, g.caller, g.model, g.backend
          ORDER BY g.day, g.caller, g.model, g.backend LIMIT $10",
};
const DELETE_OLDER: PortableStatement = PortableStatement {
    attempted: "remove old usage of models",
    sql: "DELETE FROM model_usage WHERE day < $1 RETURNING day",
};
/// The statements of these tables.
pub(super) const STATEMENTS: &[PortableStatement] = &[
    ADD,
    ADD_BATCH,
    FIND_BATCH,
    FORGET_BATCHES,
    SUM,
    DELETE_OLDER,
];

/// Batches of hubs that ended are forgotten after so many milliseconds.
const BATCH_RETENTION_MS: i64 = 86_400_000;

impl Store {
    /// Adds a batch to the table. After an error it may have been written all the same:
    /// writing it again counts it once.
    pub async fn add_model_usage(&self, batch: &UsageBatch) -> Result<(), Error> {
        let UsageBatch {
            writer, number, at, ..
        } = batch;
        let begin = vec![writer.as_str().into(), (*number).into(), (*at).into()];
        let forget = vec![
            writer.as_str().into(),
            (*number).into(),
            (at - BATCH_RETENTION_MS).into(),
        ];
        let mut work = vec![(ADD_BATCH, begin)];
        // Two hubs that write the same rows in different orders would wait for each other.
        let mut rows: Vec<&ModelUsageRow> = batch.rows.iter().collect();
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        work.extend(rows.into_iter().map(|it| (ADD, it.to_values())));
        work.push((FORGET_BATCHES, forget));
        let Err(error) = self.execute_in_transaction(ADD, work).await else {
            return Ok(());
        };
        let find = vec![writer.as_str().into(), (*number).into()];
        match self.query(FIND_BATCH, find).await {
            Ok(found) if !found.is_empty() => Ok(()),
            _ => Err(error),
        }
    }

    /// Sums up what matches the filter, in the order of its columns.
    pub async fn model_usage(
        &self,
        filter: &ModelUsageFilter,
    ) -> Result<Vec<ModelUsageRow>, Error> {
        let text = |it: &Option<String>| it.as_deref().unwrap_or_default().into();
        let values = vec![
            i64::from(filter.by_day).into(),
            i64::from(filter.by_caller).into(),
            i64::from(filter.by_model).into(),
            i64::from(filter.by_backend).into(),
            filter.first_day.into(),
            filter.last_day.into(),
            text(&filter.caller),
            text(&filter.model),
            text(&filter.backend),
            filter.limit.into(),
        ];
        self.query_as(SUM, values).await
    }

    /// Deletes usage of days before `day`.
    pub async fn trim_model_usage(&self, day: i64) -> Result<(), Error> {
        self.query(DELETE_OLDER, vec![day.into()]).await.map(drop)
    }
}

impl UsageTotals {
    /// Adds other sums; none overflows.
    pub fn add(&mut self, other: &Self) {
        let sums = self.fields_mut();
        for (sum, more) in sums.into_iter().zip(other.fields()) {
            *sum = sum.saturating_add(more);
        }
    }

    fn fields(&self) -> [i64; 11] {
        let mut copy = *self;
        copy.fields_mut().map(|it| *it)
    }

    /// In the order of the columns.
    fn fields_mut(&mut self) -> [&mut i64; 11] {
        [
            &mut self.requests,
            &mut self.errors,
            &mut self.estimated,
            &mut self.input_tokens,
            &mut self.cached_tokens,
            &mut self.output_tokens,
            &mut self.reasoning_tokens,
            &mut self.responses,
            &mut self.first_token_ms,
            &mut self.duration_ms,
            &mut self.cost,
        ]
    }
}

impl ModelUsageRow {
    fn key(&self) -> (i64, &str, &str, &str) {
        (self.day, &self.caller, &self.model, &self.backend)
    }

    fn to_values(&self) -> Vec<CellValue> {
        let mut values = vec![
            self.day.into(),
            self.caller.as_str().into(),
            self.model.as_str().into(),
            self.backend.as_str().into(),
        ];
        values.extend(self.totals.fields().map(CellValue::from));
        values
    }
}

impl TryFrom<ResultRow> for ModelUsageRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        let mut usage = Self {
            day: row.next_cell()?,
            caller: row.next_cell()?,
            model: row.next_cell()?,
            backend: row.next_cell()?,
            totals: UsageTotals::default(),
        };
        for field in usage.totals.fields_mut() {
            *field = row.next_cell()?;
        }
        Ok(usage)
    }
}
