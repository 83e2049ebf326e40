//! The tools that people made: kept in the store, offered in the catalog.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use super::{Definition, Flaw, Unchanged, result::Done, runner::Runner};
use crate::{
    clock,
    journal::RequestId,
    source::Source,
    store::{CustomToolRow, CustomVersionRow, Store},
    tasks::Tasks,
    tool::{
        catalog::Catalog,
        offer::{Input, OWN_SERVER, Offer},
    },
};

/// Makes, changes and offers tools. One change is made at a time.
#[derive(Debug)]
pub struct Workshop {
    store: Store,
    catalog: Arc<Catalog>,
    sources: Arc<[Source]>,
    tasks: Tasks,
    /// What maru offers by itself.
    built_in: Vec<Arc<Offer>>,
    made: Mutex<BTreeMap<String, Made>>,
}

/// A tool that someone made.
#[derive(Clone, Debug)]
pub struct Made {
    /// What it is.
    pub definition: Definition,
    /// Counts the saves.
    pub version: i64,
    /// When it was made.
    pub reg_dt: String,
    /// When it was saved last.
    pub upd_dt: String,
    /// Who made it.
    pub created_by: String,
    /// Why it cannot run now.
    pub fault: Option<String>,
    offer: Arc<Offer>,
}

/// A saved state of a tool.
#[derive(Clone, Debug)]
pub struct Saved {
    /// Its number.
    pub version: i64,
    /// The tool as the API has it.
    pub tool: Value,
    /// Who saved it.
    pub saved_by: String,
    /// When.
    pub saved_dt: String,
}

/// The most tools.
const MOST: usize = 5000;
/// Words that stand in addresses where a name could.
const RESERVED: &[&str] = &["test", "export", "import", "find_tools", "ask_agent"];

impl Workshop {
    /// Offers what is stored beside `built_in`.
    pub async fn open(
        store: Store,
        catalog: Arc<Catalog>,
        built_in: Vec<Arc<Offer>>,
        sources: Arc<[Source]>,
        tasks: Tasks,
    ) -> Result<Self, Unchanged> {
        let rows = store.custom_tools().await?;
        let workshop = Self {
            store,
            catalog,
            sources,
            tasks,
            built_in,
            made: Mutex::default(),
        };
        let loaded = rows.iter().filter_map(|row| workshop.load(row)).collect();
        *workshop.made.lock().await = loaded;
        workshop.publish(&*workshop.made.lock().await);
        Ok(workshop)
    }

    /// Every tool, by name.
    pub async fn list(&self) -> Vec<Made> {
        self.made.lock().await.values().cloned().collect()
    }

    /// One tool.
    pub async fn get(&self, name: &str) -> Result<Made, Unchanged> {
        let made = self.made.lock().await;
        made.get(name).cloned().ok_or_else(|| unknown(name))
    }

    /// Makes a tool.
    pub async fn create(&self, json: &Value, by: &str) -> Result<Made, Unchanged> {
        let definition = Definition::read(json)?;
        let mut made = self.made.lock().await;
        let name = definition.name.clone();
        if made.contains_key(&name) || self.is_built_in(&name) {
            return Err(Unchanged::Taken(name));
        }
        if made.len() >= MOST {
            return Err(Unchanged::Full(MOST));
        }
        self.save(&mut made, definition, by).await
    }

    /// Changes a tool; what `json` does not name stays as it is.
    pub async fn update(&self, name: &str, json: &Value, by: &str) -> Result<Made, Unchanged> {
        let mut made = self.made.lock().await;
        let now = made.get(name).ok_or_else(|| unknown(name))?;
        let definition = Definition::read(&merged(&now.definition, json))?;
        if definition.name != name {
            let why = "the name stays; make a new tool and remove this one";
            return Err(Flaw::of("name", why).into());
        }
        self.save(&mut made, definition, by).await
    }

    /// Brings back what was saved, also of a tool that is gone.
    pub async fn restore(&self, name: &str, version: i64, by: &str) -> Result<Made, Unchanged> {
        let saved = self.versions(name).await?;
        let saved = saved.into_iter().find(|it| it.version == version);
        let saved = saved.ok_or_else(|| Unchanged::NoVersion(name.to_owned(), version))?;
        let definition = Definition::read(&saved.tool)?;
        let mut made = self.made.lock().await;
        self.save(&mut made, definition, by).await
    }

    /// Switches a tool on or off. That is no new version.
    pub async fn set_active(&self, name: &str, active: bool) -> Result<Made, Unchanged> {
        let mut made = self.made.lock().await;
        if !made.contains_key(name) {
            return Err(unknown(name));
        }
        self.store.switch_custom_tool(name, active).await?;
        let tool = made.get_mut(name).ok_or_else(|| unknown(name))?;
        tool.definition.is_active = active;
        let tool = tool.clone();
        self.publish(&made);
        Ok(tool)
    }

    /// Removes a tool; what was saved of it stays.
    pub async fn remove(&self, name: &str) -> Result<(), Unchanged> {
        let mut made = self.made.lock().await;
        if !made.contains_key(name) {
            return Err(unknown(name));
        }
        self.store.remove_custom_tool(name).await?;
        made.remove(name);
        self.publish(&made);
        Ok(())
    }

    /// What was saved under this name, newest first.
    pub async fn versions(&self, name: &str) -> Result<Vec<Saved>, Unchanged> {
        let rows = self.store.custom_tool_versions(name).await?;
        if rows.is_empty() {
            self.get(name).await?;
        }
        let saved = rows.into_iter().map(|row| Saved {
            version: row.version,
            tool: serde_json::from_str(&row.tool).unwrap_or_default(),
            saved_by: row.saved_by,
            saved_dt: row.saved_dt,
        });
        Ok(saved.collect())
    }

    /// Runs a definition that need not be saved; also says how many milliseconds
    /// that took.
    pub async fn test(&self, json: &Value, arguments: &Value) -> Result<(Done, f64), Flaw> {
        let definition = Definition::read(json)?;
        let runner = Arc::new(Runner::compile(definition, &self.sources).await?);
        let offer = runner.offer(&self.tasks);
        let input = Input::from(arguments.clone());
        offer
            .check(&input)
            .map_err(|why| Flaw::of("arguments", format!("wrong arguments: {why}")))?;
        let started = Instant::now();
        let done = runner.run(&input, RequestId::next(), &self.tasks).await?;
        Ok((done, started.elapsed().as_secs_f64() * 1000.0))
    }

    async fn save(
        &self,
        made: &mut BTreeMap<String, Made>,
        definition: Definition,
        by: &str,
    ) -> Result<Made, Unchanged> {
        if RESERVED.contains(&definition.name.as_str()) {
            let why = format!("the name {} is reserved", definition.name);
            return Err(Flaw::of("name", why).into());
        }
        let runner = Runner::compile(definition.clone(), &self.sources).await?;
        runner.check_used()?;
        let saved = self.store.custom_tool_versions(&definition.name).await?;
        let version = saved.first().map_or(0, |it| it.version) + 1;
        let now = clock::text(clock::now());
        let before = made.get(&definition.name);
        let tool = Made {
            version,
            reg_dt: before.map_or_else(|| now.clone(), |it| it.reg_dt.clone()),
            upd_dt: now,
            created_by: before.map_or_else(|| by.to_owned(), |it| it.created_by.clone()),
            fault: None,
            offer: Arc::new(runner).offer(&self.tasks),
            definition,
        };
        self.write(&tool, by).await?;
        made.insert(tool.definition.name.clone(), tool.clone());
        self.publish(made);
        Ok(tool)
    }

    async fn write(&self, tool: &Made, by: &str) -> Result<(), Unchanged> {
        let row = CustomToolRow {
            reg_dt: tool.reg_dt.clone(),
            upd_dt: tool.upd_dt.clone(),
            created_by: tool.created_by.clone(),
            version: tool.version,
            ..tool.definition.row()
        };
        let saved = CustomVersionRow {
            version: tool.version,
            tool: tool.definition.shown().to_string(),
            saved_by: by.to_owned(),
            saved_dt: tool.upd_dt.clone(),
        };
        Ok(self.store.put_custom_tool(&row, &saved).await?)
    }

    fn load(&self, row: &CustomToolRow) -> Option<(String, Made)> {
        let definition = match Definition::of_row(row) {
            Ok(definition) => definition,
            Err(flaw) => {
                let (name, why) = (&row.name, flaw.message);
                warn!("the custom tool {name:?} is not used: {why}");
                return None;
            }
        };
        if self.is_built_in(&row.name) {
            warn!(
                "the custom tool {:?} is not used: maru has a tool of that name",
                row.name
            );
            return None;
        }
        let runner = Arc::new(Runner::load(definition.clone(), &self.sources));
        let tool = Made {
            version: row.version,
            reg_dt: row.reg_dt.clone(),
            upd_dt: row.upd_dt.clone(),
            created_by: row.created_by.clone(),
            fault: runner.flaw().map(|it| it.message.clone()),
            offer: runner.offer(&self.tasks),
            definition,
        };
        Some((row.name.clone(), tool))
    }

    fn is_built_in(&self, name: &str) -> bool {
        self.built_in.iter().any(|it| it.key() == name)
    }

    fn publish(&self, made: &BTreeMap<String, Made>) {
        let active = made.values().filter(|it| it.definition.is_active);
        let offers = self.built_in.iter().chain(active.map(|it| &it.offer));
        let offers: Vec<Arc<Offer>> = offers.cloned().collect();
        self.catalog.publish(OWN_SERVER, &offers);
    }
}

impl Made {
    /// As the API shows it.
    pub fn shown(&self) -> Value {
        let mut shown = self.definition.shown();
        shown["version"] = self.version.into();
        shown["reg_dt"] = self.reg_dt.as_str().into();
        shown["upd_dt"] = self.upd_dt.as_str().into();
        shown["created_by"] = self.created_by.as_str().into();
        shown["fault"] = json!(self.fault);
        shown
    }
}

fn merged(now: &Definition, json: &Value) -> Value {
    let mut all = now.shown();
    match json.as_object() {
        Some(given) => {
            for (name, value) in given {
                all[name] = value.clone();
            }
            all
        }
        None => json.clone(),
    }
}

fn unknown(name: &str) -> Unchanged {
    Unchanged::Unknown(name.chars().take(100).collect())
}
