//! What there is to read.

/// A relation of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Its schema; `main` in SQLite.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: TableKind,
    /// What its owner says about it.
    pub comment: Option<String>,
    /// About how many rows it has, if the database knows.
    pub estimated_rows: Option<u64>,
}

/// What a relation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A table, in parts or whole.
    Table,
    /// A view.
    View,
    /// A view that keeps its rows.
    MaterializedView,
    /// A table that is kept elsewhere, or by a module.
    ForeignTable,
}

impl TableKind {
    /// The name for people and models.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::ForeignTable => "foreign table",
        }
    }
}

/// A column of a relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// Its name.
    pub name: String,
    /// Its type, as SQL has it.
    pub data_type: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// The expression that fills it when nothing is given.
    pub default: Option<String>,
    /// What its owner says about it.
    pub comment: Option<String>,
    /// Whether it belongs to the primary key.
    pub primary_key: bool,
    /// The columns that it points to, in relations that may be read.
    pub references: Vec<ForeignKeyTarget>,
    /// The indexes that it belongs to, as SQL.
    pub indexes: Vec<String>,
    /// Some of its values as text, where an admin allows that.
    pub samples: Vec<String>,
}

/// The other end of a foreign key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKeyTarget {
    /// The schema of the table; `main` in SQLite.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column.
    pub column: String,
}
