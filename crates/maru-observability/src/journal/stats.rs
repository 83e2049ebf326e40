//! Calls, errors and latencies of every minute of the last hour.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ahash::AHashMap;

use super::CallRecord;

/// How many minutes are kept.
const MINUTES_KEPT: u64 = 60;
/// How many tools have their own series; calls to others count for their server only.
const MAX_TOOLS: usize = 500;
const MAX_SERVERS: usize = 1000;
/// Four buckets per power of two, from one microsecond to more than a minute.
const LATENCY_BUCKETS: usize = 4 * 28;

/// Counts by tool and by server.
#[derive(Debug, Default)]
pub struct CallStats {
    /// By public name.
    pub tools: AHashMap<Arc<str>, CallSeries>,
    /// By name.
    pub servers: AHashMap<Arc<str>, CallSeries>,
}

/// The counts of one tool or one server.
#[derive(Debug, Default)]
pub struct CallSeries {
    /// The server it belongs to.
    pub server: Arc<str>,
    /// Minutes with calls, oldest first.
    minutes: VecDeque<MinuteStats>,
    /// Calls since the hub started.
    pub total: u64,
}

/// The counts of one minute, or of several.
#[derive(Clone, Debug)]
pub struct MinuteStats {
    /// Minutes since 1970.
    pub minute: u64,
    /// How many calls ended.
    pub calls: u32,
    /// How many of them failed.
    pub errors: u32,
    latency_counts: Box<[u32; LATENCY_BUCKETS]>,
}

/// Several minutes as one.
pub type StatsSummary = MinuteStats;

impl CallStats {
    pub(super) fn count(&mut self, record: &CallRecord) {
        let minute = record.ended_at / 60_000;
        let request = &record.request;
        // Unknown tools have no series: made-up names would use up the limit.
        let tool = if request.server.is_empty() {
            None
        } else {
            series_mut(&mut self.tools, &request.tool, MAX_TOOLS, &request.server)
        };
        let server = series_mut(
            &mut self.servers,
            &request.server,
            MAX_SERVERS,
            &request.server,
        );
        for series in tool.into_iter().chain(server) {
            series.total += 1;
            series.minute_mut(minute).count(record);
        }
    }
}

fn series_mut<'a>(
    all: &'a mut AHashMap<Arc<str>, CallSeries>,
    key: &Arc<str>,
    max: usize,
    server: &Arc<str>,
) -> Option<&'a mut CallSeries> {
    if !all.contains_key(key) {
        if all.len() >= max {
            return None;
        }
        let server = Arc::clone(server);
        let series = CallSeries {
            server,
            ..CallSeries::default()
        };
        all.insert(Arc::clone(key), series);
    }
    all.get_mut(key)
}

impl CallSeries {
    /// The minutes after `from` that have calls, oldest first.
    pub fn minutes_after(&self, from: u64) -> impl Iterator<Item = &MinuteStats> {
        self.minutes.iter().filter(move |it| it.minute > from)
    }

    /// All minutes after `from` as one.
    pub fn summary(&self, from: u64) -> StatsSummary {
        let mut all = MinuteStats::empty(from);
        self.minutes_after(from).for_each(|it| all.add(it));
        all
    }

    fn minute_mut(&mut self, minute: u64) -> &mut MinuteStats {
        if self.minutes.back().is_none_or(|it| it.minute < minute) {
            self.minutes.push_back(MinuteStats::empty(minute));
        }
        while self.minutes[0].minute + MINUTES_KEPT <= minute {
            self.minutes.pop_front();
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }
}

impl MinuteStats {
    /// A minute without calls.
    pub fn empty(minute: u64) -> Self {
        Self {
            minute,
            calls: 0,
            errors: 0,
            latency_counts: Box::new([0; LATENCY_BUCKETS]),
        }
    }

    fn count(&mut self, record: &CallRecord) {
        self.calls += 1;
        self.errors += u32::from(record.outcome.is_error());
        self.latency_counts[latency_bucket(record.duration)] += 1;
    }

    /// Adds calls whose durations are in `bucket`.
    pub fn add_bucket(&mut self, bucket: i64, calls: u32, errors: u32) {
        let at = usize::try_from(bucket).unwrap_or(0);
        self.calls += calls;
        self.errors += errors;
        self.latency_counts[at.min(LATENCY_BUCKETS - 1)] += calls;
    }

    /// Adds the counts of another minute.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        for (sum, more) in self.latency_counts.iter_mut().zip(&*other.latency_counts) {
            *sum += more;
        }
    }

    /// The latency within which `share` of the calls ended, in milliseconds, to within 10 %.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * f64::from(self.calls);
        let mut below = 0.0;
        for (at, count) in self
            .latency_counts
            .iter()
            .enumerate()
            .filter(|it| *it.1 > 0)
        {
            let count = f64::from(*count);
            if below + count >= wanted {
                let (low, high) = (bucket_start_micros(at), bucket_start_micros(at + 1));
                let part = ((wanted - below) / count).clamp(0.0, 1.0);
                return Some((low + (high - low) * part) / 1000.0);
            }
            below += count;
        }
        None
    }
}

/// The bucket of a duration.
pub(crate) fn latency_bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(4);
    let octave = micros.ilog2() as usize;
    let quarter = (micros >> (octave - 2)) as usize & 3;
    (octave * 4 + quarter).min(LATENCY_BUCKETS - 1)
}

/// The lower bound of a bucket, in microseconds.
fn bucket_start_micros(bucket: usize) -> f64 {
    let octave = i32::try_from(bucket / 4).unwrap_or(i32::MAX);
    2_f64.powi(octave) * (1.0 + (bucket % 4) as f64 / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{CallRequest, ToolCallOutcome};

    fn record(at: u64, millis: u64, outcome: ToolCallOutcome) -> CallRecord {
        CallRecord {
            id: 0,
            ended_at: at,
            request: CallRequest {
                tool: "t".into(),
                server: "s".into(),
                principal: "p".into(),
                client: None,
                remote_ip: None,
                request_id: crate::journal::RequestId::next(),
                arguments: "{}".into(),
            },
            outcome,
            duration: Duration::from_millis(millis),
            server_duration: Duration::ZERO,
            argument_bytes: 2,
            result_bytes: 0,
            result: "".into(),
        }
    }

    #[test]
    fn quantiles_are_right_within_a_tenth() {
        let mut stats = CallStats::default();
        for millis in 1..=100 {
            stats.count(&record(60_000, millis, ToolCallOutcome::Ok));
        }
        let all = stats.tools["t"].summary(0);
        for (share, expected) in [(0.5, 50.0), (0.95, 95.0)] {
            let found = all.quantile(share).unwrap();
            assert!((found / expected - 1.0_f64).abs() < 0.1, "{share}: {found}");
        }
    }

    #[test]
    fn an_hour_is_kept_and_a_cancelled_call_is_no_error() {
        let mut stats = CallStats::default();
        for minute in 0..200 {
            stats.count(&record(minute * 60_000, 1, ToolCallOutcome::Failed));
            stats.count(&record(minute * 60_000, 1, ToolCallOutcome::Cancelled));
        }
        let series = &stats.servers["s"];
        assert_eq!(series.minutes_after(0).count(), 60);
        let last = series.summary(198);
        assert_eq!((last.calls, last.errors, series.total), (2, 1, 400));
    }

    #[test]
    fn number_of_series_is_bounded() {
        let mut stats = CallStats::default();
        for at in 0..2 * MAX_TOOLS {
            let mut one = record(60_000, 1, ToolCallOutcome::Ok);
            one.request.tool = format!("t{at}").into();
            stats.count(&one);
        }
        assert_eq!(stats.tools.len(), MAX_TOOLS);
        assert_eq!(stats.servers["s"].total, 2 * MAX_TOOLS as u64);
    }
}
