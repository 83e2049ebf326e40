//! The table of budgets of models.

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store};

/// A budget of a caller, of a model, or of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelBudgetRow {
    /// The unique name.
    pub name: String,
    /// The name of the principal; absent for all together.
    pub caller: Option<String>,
    /// The model; absent for all together.
    pub model: Option<String>,
    /// `day` or `month`.
    pub period: String,
    /// `tokens` or `money`.
    pub unit: String,
    /// Tokens, or billionths of the currency.
    pub maximum: i64,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the budgets",
    sql: "SELECT name, caller, model, period, unit, maximum FROM model_budget ORDER BY name",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the budget",
    sql: "INSERT INTO model_budget (name, caller, model, period, unit, maximum)
          VALUES ($1, $2, $3, $4, $5, $6)
          ON CONFLICT (name) DO UPDATE SET caller = excluded.caller, model = excluded.model,
            period = excluded.period, unit = excluded.unit, maximum = excluded.maximum
          RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "remove the budget",
    sql: "DELETE FROM model_budget WHERE name = $1 RETURNING name",
};
/// The statements of this table.
pub(super) const STATEMENTS: &[PortableStatement] = &[LIST, PUT, DELETE];

impl Store {
    /// Lists the budgets by name.
    pub async fn model_budgets(&self) -> Result<Vec<ModelBudgetRow>, Error> {
        self.query_as(LIST, Vec::new()).await
    }

    /// Adds a budget, or replaces the one with its name.
    pub async fn put_model_budget(&self, row: &ModelBudgetRow) -> Result<(), Error> {
        let values = vec![
            row.name.as_str().into(),
            row.caller.clone().into(),
            row.model.clone().into(),
            row.period.as_str().into(),
            row.unit.as_str().into(),
            row.maximum.into(),
        ];
        self.execute(PUT, values).await.map(drop)
    }

    /// Removes a budget; returns whether it existed.
    pub async fn delete_model_budget(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![name.into()]).await
    }
}

impl TryFrom<ResultRow> for ModelBudgetRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            caller: row.next_cell()?,
            model: row.next_cell()?,
            period: row.next_cell()?,
            unit: row.next_cell()?,
            maximum: row.next_cell()?,
        })
    }
}
