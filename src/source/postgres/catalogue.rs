//! What the server has: relations, and the names of what may not be called.

use std::collections::{HashMap, HashSet};

use tokio_postgres::{Client, Row};

use super::functions::is_safe;
use crate::source::Settings;

const RELATIONS: &str = include_str!("catalogue/relations.sql");
const DEPENDENCIES: &str = include_str!("catalogue/dependencies.sql");
const COLUMNS: &str = include_str!("catalogue/columns.sql");
const FUNCTIONS: &str = include_str!("catalogue/functions.sql");
const OPERATORS: &str = include_str!("catalogue/operators.sql");
const TYPES: &str = include_str!("catalogue/types.sql");
const ROLE: &str = include_str!("catalogue/role.sql");
const ZONE: &str = "SELECT pg_catalog.current_setting('TimeZone')";

pub(super) type Oid = u32;

/// A picture of the server's catalogue.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) relations: HashMap<Oid, Relation>,
    /// The names of all relations.
    pub(super) by_name: HashMap<String, Vec<Oid>>,
    /// What an allowed view reads, directly or not.
    pub(super) dependencies: HashMap<Oid, Vec<Oid>>,
    /// The columns of allowed relations.
    pub(super) columns: HashSet<String>,
    /// Functions that may not be called; `true` for those that take one value,
    /// which can be called as `value.function`.
    pub(super) functions: HashMap<String, bool>,
    pub(super) operators: HashSet<String>,
    pub(super) types: HashSet<String>,
    /// Whether moments are shown in UTC.
    pub(super) is_utc: bool,
    /// What the role could do beside reading, for the log.
    pub(super) powers: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Relation {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) is_system: bool,
    pub(super) is_allowed: bool,
    /// Whether its name alone means it.
    is_visible: bool,
}

impl Catalogue {
    pub(super) async fn load(
        client: &Client,
        settings: &Settings,
    ) -> Result<Self, tokio_postgres::Error> {
        let mut catalogue = Self::default();
        for row in client.query(RELATIONS, &[]).await? {
            catalogue.add_relation(&row, settings)?;
        }
        let allowed: Vec<Oid> = catalogue.allowed().collect();
        for row in client.query(DEPENDENCIES, &[&allowed]).await? {
            let reads = catalogue.dependencies.entry(row.try_get(0)?).or_default();
            reads.push(row.try_get(1)?);
        }
        catalogue.columns = names(client, COLUMNS, &allowed).await?;
        for row in client.query(FUNCTIONS, &[]).await? {
            catalogue.add_function(&row, settings)?;
        }
        catalogue.operators = names_of(&client.query(OPERATORS, &[]).await?)?;
        catalogue.types = names_of(&client.query(TYPES, &[]).await?)?;
        let zone = client.query_one(ZONE, &[]).await?;
        catalogue.is_utc = ["UTC", "Etc/UTC"].contains(&zone.try_get(0)?);
        let powers = client.query(ROLE, &[]).await?;
        catalogue.powers = powers
            .iter()
            .map(|it| it.try_get(0))
            .collect::<Result<_, _>>()?;
        Ok(catalogue)
    }

    /// The relations that may be read.
    pub(super) fn allowed(&self) -> impl Iterator<Item = Oid> {
        let allowed = self.relations.iter().filter(|(_, it)| it.is_allowed);
        allowed.map(|(oid, _)| *oid)
    }

    /// The relation that may be read and is called so, with its schema or
    /// without.
    pub(super) fn find(&self, table: &str) -> Option<Oid> {
        let mut found = self
            .relations
            .iter()
            .filter(|(_, it)| it.is_allowed && it.is_called(table));
        found.next().map(|(oid, _)| *oid)
    }

    fn add_relation(
        &mut self,
        row: &Row,
        settings: &Settings,
    ) -> Result<(), tokio_postgres::Error> {
        let mut relation = Relation {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
            is_system: row.try_get("system")?,
            is_allowed: false,
            is_visible: row.try_get("visible")?,
        };
        let listed = &settings.relations;
        let wanted = match listed.is_empty() {
            true => row.try_get("own")?,
            false => listed.iter().any(|it| relation.is_called(it)),
        };
        let readable: bool = row.try_get("readable")?;
        relation.is_allowed = wanted && readable && !relation.is_system;
        let oid = row.try_get("oid")?;
        self.by_name
            .entry(relation.name.clone())
            .or_default()
            .push(oid);
        self.relations.insert(oid, relation);
        Ok(())
    }

    fn add_function(
        &mut self,
        row: &Row,
        settings: &Settings,
    ) -> Result<(), tokio_postgres::Error> {
        let name: String = row.try_get("name")?;
        let (builtin, pure): (bool, bool) = (row.try_get("builtin")?, row.try_get("pure")?);
        let foreign: bool = row.try_get("foreign")?;
        let calculates = !builtin || is_safe(&name, pure);
        let listed = settings.functions.contains(&name);
        if !listed && (foreign || !calculates) {
            self.functions.insert(name, row.try_get("single")?);
        }
        Ok(())
    }
}

impl Relation {
    fn is_called(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some((schema, name)) => self.schema == schema && self.name == name,
            None => self.is_visible && self.name == name,
        }
    }
}

async fn names(
    client: &Client,
    sql: &str,
    of: &Vec<Oid>,
) -> Result<HashSet<String>, tokio_postgres::Error> {
    names_of(&client.query(sql, &[of]).await?)
}

fn names_of(rows: &[Row]) -> Result<HashSet<String>, tokio_postgres::Error> {
    rows.iter().map(|it| it.try_get(0)).collect()
}
