//! What a PostgreSQL source has to read.

use tokio_postgres::{Client, Row};

use super::{
    error,
    system_catalog::{Oid, SystemCatalog},
};
use crate::{ColumnInfo, Error, ForeignKeyTarget, TableInfo, TableKind};

const SELECT_TABLES: &str = include_str!("schema/tables.sql");
const SELECT_COLUMNS: &str = include_str!("schema/columns.sql");
const SELECT_INDEXES: &str = include_str!("schema/indexes.sql");
const SELECT_FOREIGN_KEYS: &str = include_str!("schema/keys.sql");

/// The relations that may be read, by schema and name.
pub(super) async fn list_tables(
    client: &Client,
    catalog: &SystemCatalog,
) -> Result<Vec<TableInfo>, Error> {
    let allowed: Vec<Oid> = catalog.allowed_relations().collect();
    let rows = query(client, SELECT_TABLES, &allowed).await?;
    let tables = rows.iter().map(read_table).collect::<Result<_, _>>();
    tables.map_err(|error| error::from_internal_query(&error))
}

/// The columns of a relation that may be read.
pub(super) async fn list_columns(
    client: &Client,
    catalog: &SystemCatalog,
    relation: Oid,
) -> Result<Vec<ColumnInfo>, Error> {
    let rows = query(client, SELECT_COLUMNS, &relation).await?;
    let keys = query(client, SELECT_FOREIGN_KEYS, &relation).await?;
    let indexes = query(client, SELECT_INDEXES, &relation).await?;
    let columns = || -> Result<Vec<ColumnInfo>, tokio_postgres::Error> {
        let mut columns: Vec<ColumnInfo> =
            rows.iter().map(read_column).collect::<Result<_, _>>()?;
        for key in &keys {
            add_reference(&mut columns, key, catalog)?;
        }
        for index in &indexes {
            let name: &str = index.try_get("name")?;
            if let Some(column) = columns.iter_mut().find(|it| it.name == name) {
                column.indexes.push(index.try_get("definition")?);
            }
        }
        Ok(columns)
    };
    columns().map_err(|error| error::from_internal_query(&error))
}

async fn query(
    client: &Client,
    sql: &str,
    parameter: &(dyn tokio_postgres::types::ToSql + Sync),
) -> Result<Vec<Row>, Error> {
    let rows = client.query(sql, &[parameter]).await;
    rows.map_err(|error| error::from_internal_query(&error))
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
        indexes: Vec::new(),
        samples: Vec::new(),
    })
}

/// Adds the target of a foreign key to its column, if the target may be read.
fn add_reference(
    columns: &mut [ColumnInfo],
    row: &Row,
    catalog: &SystemCatalog,
) -> Result<(), tokio_postgres::Error> {
    let (from, to): (&str, Oid) = (row.try_get("from")?, row.try_get("to")?);
    let target = catalog.relations.get(&to).filter(|it| it.is_allowed);
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
