//! Sums the calls of a batch for the usage table.

use std::time::Duration;

use ahash::AHashMap;
use maru_store::{AuditRow, CallUsageRow};

use crate::journal::{CallRecord, latency_bucket};

/// The minutes of a slot of recent usage.
pub const USAGE_SLOT_MINUTES: i64 = 5;

/// The calls by slot, tool, caller and bucket of the duration.
pub(super) fn sum_usage<'a>(calls: impl Iterator<Item = &'a CallRecord>) -> Vec<CallUsageRow> {
    let mut sums: AHashMap<(i64, &str, &str, &str, i64), CallUsageRow> = AHashMap::new();
    for record in calls {
        let request = &record.request;
        // Callers can make up any number of names of unknown tools.
        let tool = if request.server.is_empty() {
            ""
        } else {
            &*request.tool
        };
        let minute = i64::try_from(record.ended_at / 60_000).unwrap_or(0);
        let slot = minute - minute % USAGE_SLOT_MINUTES;
        let bucket = i64::try_from(latency_bucket(record.duration)).unwrap_or(0);
        let key = (slot, tool, &*request.server, &*request.principal, bucket);
        let sum = sums.entry(key).or_insert_with(|| CallUsageRow {
            slot,
            tool: super::truncate_name(tool),
            server: super::truncate_name(&request.server),
            caller: super::truncate_name(&request.principal),
            bucket,
            ..CallUsageRow::default()
        });
        sum.calls += 1;
        sum.failures += i64::from(record.outcome.is_error());
        sum.micros += i64::try_from(record.duration.as_micros()).unwrap_or(0);
    }
    sums.into_values().collect()
}

/// A call of the audit log as usage of `span` minutes.
pub fn usage_of(row: &AuditRow, span: i64) -> CallUsageRow {
    let call = row.call.as_ref();
    let server = call.map_or("", |it| &it.server);
    let duration = Duration::from_micros(u64::try_from(row.took_micros).unwrap_or(0));
    let minute = row.at / 60_000;
    CallUsageRow {
        slot: minute - minute % span,
        tool: if server.is_empty() { "" } else { &row.target }.to_owned(),
        server: server.to_owned(),
        caller: row.principal.clone(),
        bucket: i64::try_from(latency_bucket(duration)).unwrap_or(0),
        calls: 1,
        failures: call.is_some_and(|it| it.failed).into(),
        micros: row.took_micros,
    }
}
