//! How often a day and how often a minute tools may be called: for each user,
//! and for each tool. Days are counted in the store, minutes in memory.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::rate::Bucket;
use crate::{
    clock,
    store::{self, LimitRow, Store},
};

/// The limits in force. A call that none applies to costs a look at a map.
#[derive(Debug)]
pub struct Quota {
    store: Store,
    limits: RwLock<HashMap<(Target, String), Limit>>,
    /// What is left of this minute.
    buckets: Mutex<HashMap<(Target, String), Bucket>>,
    /// Calls a minute of users without a limit of their own.
    usual: AtomicI64,
}

/// How often; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    day: Option<i64>,
    minute: Option<i64>,
}

/// No limit; those there are begin with 1.
const NONE: i64 = -1;

/// Callers and tools whose minute is remembered.
const REMEMBERED: usize = 10_000;

/// When a count that could not be written may be tried again.
const SOON: Duration = Duration::from_secs(5);

/// One call more than are allowed.
#[derive(Clone, Debug)]
pub struct TooMany {
    /// What is used up, and when there is more.
    pub why: String,
    /// How long that takes.
    pub seconds: u64,
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
    pub async fn load(store: Store, usual: Option<i64>) -> Result<Self, store::Error> {
        let rows = store.limits(today()).await?;
        let limits = rows.into_iter().filter_map(|row| {
            let target = Target::read(&row.target_type)?;
            let limit = Limit {
                day: row.max_count,
                minute: row.max_per_minute,
            };
            Some(((target, row.target_id), limit))
        });
        Ok(Self {
            limits: RwLock::new(limits.collect()),
            buckets: Mutex::default(),
            usual: AtomicI64::new(usual.unwrap_or(NONE)),
            store,
        })
    }

    /// Changes how often a minute whoever has no limit of their own may call.
    pub fn set_usual(&self, usual: Option<i64>) {
        self.usual.store(usual.unwrap_or(NONE), Relaxed);
    }

    /// Every limit, with what was used of it today.
    pub async fn list(&self) -> Result<Vec<LimitRow>, store::Error> {
        self.store.limits(today()).await
    }

    /// Sets how often a day, and how often a minute; what is absent stays.
    pub async fn set(
        &self,
        target: Target,
        id: &str,
        (day, minute): (Option<i64>, Option<i64>),
    ) -> Result<(), store::Error> {
        self.store
            .put_limits((target.name(), id), day, minute)
            .await?;
        self.change(|limits| {
            let limit = limits.entry((target, id.to_owned())).or_default();
            limit.day = day.or(limit.day);
            limit.minute = minute.or(limit.minute);
        });
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
    pub(super) async fn count(&self, user: &str, tool: &str) -> Result<(), TooMany> {
        self.count_all([(Target::User, user), (Target::Tool, tool)])
            .await
    }

    /// Counts a request to a model: it is one of its user's.
    pub async fn count_request(&self, user: &str) -> Result<(), TooMany> {
        self.count_all([(Target::User, user)]).await
    }

    async fn count_all<const N: usize>(&self, targets: [(Target, &str); N]) -> Result<(), TooMany> {
        let limits = targets.map(|(target, id)| self.most(target, id));
        // The minute first: what it refuses does not count for the day.
        for ((target, id), limit) in targets.into_iter().zip(limits) {
            if let Some(most) = limit.minute {
                self.pace(target, id, most)?;
            }
        }
        for ((target, id), limit) in targets.into_iter().zip(limits) {
            if let Some(most) = limit.day {
                // On its own: few are counted, and it would make every call larger.
                Box::pin(self.count_one(target, id, most)).await?;
            }
        }
        Ok(())
    }

    fn pace(&self, target: Target, id: &str, most: i64) -> Result<(), TooMany> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED {
            buckets.retain(|_, it| !it.is_full(most, now));
        }
        let bucket = buckets.entry((target, id.to_owned()));
        let bucket = bucket.or_insert_with(|| Bucket::new(most, now));
        bucket
            .take(most, now)
            .map_err(|wait| too_fast(target, id, most, wait))
    }

    async fn count_one(&self, target: Target, id: &str, most: i64) -> Result<(), TooMany> {
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
                let why = "the call cannot be counted against its daily limit now; try again later";
                Err(TooMany {
                    why: why.to_owned(),
                    seconds: whole(SOON),
                })
            }
        }
    }

    fn most(&self, target: Target, id: &str) -> Limit {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        // The usual case makes no key.
        let mut limit = match limits.is_empty() {
            true => Limit::default(),
            false => limits
                .get(&(target, id.to_owned()))
                .copied()
                .unwrap_or_default(),
        };
        if target == Target::User {
            let usual = self.usual.load(Relaxed);
            limit.minute = limit.minute.or((usual != NONE).then_some(usual));
        }
        limit
    }

    fn change<T>(&self, edit: impl FnOnce(&mut HashMap<(Target, String), Limit>) -> T) {
        edit(&mut self.limits.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Days are UTC.
fn today() -> i64 {
    clock::now().div_euclid(clock::DAY)
}

fn too_fast(target: Target, id: &str, most: i64, wait: Duration) -> TooMany {
    let what = match target {
        Target::User => format!("the user {id} may make"),
        Target::Tool => format!("the tool {id} takes"),
    };
    let seconds = whole(wait);
    let reset =
        clock::now().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX / 2000) * 1000);
    let why = match most {
        0 => format!("{what} no calls"),
        most => format!(
            "{what} {most} calls a minute; try again in {seconds} s, at {}",
            clock::text(reset)
        ),
    };
    TooMany { why, seconds }
}

/// Enough whole seconds.
fn whole(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(1)
}

fn used_up(target: Target, id: &str, most: i64) -> TooMany {
    let now = clock::now();
    let reset = (now.div_euclid(clock::DAY) + 1) * clock::DAY;
    let minutes = (reset - now) / 60_000;
    let who = match target {
        Target::User => format!("the user {id} has made"),
        Target::Tool => format!("the tool {id} has had"),
    };
    let why = format!(
        "{who} the {most} calls of today; the limit resets at {} (in {} h {} min)",
        clock::text(reset),
        minutes / 60,
        minutes % 60
    );
    let seconds = whole(Duration::from_millis((reset - now).unsigned_abs()));
    TooMany { why, seconds }
}
