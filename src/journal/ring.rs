//! The last records, numbered.

use std::{collections::VecDeque, sync::Arc};

use super::Record;

/// How many records are kept.
const MAX: usize = 2000;

#[derive(Debug)]
pub(super) struct Ring {
    records: VecDeque<Arc<Record>>,
    last: u64,
}

impl Ring {
    /// Numbers begin at `start`, so that those of an earlier run do not come again.
    pub(super) fn new(start: u64) -> Self {
        Self {
            records: VecDeque::new(),
            last: start,
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The number of the record that is pushed next.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn push(&mut self, record: Arc<Record>) {
        if self.records.len() == MAX {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Record>> {
        let at = self.records.binary_search_by_key(&id, |it| it.id).ok()?;
        self.records.get(at).cloned()
    }

    /// Newest first.
    pub(super) fn before(&self, id: Option<u64>) -> Vec<Arc<Record>> {
        let records = self.records.iter().rev();
        records
            .filter(|it| id.is_none_or(|id| it.id < id))
            .cloned()
            .collect()
    }

    /// Oldest first; the newest `limit`.
    pub(super) fn since(&self, id: u64, limit: usize) -> Vec<Arc<Record>> {
        let newest = self.records.iter().rev().take_while(|it| it.id > id);
        let mut found: Vec<_> = newest.take(limit).cloned().collect();
        found.reverse();
        found
    }
}
