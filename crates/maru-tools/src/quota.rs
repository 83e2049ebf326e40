//! Limits on calls per day and per minute, for each user and for each tool. Days are
//! counted in the store, minutes in memory, or in leases where hubs share the store.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_config::ToolsetDefinition;
use maru_runtime::{clock, tasks::run_blocking};
use maru_sources::EnforcedLimit;
use maru_store::{CallLimitRow, Store};
use tokio::time::Instant;

use super::{call_leases::CallLeases, token_bucket::TokenBucket};

/// The limits in force. A call without a limit costs one look-up in a map.
#[derive(Debug)]
pub struct CallQuota {
    store: Store,
    limits: RwLock<HashMap<(QuotaTarget, String), QuotaLimit>>,
    /// Calls that are left in this minute.
    buckets: Mutex<HashMap<(QuotaTarget, String), TokenBucket>>,
    /// The same, taken from those of all hubs, where several share the store.
    leases: CallLeases,
    /// The limit per minute of users who have no limit set.
    default_per_minute: AtomicI64,
    /// The sample database, which shows the limits in force in a table.
    sample_file: OnceLock<PathBuf>,
}

/// The limits of one user or tool; an absent one is unlimited.
#[derive(Clone, Copy, Debug, Default)]
struct QuotaLimit {
    per_day: Option<i64>,
    per_minute: Option<i64>,
}

/// Stands for no limit.
const UNLIMITED: i64 = -1;

/// Users and tools whose calls in this minute are counted.
const MAX_BUCKETS: usize = 10_000;

/// The setting that records that the limits of the sample data were imported.
const SAMPLE_LIMITS_SETTING: &str = "sample_limits";

/// When a caller may try again after the store failed.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A call above the limit.
#[derive(Clone, Debug)]
pub struct QuotaExceeded {
    /// Which limit was reached, and when it resets.
    pub message: String,
    /// When to try again.
    pub retry_after_seconds: u64,
}

/// What a limit applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaTarget {
    /// All calls of one user.
    User,
    /// All calls to one tool.
    Tool,
    /// All calls through one toolset, whose definition has the limits.
    Toolset,
}

impl QuotaTarget {
    /// The target type of this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "USER" => Some(Self::User),
            "TOOL" => Some(Self::Tool),
            _ => None,
        }
    }

    /// Its name in the API and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "USER",
            Self::Tool => "TOOL",
            Self::Toolset => "TOOLSET",
        }
    }
}

impl CallQuota {
    /// Loads the limits; `default` is the limit per minute of users who have none set.
    pub async fn load(store: Store, default: Option<i64>) -> Result<Self, maru_store::Error> {
        let limits = load_limits(&store).await?;
        Ok(Self {
            limits: RwLock::new(limits),
            buckets: Mutex::default(),
            leases: CallLeases::default(),
            default_per_minute: AtomicI64::new(default.unwrap_or(UNLIMITED)),
            sample_file: OnceLock::new(),
            store,
        })
    }

    /// Loads the limits again, because another hub may have changed them.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let limits = load_limits(&self.store).await?;
        self.update_limits(|it| *it = limits);
        self.write_mirror().await;
        Ok(())
    }

    /// Keeps the table `h_mcp_tool_limit` of the sample data equal to the limits in force.
    /// The first time, the limits of the sample data are imported.
    pub async fn mirror_to_sample(&self, file: PathBuf) -> Result<(), maru_store::Error> {
        let adopted = self.store.hub_setting(SAMPLE_LIMITS_SETTING).await?;
        if adopted.is_none() {
            let path = file.clone();
            let read = run_blocking(move || maru_sources::sample_limits(&path)).await;
            for limit in read.and_then(Result::ok).unwrap_or_default() {
                let known = self.limit_of(QuotaTarget::User, &limit.target).per_day;
                if known.is_none() {
                    let per_day = Some(limit.max_count);
                    self.set_limit(QuotaTarget::User, &limit.target, per_day, None)
                        .await?;
                }
            }
            self.store
                .put_hub_setting(SAMPLE_LIMITS_SETTING, "adopted")
                .await?;
        }
        // Set once, when everything is built.
        let _ = self.sample_file.set(file);
        self.write_mirror().await;
        Ok(())
    }

    /// Writes the limits in force to the sample data. A failure is logged; the limits hold.
    async fn write_mirror(&self) {
        let Some(file) = self.sample_file.get().cloned() else {
            return;
        };
        let limits: Vec<EnforcedLimit> = {
            let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
            let daily = limits.iter().filter_map(|((target, id), limit)| {
                Some(EnforcedLimit {
                    target_type: target.as_str().to_owned(),
                    target: id.clone(),
                    max_count: limit.per_day?,
                })
            });
            daily.collect()
        };
        let written = run_blocking(move || maru_sources::write_limits(&file, &limits)).await;
        if let Some(Err(error)) = written {
            tracing::warn!("the sample data does not show the limits in force: {error}");
        }
    }

    /// Sets the limit per minute of users who have no limit set.
    pub fn set_default_per_minute(&self, default: Option<i64>) {
        self.default_per_minute
            .store(default.unwrap_or(UNLIMITED), Relaxed);
    }

    /// Every limit, with the calls of today.
    pub async fn list(&self) -> Result<Vec<CallLimitRow>, maru_store::Error> {
        self.store.call_limits(today()).await
    }

    /// Sets the limits per day and per minute; an absent one stays as it is.
    pub async fn set_limit(
        &self,
        target: QuotaTarget,
        id: &str,
        per_day: Option<i64>,
        per_minute: Option<i64>,
    ) -> Result<(), maru_store::Error> {
        self.store
            .put_limits(target.as_str(), id, per_day, per_minute)
            .await?;
        self.update_limits(|limits| {
            let limit = limits.entry((target, id.to_owned())).or_default();
            limit.per_day = per_day.or(limit.per_day);
            limit.per_minute = per_minute.or(limit.per_minute);
        });
        self.write_mirror().await;
        Ok(())
    }

    /// Removes a limit; returns whether it existed.
    pub async fn remove_limit(
        &self,
        target: QuotaTarget,
        id: &str,
    ) -> Result<bool, maru_store::Error> {
        let removed = self.store.delete_limits(target.as_str(), id).await?;
        self.update_limits(|limits| limits.remove(&(target, id.to_owned())));
        self.write_mirror().await;
        Ok(removed)
    }

    /// Counts a call, or refuses it. A call is also refused if the store cannot count it,
    /// because the limit could not be enforced.
    pub(super) async fn count_call(&self, user: &str, tool: &str) -> Result<(), QuotaExceeded> {
        self.count_targets([(QuotaTarget::User, user), (QuotaTarget::Tool, tool)])
            .await
    }

    /// Counts a call through a toolset, or refuses it by the limits of its definition.
    pub(super) async fn count_toolset_call(
        &self,
        toolset: &ToolsetDefinition,
    ) -> Result<(), QuotaExceeded> {
        let (target, name) = (QuotaTarget::Toolset, toolset.name.as_str());
        if let Some(max_calls) = toolset.calls_per_minute {
            self.count_in_minute(target, name, max_calls.into()).await?;
        }
        if let Some(max_calls) = toolset.calls_per_day {
            // Boxed, as for other calls with a limit per day.
            Box::pin(self.count_in_day(target, name, max_calls.into())).await?;
        }
        Ok(())
    }

    /// Counts a request to a model as a call of its user.
    pub async fn count_request(&self, user: &str) -> Result<(), QuotaExceeded> {
        self.count_targets([(QuotaTarget::User, user)]).await
    }

    async fn count_targets<const N: usize>(
        &self,
        targets: [(QuotaTarget, &str); N],
    ) -> Result<(), QuotaExceeded> {
        let limits = targets.map(|(target, id)| self.limit_of(target, id));
        // The minute first, because a call that it refuses does not count for the day.
        for ((target, id), limit) in targets.into_iter().zip(limits) {
            if let Some(max_calls) = limit.per_minute {
                self.count_in_minute(target, id, max_calls).await?;
            }
        }
        for ((target, id), limit) in targets.into_iter().zip(limits) {
            if let Some(max_calls) = limit.per_day {
                // Boxed, because few calls have a limit per day and it would make the future
                // of every call larger.
                Box::pin(self.count_in_day(target, id, max_calls)).await?;
            }
        }
        Ok(())
    }

    async fn count_in_minute(
        &self,
        target: QuotaTarget,
        id: &str,
        max_calls: i64,
    ) -> Result<(), QuotaExceeded> {
        let shared = if self.store.is_shared() && max_calls > 0 {
            // Boxed, because it would make the future of every call larger.
            Box::pin(
                self.leases
                    .take(&self.store, (target, id.to_owned()), max_calls),
            )
            .await
        } else {
            None
        };
        match shared {
            Some(taken) => taken.map_err(|wait| minute_limit_exceeded(target, id, max_calls, wait)),
            // Without the store each hub counts alone.
            None => self.take_from_bucket(target, id, max_calls),
        }
    }

    fn take_from_bucket(
        &self,
        target: QuotaTarget,
        id: &str,
        max_calls: i64,
    ) -> Result<(), QuotaExceeded> {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_BUCKETS {
            buckets.retain(|_, it| !it.is_full(max_calls, now));
        }
        let bucket = buckets.entry((target, id.to_owned()));
        let bucket = bucket.or_insert_with(|| TokenBucket::new(max_calls, now));
        bucket
            .try_take(max_calls, now)
            .map_err(|wait| minute_limit_exceeded(target, id, max_calls, wait))
    }

    async fn count_in_day(
        &self,
        target: QuotaTarget,
        id: &str,
        max_calls: i64,
    ) -> Result<(), QuotaExceeded> {
        let counted = match max_calls {
            0 => Ok(false),
            max_calls => {
                let kind = target.as_str();
                self.store.count_call(kind, id, today(), max_calls).await
            }
        };
        match counted {
            Ok(true) => Ok(()),
            Ok(false) => Err(day_limit_exceeded(target, id, max_calls)),
            Err(error) => {
                tracing::error!("a call is refused because it cannot be counted: {error}");
                let message =
                    "the call cannot be counted against its daily limit now; try again later";
                Err(QuotaExceeded {
                    message: message.to_owned(),
                    retry_after_seconds: round_up_to_seconds(STORE_RETRY_DELAY),
                })
            }
        }
    }

    fn limit_of(&self, target: QuotaTarget, id: &str) -> QuotaLimit {
        let limits = self.limits.read().unwrap_or_else(PoisonError::into_inner);
        // Most hubs have no limits; then no key is allocated.
        let mut limit = if limits.is_empty() {
            QuotaLimit::default()
        } else {
            limits
                .get(&(target, id.to_owned()))
                .copied()
                .unwrap_or_default()
        };
        if target == QuotaTarget::User {
            let default = self.default_per_minute.load(Relaxed);
            limit.per_minute = limit
                .per_minute
                .or((default != UNLIMITED).then_some(default));
        }
        limit
    }

    fn update_limits<T>(
        &self,
        edit: impl FnOnce(&mut HashMap<(QuotaTarget, String), QuotaLimit>) -> T,
    ) {
        edit(&mut self.limits.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Days are UTC.
async fn load_limits(
    store: &Store,
) -> Result<HashMap<(QuotaTarget, String), QuotaLimit>, maru_store::Error> {
    let rows = store.call_limits(today()).await?;
    let limits = rows.into_iter().filter_map(|row| {
        let target = QuotaTarget::parse(&row.target_type)?;
        let limit = QuotaLimit {
            per_day: row.max_count,
            per_minute: row.max_per_minute,
        };
        Some(((target, row.target_id), limit))
    });
    Ok(limits.collect())
}

fn today() -> i64 {
    clock::now_ms().div_euclid(clock::DAY_MS)
}

fn minute_limit_exceeded(
    target: QuotaTarget,
    id: &str,
    max_calls: i64,
    wait: Duration,
) -> QuotaExceeded {
    let what = match target {
        QuotaTarget::User => format!("the user {id} may make"),
        QuotaTarget::Tool => format!("the tool {id} takes"),
        QuotaTarget::Toolset => format!("the toolset {id} takes"),
    };
    let seconds = round_up_to_seconds(wait);
    let reset =
        clock::now_ms().saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX / 2000) * 1000);
    let message = match max_calls {
        0 => format!("{what} no calls"),
        max_calls => format!(
            "{what} {max_calls} calls a minute; try again in {seconds} s, at {}",
            clock::format_rfc3339(reset)
        ),
    };
    QuotaExceeded {
        message,
        retry_after_seconds: seconds,
    }
}

/// Whole seconds that are at least as long as `wait`.
fn round_up_to_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(1)
}

fn day_limit_exceeded(target: QuotaTarget, id: &str, max_calls: i64) -> QuotaExceeded {
    let now = clock::now_ms();
    let reset = (now.div_euclid(clock::DAY_MS) + 1) * clock::DAY_MS;
    let minutes = (reset - now) / 60_000;
    let who = match target {
        QuotaTarget::User => format!("the user {id} has made"),
        QuotaTarget::Tool => format!("the tool {id} has had"),
        QuotaTarget::Toolset => format!("the toolset {id} has had"),
    };
    let message = format!(
        "{who} the {max_calls} calls of today; the limit resets at {} (in {} h {} min)",
        clock::format_rfc3339(reset),
        minutes / 60,
        minutes % 60
    );
    let seconds = round_up_to_seconds(Duration::from_millis((reset - now).unsigned_abs()));
    QuotaExceeded {
        message,
        retry_after_seconds: seconds,
    }
}
