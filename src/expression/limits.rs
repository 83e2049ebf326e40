//! What a run may take, and the meter that it is charged to before it takes it.

use std::time::Duration;

use tokio::time::Instant;

use super::fault::{Result, limit};

/// Longest source that is read.
pub const MAX_SOURCE: usize = 4096;
/// How deep expressions may be nested in each other.
pub(super) const MAX_NESTING: u32 = 60;
/// Steps between two looks at the clock.
const LOOK: u64 = 2000;
/// What a value takes in a list.
pub(super) const SLOT: usize = 16;

/// What one run may take. Everything is charged before it is done.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Units of work: about one for each part of an expression that is
    /// evaluated, and for each 64 bytes that are read or written.
    pub steps: u64,
    /// Bytes of all values made during the run, also of those given up again.
    pub memory: usize,
    /// Bits of an integer.
    pub integer_bits: u64,
    /// Characters of a text.
    pub text: usize,
    /// Items of a list, tuple, set, dict or range.
    pub items: usize,
    /// How deep values may contain each other, and evaluation go.
    pub depth: u32,
    /// Bytes of the result as JSON, and of its text.
    pub output: usize,
    /// Time, looked at now and then.
    pub time: Duration,
    /// What `date.today()` and `datetime.now()` say; without it they are refused.
    pub now: Option<Moment>,
}

/// A moment on somebody's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Microseconds since 1970-01-01 00:00 UTC.
    pub unix_microseconds: i64,
    /// How far the local clock is ahead of UTC.
    pub offset_seconds: i32,
}

/// Counts down what is left.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    pub(super) limits: &'a Limits,
    steps: u64,
    next_look: u64,
    memory: usize,
    deadline: Option<Instant>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 500_000,
            memory: 16 << 20,
            integer_bits: 4096,
            text: 100_000,
            items: 10_000,
            depth: 100,
            output: 1 << 20,
            time: Duration::from_millis(100),
            now: None,
        }
    }
}

impl<'a> Meter<'a> {
    pub(super) fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            steps: limits.steps,
            next_look: limits.steps.saturating_sub(LOOK),
            memory: limits.memory,
            deadline: None,
        }
    }

    /// Charges work.
    pub(super) fn step(&mut self, count: u64) -> Result<()> {
        let Some(left) = self.steps.checked_sub(count) else {
            self.steps = 0;
            let steps = self.limits.steps;
            return Err(limit(format!("more than {steps} steps; work on less data")));
        };
        self.steps = left;
        if left < self.next_look {
            self.next_look = left.saturating_sub(LOOK);
            self.look()?;
        }
        Ok(())
    }

    /// Charges work on `bytes` of text.
    pub(super) fn scan(&mut self, bytes: usize) -> Result<()> {
        self.step(1 + bytes as u64 / 64)
    }

    /// Charges memory.
    pub(super) fn memory(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.memory.checked_sub(bytes) else {
            let memory = self.limits.memory;
            return Err(limit(format!("more than {memory} bytes of values")));
        };
        self.memory = left;
        Ok(())
    }

    /// Charges a text before it is made.
    pub(super) fn text(&mut self, chars: usize, bytes: usize) -> Result<()> {
        let most = self.limits.text;
        if chars > most {
            return Err(limit(format!("a text longer than {most} characters")));
        }
        self.memory(bytes.saturating_add(48))?;
        self.scan(bytes)
    }

    /// Charges a list of `count` before it is made.
    pub(super) fn items(&mut self, count: usize) -> Result<()> {
        self.count(count)?;
        self.memory(count.saturating_mul(SLOT) + 48)?;
        self.step(1 + count as u64 / 4)
    }

    /// Charges one more item for something that has `count`.
    pub(super) fn item(&mut self, count: usize) -> Result<()> {
        self.count(count + 1)?;
        self.memory(SLOT)?;
        self.step(1)
    }

    /// Charges a dict or set of `count` before it is made.
    pub(super) fn table(&mut self, count: usize) -> Result<()> {
        self.count(count)?;
        self.memory(count.saturating_mul(4 * SLOT) + 96)?;
        self.step(1 + count as u64)
    }

    /// Charges one more entry for a dict or set that has `count`.
    pub(super) fn entry(&mut self, count: usize) -> Result<()> {
        self.count(count + 1)?;
        self.memory(6 * SLOT)?;
        self.step(2)
    }

    pub(super) fn count(&self, count: usize) -> Result<()> {
        let most = self.limits.items;
        match count > most {
            true => Err(limit(format!("more than {most} items"))),
            false => Ok(()),
        }
    }

    /// Charges an integer before it is made.
    pub(super) fn bits(&mut self, bits: u64) -> Result<()> {
        let most = self.limits.integer_bits;
        if bits > most {
            return Err(limit(format!("an integer of more than {most} bits")));
        }
        self.memory(bits as usize / 8 + 48)?;
        self.step(1 + bits / 512)
    }

    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.limits.time);
        match deadline < now {
            true => Err(limit(format!("took longer than {:?}", self.limits.time))),
            false => Ok(()),
        }
    }
}
