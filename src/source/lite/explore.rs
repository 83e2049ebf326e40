//! What an SQLite source has to read.

use rusqlite::{Connection, Row};

use super::{
    Error, Lite,
    connection::{Reader, failed},
};
use crate::source::{Column, Reference, Table, TableKind};

const TABLES: &str = "SELECT name, type, coalesce(sql, '') LIKE 'CREATE VIRTUAL%'
    FROM main.sqlite_schema WHERE type IN ('table', 'view') ORDER BY name";
const COLUMNS: &str = "SELECT name, type, \"notnull\", dflt_value, pk
    FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid";
const KEYS: &str = "SELECT \"from\", \"table\", \"to\" FROM pragma_foreign_key_list(?1)";
const ESTIMATES: &str = "SELECT max(CAST(stat AS INTEGER)) FROM main.sqlite_stat1 WHERE tbl = ?1";

impl Lite {
    pub(in crate::source) async fn tables(&self) -> Result<Vec<Table>, Error> {
        self.explore(|reader| {
            let all = rows(&reader.connection, TABLES, None, table)?;
            let allowed = |it: &Table| reader.gate.rules(|rules| rules.find(&it.name).is_some());
            let mut tables: Vec<Table> = all.into_iter().filter(allowed).collect();
            for table in &mut tables {
                table.estimated_rows = estimate(&reader.connection, &table.name);
            }
            Ok(tables)
        })
        .await
    }

    pub(in crate::source) async fn describe(&self, name: &str) -> Result<Vec<Column>, Error> {
        let wanted = name.to_owned();
        let columns = self.explore(move |reader| {
            let name = reader
                .gate
                .rules(|rules| rules.find(&wanted).map(str::to_owned));
            let Some(name) = name else { return Ok(None) };
            let mut columns = rows(&reader.connection, COLUMNS, Some(&name), column)?;
            for (from, table, to) in rows(&reader.connection, KEYS, Some(&name), key)? {
                let target = reader
                    .gate
                    .rules(|rules| rules.find(&table).map(str::to_owned));
                let column = columns
                    .iter_mut()
                    .find(|it| it.name.eq_ignore_ascii_case(&from));
                if let (Some(table), Some(column)) = (target, column) {
                    let schema = "main".to_owned();
                    let to = to.unwrap_or_else(|| "rowid".to_owned());
                    column.references.push(Reference {
                        schema,
                        table,
                        column: to,
                    });
                }
            }
            Ok(Some(columns))
        });
        columns
            .await?
            .ok_or_else(|| Error::NoTable(name.to_owned()))
    }

    /// Does some work with maru's own statements.
    async fn explore<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.run(move |reader| {
            let done = reader.learn().and_then(|()| {
                let gate = std::sync::Arc::clone(&reader.gate);
                gate.opened(|| work(reader))
            });
            done.map_err(|error| failed(&error))
        })
        .await
    }
}

fn rows<T>(
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

fn estimate(connection: &Connection, table: &str) -> Option<u64> {
    let rows = connection.query_row(ESTIMATES, [table], |row| row.get::<_, Option<i64>>(0));
    rows.ok().flatten().and_then(|it| it.try_into().ok())
}

fn table(row: &Row<'_>) -> rusqlite::Result<Table> {
    let (kind, is_module): (String, bool) = (row.get(1)?, row.get(2)?);
    Ok(Table {
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

fn column(row: &Row<'_>) -> rusqlite::Result<Column> {
    let (required, key): (bool, i64) = (row.get(2)?, row.get(4)?);
    Ok(Column {
        name: row.get(0)?,
        kind: row.get(1)?,
        nullable: !required && key == 0,
        default: row.get(3)?,
        comment: None,
        primary_key: key > 0,
        references: Vec::new(),
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<(String, String, Option<String>)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}
