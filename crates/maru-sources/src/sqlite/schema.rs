//! What an SQLite source has to read.

use rusqlite::{Connection, Row};

use super::{access_rules::SqliteAccessRules, connection::GuardedConnection};
use crate::{ColumnInfo, ForeignKeyTarget, TableInfo, TableKind};

const SELECT_TABLES: &str = "SELECT name, type, coalesce(sql, '') LIKE 'CREATE VIRTUAL%'
    FROM main.sqlite_schema WHERE type IN ('table', 'view') ORDER BY name";
const SELECT_COLUMNS: &str = "SELECT name, type, \"notnull\", dflt_value, pk
    FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
const SELECT_FOREIGN_KEYS: &str =
    "SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?1)";
/// An index that SQLite makes for a constraint has no SQL of its own.
const SELECT_INDEXES: &str = "SELECT c.name, coalesce(s.sql, CASE l.origin
        WHEN 'pk' THEN 'PRIMARY KEY (' ELSE 'UNIQUE (' END
        || (SELECT group_concat(p.name, ', ') FROM pragma_index_info(l.name) p) || ')')
    FROM pragma_index_list(?1) l JOIN pragma_index_info(l.name) c
    LEFT JOIN main.sqlite_schema s ON s.type = 'index' AND s.name = l.name
    WHERE c.name IS NOT NULL ORDER BY l.seq";
const SELECT_ROW_ESTIMATE: &str =
    "SELECT max(CAST(stat AS INTEGER)) FROM main.sqlite_stat1 WHERE tbl = ?1";

/// The relations that may be read.
pub(super) fn list_tables(reader: &GuardedConnection) -> rusqlite::Result<Vec<TableInfo>> {
    let all = query_all(&reader.connection, SELECT_TABLES, None, read_table)?;
    let allowed = |it: &TableInfo| readable_name(reader, &it.name).is_some();
    let mut tables: Vec<TableInfo> = all.into_iter().filter(allowed).collect();
    for table in &mut tables {
        table.estimated_rows = estimate_rows(&reader.connection, &table.name);
    }
    Ok(tables)
}

/// The columns of a relation; none if it may not be read.
pub(super) fn list_columns(
    reader: &GuardedConnection,
    relation: &str,
) -> rusqlite::Result<Option<Vec<ColumnInfo>>> {
    let Some(name) = readable_name(reader, relation) else {
        return Ok(None);
    };
    let connection = &reader.connection;
    let mut columns = query_all(connection, SELECT_COLUMNS, Some(&name), read_column)?;
    let keys = query_all(
        connection,
        SELECT_FOREIGN_KEYS,
        Some(&name),
        read_foreign_key,
    )?;
    for (from, table, to) in keys {
        let column = columns
            .iter_mut()
            .find(|it| it.name.eq_ignore_ascii_case(&from));
        if let (Some(table), Some(column)) = (readable_name(reader, &table), column) {
            column.references.push(ForeignKeyTarget {
                schema: "main".to_owned(),
                table,
                column: to.unwrap_or_else(|| "rowid".to_owned()),
            });
        }
    }
    for (name, index) in query_all(connection, SELECT_INDEXES, Some(&name), read_index)? {
        let column = columns.iter_mut().find(|it| it.name == name);
        if let Some(column) = column {
            column.indexes.push(index);
        }
    }
    Ok(Some(columns))
}

/// The relation as it is written, if it may be read.
fn readable_name(reader: &GuardedConnection, name: &str) -> Option<String> {
    let find = |rules: &SqliteAccessRules| rules.find_relation(name).map(str::to_owned);
    reader.authorizer.with_rules(find)
}

fn query_all<T>(
    connection: &Connection,
    sql: &str,
    argument: Option<&str>,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = connection.prepare(sql)?;
    let arguments: Vec<&str> = argument.into_iter().collect();
    let rows = statement.query_map(rusqlite::params_from_iter(arguments), read)?;
    rows.collect()
}

fn estimate_rows(connection: &Connection, table: &str) -> Option<u64> {
    let rows = connection.query_row(SELECT_ROW_ESTIMATE, [table], |row| {
        row.get::<_, Option<i64>>(0)
    });
    rows.ok().flatten().and_then(|it| it.try_into().ok())
}

fn read_table(row: &Row<'_>) -> rusqlite::Result<TableInfo> {
    let (kind, is_module): (String, bool) = (row.get(1)?, row.get(2)?);
    Ok(TableInfo {
        schema: "main".to_owned(),
        name: row.get(0)?,
        kind: match (kind.as_str(), is_module) {
            ("view", _) => TableKind::View,
            (_, true) => TableKind::ForeignTable,
            _ => TableKind::Table,
        },
        comment: None,
        estimated_rows: None,
    })
}

fn read_column(row: &Row<'_>) -> rusqlite::Result<ColumnInfo> {
    let (required, key): (bool, i64) = (row.get(2)?, row.get(4)?);
    Ok(ColumnInfo {
        name: row.get(0)?,
        data_type: row.get(1)?,
        nullable: !required && key == 0,
        default: row.get(3)?,
        comment: None,
        primary_key: key > 0,
        references: Vec::new(),
        indexes: Vec::new(),
        samples: Vec::new(),
    })
}

fn read_index(row: &Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn read_foreign_key(row: &Row<'_>) -> rusqlite::Result<(String, String, Option<String>)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}
