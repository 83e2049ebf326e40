//! Limits of an evaluation, and the meter that enforces them in advance.

use std::time::Duration;

use tokio::time::Instant;

use super::error::{Result, limit_error};

/// Maximum length of a source.
pub const MAX_SOURCE_BYTES: usize = 4096;
/// Maximum nesting depth of a source.
pub(super) const MAX_SOURCE_NESTING: u32 = 60;
/// Steps between two checks of the clock.
const STEPS_PER_CLOCK_CHECK: u64 = 2000;
/// Memory of a value in a list.
pub(super) const VALUE_SLOT_BYTES: usize = 16;

/// The limits of one evaluation. Everything is charged before it is done.
#[derive(Clone, Debug)]
pub struct EvaluationLimits {
    /// Units of work: about one for each evaluated node and for each 64 bytes read or
    /// written.
    pub steps: u64,
    /// Bytes of all values that are created, including those that are dropped again.
    pub memory_bytes: usize,
    /// Maximum bits of an integer.
    pub integer_bits: u64,
    /// Maximum characters of a string.
    pub text: usize,
    /// Maximum items of a list, tuple, set, dict or range.
    pub items: usize,
    /// Maximum nesting depth of values.
    pub depth: u32,
    /// Maximum bytes of the result as JSON and as text.
    pub output: usize,
    /// Maximum duration, checked from time to time.
    pub time: Duration,
    /// The time for `date.today()` and `datetime.now()`; without it they fail.
    pub now: Option<LocalTimestamp>,
}

/// A local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTimestamp {
    /// Microseconds since the Unix epoch.
    pub unix_microseconds: i64,
    /// Offset of the local time from UTC.
    pub offset_seconds: i32,
}

/// Counts down the remaining steps, memory and time.
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

    /// Charges `count` steps.
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

    /// Charges a scan of `bytes` of text.
    pub(super) fn charge_scan(&mut self, bytes: usize) -> Result<()> {
        self.charge_steps(1 + bytes as u64 / 64)
    }

    /// Charges `bytes` of memory.
    pub(super) fn charge_memory(&mut self, bytes: usize) -> Result<()> {
        let Some(left) = self.memory.checked_sub(bytes) else {
            let memory = self.limits.memory_bytes;
            return Err(limit_error(format!("more than {memory} bytes of values")));
        };
        self.memory = left;
        Ok(())
    }

    /// Charges a string before it is created.
    pub(super) fn charge_text(&mut self, chars: usize, bytes: usize) -> Result<()> {
        let max = self.limits.text;
        if chars > max {
            return Err(limit_error(format!("a text longer than {max} characters")));
        }
        self.charge_memory(bytes.saturating_add(48))?;
        self.charge_scan(bytes)
    }

    /// Charges a list of `count` items before it is created.
    pub(super) fn charge_items(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count)?;
        self.charge_memory(count.saturating_mul(VALUE_SLOT_BYTES) + 48)?;
        self.charge_steps(1 + count as u64 / 4)
    }

    /// Charges one more item of a list that has `count`.
    pub(super) fn charge_item(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count + 1)?;
        self.charge_memory(VALUE_SLOT_BYTES)?;
        self.charge_steps(1)
    }

    /// Charges a dict or set of `count` entries before it is created.
    pub(super) fn charge_table(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count)?;
        self.charge_memory(count.saturating_mul(4 * VALUE_SLOT_BYTES) + 96)?;
        self.charge_steps(1 + count as u64)
    }

    /// Charges one more entry of a dict or set that has `count`.
    pub(super) fn charge_entry(&mut self, count: usize) -> Result<()> {
        self.check_item_count(count + 1)?;
        self.charge_memory(6 * VALUE_SLOT_BYTES)?;
        self.charge_steps(2)
    }

    pub(super) fn check_item_count(&self, count: usize) -> Result<()> {
        let max = self.limits.items;
        if count > max {
            Err(limit_error(format!("more than {max} items")))
        } else {
            Ok(())
        }
    }

    /// Charges an integer before it is created.
    pub(super) fn charge_integer(&mut self, bits: u64) -> Result<()> {
        let max = self.limits.integer_bits;
        if bits > max {
            return Err(limit_error(format!("an integer of more than {max} bits")));
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
