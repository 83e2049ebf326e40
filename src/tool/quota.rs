//! How often a day tools may be called: for each user, and for each tool.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use crate::{
    clock,
    store::{self, LimitRow, Store},
};

/// The limits in force. A call that none applies to costs a look at a map.
#[derive(Debug)]
pub struct Quota {
    store: Store,
    limits: RwLock<HashMap<(Target, String), i64>>,
}

/// Whose calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A principal's, to all tools.
    User,
    /// Everyone's, to one tool.
    Tool,
}

impl Target {
    /// The target type of this name.
    pub fn read(name: &str) -> Option<Self> {
        match name {
            "USER" => Some(Self::User),
            "TOOL" => Some(Self::Tool),
            _ => None,
        }
    }

    /// Its name in the API and the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "USER",
            Self::Tool => "TOOL",
        }
    }
}

impl Quota {
    /// Reads the limits.
    pub async fn load(store: Store) -> Result<Self, store::Error> {
        let rows = store.limits(today()).await?;
        let limits = rows.into_iter().filter_map(|row| {
            let target = Target::read(&row.target_type)?;
            Some(((target, row.target_id), row.max_count))
        });
        Ok(Self {
            limits: RwLock::new(limits.collect()),
            store,
        })
    }

    /// Every limit, with what was used of it today.
    pub async fn list(&self) -> Result<Vec<LimitRow>, store::Error> {
        self.store.limits(today()).await
    }

    /// Sets a limit.
    pub async fn set(&self, target: Target, id: &str, most: i64) -> Result<(), store::Error> {
        self.store.put_limit(target.name(), id, most).await?;
        self.change(|limits| limits.insert((target, id.to_owned()), most));
        Ok(())
    }

    /// Removes a limit; false if there is none.
    pub async fn remove(&self, target: Target, id: &str) -> Result<bool, store::Error> {
        let removed = self.store.remove_limit(target.name(), id).await?;
        self.change(|limits| limits.remove(&(target, id.to_owned())));
        Ok(removed)
    }

    /// Counts a call, or says why it is one too many. A count that cannot be
    /// written refuses too: nobody would know it had been made.
    pub(super) async fn count(&self, user: &str, tool: &str) -> Result<(), String> {
        for (target, id) in [(Target::User, user), (Target::Tool, tool)] {
            if let Some(most) = self.most(target, id) {
                self.count_one(target, id, most).await?;
            }
        }
        Ok(())
    }

    async fn count_one(&self, target: Target, id: &str, most: i64) -> Result<(), String> {
        let counted = match most {
            0 => Ok(false),
            most => {
                let kind = target.name();
                self.store.count_use(kind, id, today(), most).await
            }
        };
        match counted {
            Ok(true) => Ok(()),
            Ok(false) => Err(used_up(target, id, most)),
            Err(error) => {
                tracing::error!("a call is refused because it cannot be counted: {error}");
                Err(
                    "the call cannot be counted against its daily limit now; try again later"
                        .to_owned(),
                )
            }
        }
    }

    fn most(&self, target: Target, id: &str) -> Option<i64> {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        // The usual case makes no key.
        if limits.is_empty() {
            return None;
        }
        limits.get(&(target, id.to_owned())).copied()
    }

    fn change<T>(&self, edit: impl FnOnce(&mut HashMap<(Target, String), i64>) -> T) {
        edit(&mut self.limits.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Days are UTC.
fn today() -> i64 {
    clock::now().div_euclid(clock::DAY)
}

fn used_up(target: Target, id: &str, most: i64) -> String {
    let now = clock::now();
    let reset = (now.div_euclid(clock::DAY) + 1) * clock::DAY;
    let minutes = (reset - now) / 60_000;
    let who = match target {
        Target::User => format!("the user {id} has made"),
        Target::Tool => format!("the tool {id} has had"),
    };
    format!(
        "{who} the {most} calls of today; the limit resets at {} (in {} h {} min)",
        clock::text(reset),
        minutes / 60,
        minutes % 60
    )
}
