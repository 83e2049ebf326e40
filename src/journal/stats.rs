//! Calls, errors and times of every minute of the last hour.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ahash::AHashMap;

use super::Record;

/// How many minutes are kept.
const MINUTES: u64 = 60;
/// How many tools are counted one by one; calls of others count for their server.
const MAX_TOOLS: usize = 500;
const MAX_SERVERS: usize = 1000;
/// Four steps to each doubling, from one microsecond to a minute and more.
const STEPS: usize = 4 * 28;

/// Counts by tool and by server.
#[derive(Debug, Default)]
pub struct Stats {
    /// By the name that everyone sees.
    pub tools: AHashMap<Arc<str>, Series>,
    /// By name.
    pub servers: AHashMap<Arc<str>, Series>,
}

/// One tool, or one server.
#[derive(Debug, Default)]
pub struct Series {
    /// The server it belongs to.
    pub server: Arc<str>,
    /// Minutes with calls, oldest first.
    minutes: VecDeque<Minute>,
    /// Calls since the hub started.
    pub total: u64,
}

/// What happened in one minute, or in several.
#[derive(Clone, Debug)]
pub struct Minute {
    /// Minutes since 1970.
    pub minute: u64,
    /// How many calls ended.
    pub calls: u32,
    /// How many of them failed.
    pub errors: u32,
    times: Box<[u32; STEPS]>,
}

/// Several minutes as one.
pub type Summary = Minute;

impl Stats {
    pub(super) fn count(&mut self, record: &Record) {
        let minute = record.at / 60_000;
        let asked = &record.asked;
        // Names that nobody offers would take the place of those that someone does.
        let tool = match asked.server.is_empty() {
            true => None,
            false => entry(&mut self.tools, &asked.tool, MAX_TOOLS, &asked.server),
        };
        let server = entry(&mut self.servers, &asked.server, MAX_SERVERS, &asked.server);
        for series in tool.into_iter().chain(server) {
            series.total += 1;
            series.at(minute).count(record);
        }
    }
}

fn entry<'a>(
    all: &'a mut AHashMap<Arc<str>, Series>,
    key: &Arc<str>,
    max: usize,
    server: &Arc<str>,
) -> Option<&'a mut Series> {
    if !all.contains_key(key) {
        if all.len() >= max {
            return None;
        }
        let server = Arc::clone(server);
        let series = Series {
            server,
            ..Series::default()
        };
        all.insert(Arc::clone(key), series);
    }
    all.get_mut(key)
}

impl Series {
    /// The minutes after `from`, oldest first, without those in which nothing happened.
    pub fn after(&self, from: u64) -> impl Iterator<Item = &Minute> {
        self.minutes.iter().filter(move |it| it.minute > from)
    }

    /// All minutes after `from` as one.
    pub fn summary(&self, from: u64) -> Summary {
        let mut all = Minute::empty(from);
        self.after(from).for_each(|it| all.add(it));
        all
    }

    fn at(&mut self, minute: u64) -> &mut Minute {
        if self.minutes.back().is_none_or(|it| it.minute < minute) {
            self.minutes.push_back(Minute::empty(minute));
        }
        while self.minutes[0].minute + MINUTES <= minute {
            self.minutes.pop_front();
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }
}

impl Minute {
    /// A minute in which nothing happened.
    pub fn empty(minute: u64) -> Self {
        Self {
            minute,
            calls: 0,
            errors: 0,
            times: Box::new([0; STEPS]),
        }
    }

    fn count(&mut self, record: &Record) {
        self.calls += 1;
        self.errors += u32::from(record.outcome.is_error());
        self.times[step(record.took)] += 1;
    }

    /// Adds what happened in another.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        for (sum, more) in self.times.iter_mut().zip(&*other.times) {
            *sum += more;
        }
    }

    /// The time within which `share` of the calls ended, in milliseconds; within
    /// a tenth of what it was.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * f64::from(self.calls);
        let mut below = 0.0;
        for (at, count) in self.times.iter().enumerate().filter(|it| *it.1 > 0) {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (low, high) = (bound(at), bound(at + 1));
                let part = ((wanted - below) / count).clamp(0.0, 1.0);
                return Some((low + (high - low) * part) / 1000.0);
            }
            below += count;
        }
        None
    }
}

/// The step that a time belongs to.
fn step(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(4);
    let octave = micros.ilog2() as usize;
    let quarter = (micros >> (octave - 2)) as usize & 3;
    (octave * 4 + quarter).min(STEPS - 1)
}

/// Where a step begins, in microseconds.
fn bound(step: usize) -> f64 {
    let octave = i32::try_from(step / 4).unwrap_or(i32::MAX);
    2_f64.powi(octave) * (1.0 + (step % 4) as f64 / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Asked, Outcome};

    fn record(at: u64, millis: u64, outcome: Outcome) -> Record {
        Record {
            id: 0,
            at,
            asked: Asked {
                tool: "t".into(),
                server: "s".into(),
                principal: "p".into(),
                client: None,
                from: None,
                request: crate::journal::RequestId::next(),
                arguments: "{}".into(),
            },
            outcome,
            took: Duration::from_millis(millis),
            waited: Duration::ZERO,
            sent: 2,
            received: 0,
            result: "".into(),
        }
    }

    #[test]
    fn times_are_told_within_a_tenth() {
        let mut stats = Stats::default();
        for millis in 1..=100 {
            stats.count(&record(60_000, millis, Outcome::Ok));
        }
        let all = stats.tools["t"].summary(0);
        for (share, expected) in [(0.5, 50.0), (0.95, 95.0)] {
            let found = all.quantile(share).unwrap();
            assert!((found / expected - 1.0_f64).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn an_hour_is_kept_and_a_cancelled_call_is_no_error() {
        let mut stats = Stats::default();
        for minute in 0..200 {
            stats.count(&record(minute * 60_000, 1, Outcome::Failed));
            stats.count(&record(minute * 60_000, 1, Outcome::Cancelled));
        }
        let series = &stats.servers["s"];
        assert_eq!(series.after(0).count(), 60);
        let last = series.summary(198);
        assert_eq!((last.calls, last.errors, series.total), (2, 1, 400));
    }

    #[test]
    fn no_number_of_tools_takes_more_than_its_share() {
        let mut stats = Stats::default();
        for at in 0..2 * MAX_TOOLS {
            let mut one = record(60_000, 1, Outcome::Ok);
            one.asked.tool = format!("t{at}").into();
            stats.count(&one);
        }
        assert_eq!(stats.tools.len(), MAX_TOOLS);
        assert_eq!(stats.servers["s"].total, 2 * MAX_TOOLS as u64);
    }
}
