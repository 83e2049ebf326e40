//! What a PostgreSQL source has to read.

use tokio_postgres::Row;

use super::{
    PostgresSource, error,
    system_catalog::{Oid, SystemCatalog},
};
use crate::{ColumnInfo, Error, ForeignKeyTarget, TableInfo, TableKind};

const SELECT_TABLES: &str = include_str!("schema/tables.sql");
const SELECT_COLUMNS: &str = include_str!("schema/columns.sql");
const SELECT_FOREIGN_KEYS: &str = include_str!("schema/keys.sql");

impl PostgresSource {
    pub(crate) async fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        let client = self.client().await?;
        let allowed: Vec<Oid> = self
            .system_catalog(&client)
            .await?
            .allowed_relations()
            .collect();
        let rows = client
            .query(SELECT_TABLES, &[&allowed])
            .await
            .map_err(error::from_internal_query)?;
        rows.iter()
            .map(|it| read_table(it).map_err(error::from_internal_query))
            .collect()
    }

    pub(crate) async fn describe(&self, name: &str) -> Result<Vec<ColumnInfo>, Error> {
        let client = self.client().await?;
        let catalogue = self.system_catalog(&client).await?;
        let oid = catalogue
            .find_relation(name)
            .ok_or_else(|| Error::TableNotFound(name.to_owned()))?;
        let rows = client
            .query(SELECT_COLUMNS, &[&oid])
            .await
            .map_err(error::from_internal_query)?;
        let columns = rows.iter().map(read_column).collect::<Result<Vec<_>, _>>();
        let mut columns = columns.map_err(error::from_internal_query)?;
        for row in client
            .query(SELECT_FOREIGN_KEYS, &[&oid])
            .await
            .map_err(error::from_internal_query)?
        {
            add_reference(&mut columns, &row, &catalogue).map_err(error::from_internal_query)?;
        }
        Ok(columns)
    }
}

fn read_table(row: &Row) -> Result<TableInfo, tokio_postgres::Error> {
    let kind: &str = row.try_get("kind")?;
    let rows: f32 = row.try_get("rows")?;
    Ok(TableInfo {
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

fn read_column(row: &Row) -> Result<ColumnInfo, tokio_postgres::Error> {
    Ok(ColumnInfo {
        name: row.try_get("name")?,
        data_type: row.try_get("type")?,
        nullable: row.try_get("nullable")?,
        default: row.try_get("default")?,
        comment: row.try_get("comment")?,
        primary_key: row.try_get("primary_key")?,
        references: Vec::new(),
    })
}

/// Adds where a column points to, if that may be read.
fn add_reference(
    columns: &mut [ColumnInfo],
    row: &Row,
    catalogue: &SystemCatalog,
) -> Result<(), tokio_postgres::Error> {
    let (from, to): (&str, Oid) = (row.try_get("from")?, row.try_get("to")?);
    let target = catalogue.relations.get(&to).filter(|it| it.is_allowed);
    let column = columns.iter_mut().find(|it| it.name == from);
    if let (Some(target), Some(column)) = (target, column) {
        column.references.push(ForeignKeyTarget {
            schema: target.schema.clone(),
            table: target.name.clone(),
            column: row.try_get("column")?,
        });
    }
    Ok(())
}
