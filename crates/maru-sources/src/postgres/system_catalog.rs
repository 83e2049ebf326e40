//! What the server has: relations, and the names of what may not be called.

use std::collections::{HashMap, HashSet};

use tokio_postgres::{Client, Row};

use super::safe_functions::is_safe;
use crate::SourceSettings;

const SELECT_RELATIONS: &str = include_str!("system_catalog/relations.sql");
const SELECT_DEPENDENCIES: &str = include_str!("system_catalog/dependencies.sql");
const SELECT_COLUMNS: &str = include_str!("system_catalog/columns.sql");
const SELECT_FUNCTIONS: &str = include_str!("system_catalog/functions.sql");
const SELECT_OPERATORS: &str = include_str!("system_catalog/operators.sql");
const SELECT_TYPES: &str = include_str!("system_catalog/types.sql");
const SELECT_ROLE_PRIVILEGES: &str = include_str!("system_catalog/role.sql");
const SELECT_TIME_ZONE: &str = "SELECT pg_catalog.current_setting('TimeZone')";

pub(super) type Oid = u32;

/// A snapshot of the server's system catalog.
#[derive(Debug, Default)]
pub(super) struct SystemCatalog {
    pub(super) relations: HashMap<Oid, Relation>,
    /// The names of all relations.
    pub(super) by_name: HashMap<String, Vec<Oid>>,
    /// What an allowed view reads, directly or not.
    pub(super) dependencies: HashMap<Oid, Vec<Oid>>,
    /// The columns of allowed relations.
    pub(super) columns: HashSet<String>,
    /// Functions that may not be called; `true` for those that take one value,
    /// which can be called as `value.function`.
    pub(super) forbidden_functions: HashMap<String, bool>,
    pub(super) forbidden_operators: HashSet<String>,
    pub(super) forbidden_types: HashSet<String>,
    /// Whether moments are shown in UTC.
    pub(super) is_utc: bool,
    /// What the role could do beside reading, for the log.
    pub(super) write_privileges: Vec<String>,
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

impl SystemCatalog {
    pub(super) async fn load(
        client: &Client,
        settings: &SourceSettings,
    ) -> Result<Self, tokio_postgres::Error> {
        let mut catalog = Self::default();
        for row in client.query(SELECT_RELATIONS, &[]).await? {
            catalog.add_relation(&row, settings)?;
        }
        let allowed: Vec<Oid> = catalog.allowed_relations().collect();
        for row in client.query(SELECT_DEPENDENCIES, &[&allowed]).await? {
            let reads = catalog.dependencies.entry(row.try_get(0)?).or_default();
            reads.push(row.try_get(1)?);
        }
        catalog.columns = query_names(client, SELECT_COLUMNS, &allowed).await?;
        for row in client.query(SELECT_FUNCTIONS, &[]).await? {
            catalog.add_function(&row, settings)?;
        }
        catalog.forbidden_operators = collect_names(&client.query(SELECT_OPERATORS, &[]).await?)?;
        catalog.forbidden_types = collect_names(&client.query(SELECT_TYPES, &[]).await?)?;
        let zone = client.query_one(SELECT_TIME_ZONE, &[]).await?;
        catalog.is_utc = ["UTC", "Etc/UTC"].contains(&zone.try_get(0)?);
        let powers = client.query(SELECT_ROLE_PRIVILEGES, &[]).await?;
        catalog.write_privileges = powers
            .iter()
            .map(|it| it.try_get(0))
            .collect::<Result<_, _>>()?;
        Ok(catalog)
    }

    /// The relations that may be read.
    pub(super) fn allowed_relations(&self) -> impl Iterator<Item = Oid> {
        let allowed = self.relations.iter().filter(|(_, it)| it.is_allowed);
        allowed.map(|(oid, _)| *oid)
    }

    /// The relation that may be read and is called so, with its schema or
    /// without.
    pub(super) fn find_relation(&self, table: &str) -> Option<Oid> {
        let mut found = self
            .relations
            .iter()
            .filter(|(_, it)| it.is_allowed && it.matches_name(table));
        found.next().map(|(oid, _)| *oid)
    }

    /// Whether a name can only mean a relation that may not be read. Names that
    /// also mean something else are left to the server to tell apart.
    pub(super) fn is_forbidden_relation(
        &self,
        name: &str,
        local: &HashSet<String>,
        hidden: &HashSet<String>,
    ) -> bool {
        let Some(oids) = self.by_name.get(name) else {
            return false;
        };
        let relations = || oids.iter().filter_map(|it| self.relations.get(it));
        if relations().any(|it| it.is_system) || hidden.contains(name) {
            return true;
        }
        let in_reach = |it: &Relation| it.schema != "information_schema";
        let other = self.columns.contains(name) || local.contains(name);
        relations().any(in_reach) && !other && !relations().any(|it| it.is_allowed)
    }

    fn add_relation(
        &mut self,
        row: &Row,
        settings: &SourceSettings,
    ) -> Result<(), tokio_postgres::Error> {
        let mut relation = Relation {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
            is_system: row.try_get("system")?,
            is_allowed: false,
            is_visible: row.try_get("visible")?,
        };
        let listed = &settings.relations;
        let wanted = if listed.is_empty() {
            row.try_get("own")?
        } else {
            listed.iter().any(|it| relation.matches_name(it))
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
        settings: &SourceSettings,
    ) -> Result<(), tokio_postgres::Error> {
        let name: String = row.try_get("name")?;
        let (builtin, pure): (bool, bool) = (row.try_get("builtin")?, row.try_get("pure")?);
        let foreign: bool = row.try_get("foreign")?;
        let calculates = !builtin || is_safe(&name, pure);
        let listed = settings.functions.contains(&name);
        if !listed && (foreign || !calculates) {
            self.forbidden_functions
                .insert(name, row.try_get("single")?);
        }
        Ok(())
    }
}

impl Relation {
    fn matches_name(&self, name: &str) -> bool {
        match name.split_once('.') {
            Some((schema, name)) => self.schema == schema && self.name == name,
            None => self.is_visible && self.name == name,
        }
    }
}

async fn query_names(
    client: &Client,
    sql: &str,
    of: &Vec<Oid>,
) -> Result<HashSet<String>, tokio_postgres::Error> {
    collect_names(&client.query(sql, &[of]).await?)
}

fn collect_names(rows: &[Row]) -> Result<HashSet<String>, tokio_postgres::Error> {
    rows.iter().map(|it| it.try_get(0)).collect()
}
