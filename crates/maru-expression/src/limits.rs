//! What a run may take, and the meter that it is charged to before it takes it.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{Result, limit_error};

/// Longest source that is read.
pub const MAX_SOURCE_BYTES: usize = 4096;
/// How deep expressions may be nested in each other.
pub(super) const MAX_SOURCE_NESTING: u32 = 60;
/// Steps between two looks at the clock.
const STEPS_PER_CLOCK_CHECK: u64 = 2000;
/// What a value takes in a list.
pub(super) const VALUE_SLOT_BYTES: usize = 16;

/// What one run may take. Everything is charged before it is done.
#[derive(Clone, Debug)]
pub struct EvaluationLimits {
    /// Units of work: about one for each part of an expression that is
    /// evaluated, and for each 64 bytes that are read or written.
    pub steps: u64,
    /// Bytes of all values made during the run, also of those given up again.
    pub memory_bytes: usize,
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
    pub now: Option<LocalTimestamp>,
}

/// A moment on somebody's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTimestamp {
    /// Microseconds since 1970-01-01 00:00 UTC.
    pub unix_microseconds: i64,
    /// How far the local clock is ahead of UTC.
    pub offset_seconds: i32,
}

/// Counts down what is left.
#[derive(Debug)]
pub(super) struct ResourceMeter<'a> {
    pub(super) limits: &'a EvaluationLimits,
    steps: u64,
    next_clock_check: u64,
    memory: usize,
    deadline: Option<Instant>,
}

impl Default for EvaluationLimits {
    fn default() -> Self {
        Self {
            steps: 500_000,
            memory_bytes: 16 << 20,
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

impl<'a> ResourceMeter<'a> {
    pub(super) fn new(limits: &'a EvaluationLimits) -> Self {
        Self {
            limits,
            steps: limits.steps,
            next_clock_check: limits.steps.saturating_sub(STEPS_PER_CLOCK_CHECK),
            memory: limits.memory_bytes,
            deadline: None,
        }
    }

    /// Charges work.
    pub(super) fn charge_steps(&mut self, count: u64) -> Result<()> {
        let Some(left) = self.steps.checked_sub(count) else {
            self.steps = 0;
            let steps = self.limits.steps;
            return Err(limit_error(format!(
                "more than {steps} steps; work on less data"
            )));
        };
        self.steps = left;
        if left < self.next_clock_check {
            self.next_clock_check = left.saturating_sub(STEPS_PER_CLOCK_CHECK);
            self.check_deadline()?;
        }
        Ok(())
    }

    /// Charges work on `bytes` of text.
    pub(super) fn charge_scan(&mut self, bytes: usize) -> Result<()> {
        self.charge_steps(1 + bytes as u64 / 64)
    }

    /// Charges memory.
    pub(super) fn charge_memory(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.memory.checked_sub(bytes) else {
            let memory = self.limits.memory_bytes;
            return Err(limit_error(format!("more than {memory} bytes of values")));
        };
        self.memory = left;
        Ok(())
    }

    /// Charges a text before it is made.
    pub(super) fn charge_text(&mut self, chars: usize, bytes: usize) -> Result<()> {
        let most = self.limits.text;
        if chars > most {
            return Err(limit_error(format!("a text longer than {most} characters")));
        }
        self.charge_memory(bytes.saturating_add(48))?;
        self.charge_scan(bytes)
    }

    /// Charges a list of `count` before it is made.
    pub(super) fn charge_items(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count)?;
        self.charge_memory(count.saturating_mul(VALUE_SLOT_BYTES) + 48)?;
        self.charge_steps(1 + count as u64 / 4)
    }

    /// Charges one more item for something that has `count`.
    pub(super) fn charge_item(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count + 1)?;
        self.charge_memory(VALUE_SLOT_BYTES)?;
        self.charge_steps(1)
    }

    /// Charges a dict or set of `count` before it is made.
    pub(super) fn charge_table(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count)?;
        self.charge_memory(count.saturating_mul(4 * VALUE_SLOT_BYTES) + 96)?;
        self.charge_steps(1 + count as u64)
    }

    /// Charges one more entry for a dict or set that has `count`.
    pub(super) fn charge_entry(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count + 1)?;
        self.charge_memory(6 * VALUE_SLOT_BYTES)?;
        self.charge_steps(2)
    }

    pub(super) fn check_item_count(&self, count: usize) -> Result<()> {
        let most = self.limits.items;
        if count > most {
            Err(limit_error(format!("more than {most} items")))
        } else {
            Ok(())
        }
    }

    /// Charges an integer before it is made.
    pub(super) fn charge_integer(&mut self, bits: u64) -> Result<()> {
        let most = self.limits.integer_bits;
        if bits > most {
            return Err(limit_error(format!("an integer of more than {most} bits")));
        }
        self.charge_memory(bits as usize / 8 + 48)?;
        self.charge_steps(1 + bits / 512)
    }

    fn check_deadline(&mut self) -> Result<()> {
        let now = Instant::now();
        let deadline = *self.deadline.get_or_insert(now + self.limits.time);
        if deadline < now {
            Err(limit_error(format!(
                "took longer than {:?}",
                self.limits.time
            )))
        } else {
            Ok(())
        }
    }
}
