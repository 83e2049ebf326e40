//! The memory of large requests: what is kept of one while it is handled, and of its response
//! until it is read, holds a share.
//!
//! Without a total, some thousand connections could each keep a body of some MiB for as long
//! as a slow model or tool takes.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use thiserror::Error;

/// Bytes that need no share.
pub const SMALL_REQUEST_BYTES: usize = 64 << 10;
/// The most that the values of one JSON document may take in memory. Text and images take
/// little more than what was sent, but a list of short lists takes ninety times that.
pub const MAX_TREE_BYTES: usize = 64 << 20;
/// Bytes that all requests may hold together.
const MAX_TOTAL_BYTES: usize = 256 << 20;
/// Bytes that the requests of one caller may hold, so that the others have the rest.
const MAX_CALLER_BYTES: usize = MAX_TOTAL_BYTES / 8 * 7;

static USED_BYTES: Mutex<UsedMemory> = Mutex::new(UsedMemory {
    total: 0,
    by_caller: BTreeMap::new(),
});

/// Too much memory is in use for another large request.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("too many large requests are in progress; try again")]
pub struct OutOfRequestMemory;

/// A share of the memory of large requests, given back on drop.
#[derive(Debug)]
pub struct MemoryShare {
    caller: Arc<str>,
    /// What is held, of which [`SMALL_REQUEST_BYTES`] are not counted.
    bytes: usize,
}

/// A text that waits for its reader, with the share of memory that it holds.
#[derive(Debug)]
pub struct HeldText {
    text: String,
    memory: Option<MemoryShare>,
}

#[derive(Debug)]
struct UsedMemory {
    total: usize,
    by_caller: BTreeMap<String, usize>,
}

impl MemoryShare {
    /// An empty share for a request of `caller`.
    pub fn new(caller: impl Into<Arc<str>>) -> Self {
        Self {
            caller: caller.into(),
            bytes: 0,
        }
    }

    /// Adds bytes that the request keeps.
    pub fn add(&mut self, bytes: usize) -> Result<(), OutOfRequestMemory> {
        let grown = self.bytes.saturating_add(bytes);
        let more = counted_bytes(grown) - counted_bytes(self.bytes);
        if more > 0 {
            lock().take(&self.caller, more)?;
        }
        self.bytes = grown;
        Ok(())
    }

    /// Gives back what the request no longer keeps.
    pub fn clear(&mut self) {
        let held = counted_bytes(std::mem::take(&mut self.bytes));
        if held > 0 {
            lock().give_back(&self.caller, held);
        }
    }

    /// How many bytes the request keeps.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the request is small enough to hold nothing.
    pub fn is_empty(&self) -> bool {
        counted_bytes(self.bytes) == 0
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.clear();
    }
}

impl HeldText {
    /// Reserves memory for a large text of `caller`.
    pub fn new(caller: &Arc<str>, text: String) -> Result<Self, OutOfRequestMemory> {
        if text.len() <= SMALL_REQUEST_BYTES {
            return Ok(text.into());
        }
        let mut memory = MemoryShare::new(Arc::clone(caller));
        memory.add(text.len())?;
        Ok(Self {
            text,
            memory: Some(memory),
        })
    }

    /// The text, and what it holds, for a reader that keeps both together.
    pub(crate) fn into_parts(self) -> (String, Option<MemoryShare>) {
        (self.text, self.memory)
    }
}

/// A text that holds nothing, because it is small or counted elsewhere.
impl From<String> for HeldText {
    fn from(text: String) -> Self {
        Self { text, memory: None }
    }
}

impl Deref for HeldText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// So that `Bytes::from_owner` gives the memory back after the last byte was written.
impl AsRef<[u8]> for HeldText {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl UsedMemory {
    fn take(&mut self, caller: &str, bytes: usize) -> Result<(), OutOfRequestMemory> {
        let total = self.total.saturating_add(bytes);
        let by_caller = self.by_caller.get(caller).copied().unwrap_or_default();
        let by_caller = by_caller.saturating_add(bytes);
        if total > MAX_TOTAL_BYTES || by_caller > MAX_CALLER_BYTES {
            return Err(OutOfRequestMemory);
        }
        self.total = total;
        self.by_caller.insert(caller.to_owned(), by_caller);
        Ok(())
    }

    fn give_back(&mut self, caller: &str, bytes: usize) {
        self.total -= bytes;
        if let Some(held) = self.by_caller.get_mut(caller) {
            *held -= bytes;
            if *held == 0 {
                self.by_caller.remove(caller);
            }
        }
    }
}

fn counted_bytes(bytes: usize) -> usize {
    bytes.saturating_sub(SMALL_REQUEST_BYTES)
}

fn lock() -> MutexGuard<'static, UsedMemory> {
    USED_BYTES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_leaves_the_others_a_part_and_gives_its_own_back() {
        let mut used = UsedMemory {
            total: 0,
            by_caller: BTreeMap::new(),
        };
        used.take("a", MAX_CALLER_BYTES).unwrap();
        assert_eq!(used.take("a", 1), Err(OutOfRequestMemory));
        used.take("b", MAX_TOTAL_BYTES - MAX_CALLER_BYTES).unwrap();
        assert_eq!(used.take("c", 1), Err(OutOfRequestMemory));
        assert_eq!(used.take("c", usize::MAX), Err(OutOfRequestMemory));
        used.give_back("a", MAX_CALLER_BYTES);
        used.take("c", 1).unwrap();
        used.give_back("c", 1);
        used.give_back("b", MAX_TOTAL_BYTES - MAX_CALLER_BYTES);
        assert_eq!((used.total, used.by_caller.len()), (0, 0));
    }

    #[test]
    fn small_requests_hold_nothing() {
        let mut share = MemoryShare::new("small");
        share.add(SMALL_REQUEST_BYTES).unwrap();
        assert!(share.is_empty());
        share.add(1).unwrap();
        assert!(!share.is_empty());
        assert_eq!(lock().by_caller.get("small"), Some(&1));
        share.clear();
        assert_eq!(lock().by_caller.get("small"), None);
        share.add(SMALL_REQUEST_BYTES + 1).unwrap();
        assert_eq!(lock().by_caller.get("small"), Some(&1));
        drop(share);
        assert_eq!(lock().by_caller.get("small"), None);
    }

    #[test]
    fn large_text_holds_a_share_until_it_is_dropped() {
        let caller: Arc<str> = "reader".into();
        let large = "x".repeat(SMALL_REQUEST_BYTES + 5);
        let held = HeldText::new(&caller, large.clone()).unwrap();
        assert_eq!(lock().by_caller.get("reader"), Some(&5));
        assert_eq!(*held, *large);
        drop(held);
        assert_eq!(lock().by_caller.get("reader"), None);
    }
}
