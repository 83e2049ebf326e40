//! Models that were added while the hub runs.

use std::fmt;

use super::{DatabaseError, Error, PortableStatement, ResultRow, Store, is_sealed};

/// A model that clients may use, as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct ModelRow {
    /// Unique name.
    pub name: String,
    /// Its settings as JSON; may hold a key.
    pub definition: String,
    /// When it was changed, in milliseconds since 1970.
    pub updated_at: i64,
}

const LIST: PortableStatement = PortableStatement {
    attempted: "list the models",
    sql: "SELECT name, definition, updated_at FROM model ORDER BY name",
};
const PUT: PortableStatement = PortableStatement {
    attempted: "save the model",
    sql: "INSERT INTO model (name, definition, updated_at) VALUES ($1, $2, $3)
          ON CONFLICT (name) DO UPDATE SET definition = excluded.definition,
            updated_at = excluded.updated_at
          RETURNING name",
};
const DELETE: PortableStatement = PortableStatement {
    attempted: "delete the model",
    sql: "DELETE FROM model WHERE name = $1 RETURNING name",
};
/// Every statement of this file that both back ends run.
pub(super) const STATEMENTS: &[PortableStatement] = &[LIST, PUT, DELETE];

/// What a sealed definition is bound to.
fn associated_data(name: &str) -> String {
    format!("model.definition of {name}")
}

impl Store {
    /// Every stored model, by name. A definition that cannot be opened stays sealed.
    pub async fn models(&self) -> Result<Vec<ModelRow>, Error> {
        let mut rows: Vec<ModelRow> = self.query_as(LIST, Vec::new()).await?;
        for row in &mut rows {
            let sealer = self.sealer.as_ref();
            let opened =
                sealer.and_then(|it| it.open(&associated_data(&row.name), &row.definition));
            if let Some(definition) = opened {
                row.definition = definition;
            }
        }
        Ok(rows)
    }

    /// Adds or replaces a model.
    pub async fn put_model(&self, row: &ModelRow) -> Result<(), Error> {
        let definition = match &self.sealer {
            Some(sealer) if !is_sealed(&row.definition) => {
                sealer.seal(&associated_data(&row.name), &row.definition)
            }
            _ => row.definition.clone(),
        };
        let values = vec![
            row.name.as_str().into(),
            definition.as_str().into(),
            row.updated_at.into(),
        ];
        self.execute(PUT, values).await.map(drop)
    }

    /// Deletes a model; returns false if it does not exist.
    pub async fn delete_model(&self, name: &str) -> Result<bool, Error> {
        self.execute(DELETE, vec![name.into()]).await
    }

    /// Seals the definitions that are written plainly.
    pub(super) async fn seal_models(&self) -> Result<(), Error> {
        let rows: Vec<ModelRow> = self.query_as(LIST, Vec::new()).await?;
        for row in rows.iter().filter(|it| !is_sealed(&it.definition)) {
            self.put_model(row).await?;
        }
        Ok(())
    }
}

impl TryFrom<ResultRow> for ModelRow {
    type Error = DatabaseError;

    fn try_from(mut row: ResultRow) -> Result<Self, DatabaseError> {
        Ok(Self {
            name: row.next_cell()?,
            definition: row.next_cell()?,
            updated_at: row.next_cell()?,
        })
    }
}

/// Leaves the definition out: it may hold a key.
impl fmt::Debug for ModelRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ModelRow")
            .field("name", &self.name)
            .field("updated_at", &self.updated_at)
            .finish_non_exhaustive()
    }
}
