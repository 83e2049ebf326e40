//! What a PostgreSQL source has to read.

use tokio_postgres::Row;

use super::{
    Postgres,
    catalogue::{Catalogue, Oid},
    error,
};
use crate::source::{Column, Error, Reference, Table, TableKind};

const TABLES: &str = include_str!("explore/tables.sql");
const COLUMNS: &str = include_str!("explore/columns.sql");
const KEYS: &str = include_str!("explore/keys.sql");

impl Postgres {
    pub(in crate::source) async fn tables(&self) -> Result<Vec<Table>, Error> {
        let client = self.client().await?;
        let allowed: Vec<Oid> = self.catalogue(&client).await?.allowed().collect();
        let rows = client
            .query(TABLES, &[&allowed])
            .await
            .map_err(error::own)?;
        rows.iter()
            .map(|it| table(it).map_err(error::own))
            .collect()
    }

    pub(in crate::source) async fn describe(&self, name: &str) -> Result<Vec<Column>, Error> {
        let client = self.client().await?;
        let catalogue = self.catalogue(&client).await?;
        let oid = catalogue
            .find(name)
            .ok_or_else(|| Error::NoTable(name.to_owned()))?;
        let rows = client.query(COLUMNS, &[&oid]).await.map_err(error::own)?;
        let columns = rows.iter().map(column).collect::<Result<Vec<_>, _>>();
        let mut columns = columns.map_err(error::own)?;
        for row in client.query(KEYS, &[&oid]).await.map_err(error::own)? {
            point(&mut columns, &row, &catalogue).map_err(error::own)?;
        }
        Ok(columns)
    }
}

fn table(row: &Row) -> Result<Table, tokio_postgres::Error> {
    let kind: &str = row.try_get("kind")?;
    let rows: f32 = row.try_get("rows")?;
    Ok(Table {
        schema: row.try_get("schema")?,
        name: row.try_get("name")?,
        kind: match kind {
            "v" => TableKind::View,
            "m" => TableKind::MaterializedView,
            "f" => TableKind::ForeignTable,
            _ => TableKind::Table,
        },
        comment: row.try_get("comment")?,
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate"
        )]
        estimated_rows: (rows >= 0.0 && kind != "v").then_some(rows as u64),
    })
}

fn column(row: &Row) -> Result<Column, tokio_postgres::Error> {
    Ok(Column {
        name: row.try_get("name")?,
        kind: row.try_get("type")?,
        nullable: row.try_get("nullable")?,
        default: row.try_get("default")?,
        comment: row.try_get("comment")?,
        primary_key: row.try_get("primary_key")?,
        references: Vec::new(),
    })
}

/// Adds where a column points to, if that may be read.
fn point(
    columns: &mut [Column],
    row: &Row,
    catalogue: &Catalogue,
) -> Result<(), tokio_postgres::Error> {
    let (from, to): (&str, Oid) = (row.try_get("from")?, row.try_get("to")?);
    let target = catalogue.relations.get(&to).filter(|it| it.is_allowed);
    let column = columns.iter_mut().find(|it| it.name == from);
    if let (Some(target), Some(column)) = (target, column) {
        column.references.push(Reference {
            schema: target.schema.clone(),
            table: target.name.clone(),
            column: row.try_get("column")?,
        });
    }
    Ok(())
}
