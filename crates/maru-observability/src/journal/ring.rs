//! A ring buffer of the latest records.

use std::{collections::VecDeque, sync::Arc};

use super::CallRecord;

/// How many records are kept.
const MAX_RECORDS: usize = 2000;

#[derive(Debug)]
pub(super) struct RecordRing {
    records: VecDeque<Arc<CallRecord>>,
    last_id: u64,
}

impl RecordRing {
    /// Numbers begin at `start`, so that those of an earlier run are not used again.
    pub(super) fn new(start: u64) -> Self {
        Self {
            records: VecDeque::new(),
            last_id: start,
        }
    }

    pub(super) fn last_id(&self) -> u64 {
        self.last_id
    }

    /// The number of the record that is pushed next.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn push(&mut self, record: Arc<CallRecord>) {
        if self.records.len() == MAX_RECORDS {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<CallRecord>> {
        let at = self.records.binary_search_by_key(&id, |it| it.id).ok()?;
        self.records.get(at).cloned()
    }

    /// All records before number `id`, newest first.
    pub(super) fn before(&self, id: Option<u64>) -> Vec<Arc<CallRecord>> {
        let records = self.records.iter().rev();
        records
            .filter(|it| id.is_none_or(|id| it.id < id))
            .cloned()
            .collect()
    }

    /// The newest `limit` records after number `id`, oldest first.
    pub(super) fn since(&self, id: u64, limit: usize) -> Vec<Arc<CallRecord>> {
        let newest = self.records.iter().rev().take_while(|it| it.id > id);
        let mut found: Vec<_> = newest.take(limit).cloned().collect();
        found.reverse();
        found
    }
}
