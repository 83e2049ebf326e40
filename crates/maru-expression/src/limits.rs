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

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use serde_json::{Map, json};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        ErrorKind,
        testing::{evaluate, evaluate_within, to_map},
    };

    #[test]
    fn clock_is_passed_in() {
        let fault = evaluate("date.today()", &Map::new()).unwrap_err();
        assert_eq!(fault.kind, ErrorKind::Value);
        let now = Some(LocalTimestamp {
            unix_microseconds: 1_700_000_000_000_000,
            offset_seconds: 9 * 3600,
        });
        let limits = EvaluationLimits {
            now,
            ..EvaluationLimits::default()
        };
        let done = evaluate_within("[date.today(), datetime.now()]", &Map::new(), &limits).unwrap();
        assert_eq!(done.json.get(), r#"["2023-11-15","2023-11-15T07:13:20"]"#);
    }

    #[test]
    fn every_limit_is_enforced() {
        for source in [
            "sum(1 for x in range(9999) for y in range(9999))",
            "[[0] * 9999 for x in range(9999)]",
            "2 ** 5000",
            "'a' * 100001",
            "list(range(10001))",
            "[0] * 10001",
            "[pow(3, 2**1000, 2**1024 - 3) for i in range(1000)]",
            "[('a' * 90000).replace('a', 'b') for i in range(9999)]",
            "math.factorial(10**9)",
            "math.comb(10**15, 10**14)",
            "f'{1.5:.999999999f}'",
            "'%*d' % (10**9, 1)",
            "('\\t' * 50000).expandtabs(10**9)",
            "'x'.center(10**12)",
            "dict(**{'a' + str(i): i for i in range(9999)}, **{'b' + str(i): i for i in range(9999)})",
            "max([('a',) * 9999] * 9999)",
            "str([[1] * 9999] * 9999)",
            "a = [0] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\na = [a] * 10\nresult = a",
        ] {
            let start = Instant::now();
            let fault = evaluate(source, &Map::new()).unwrap_err();
            assert_eq!(fault.kind, ErrorKind::Limit, "{source}: {fault}");
            assert!(
                start.elapsed() < Duration::from_millis(500),
                "{source}: {:?}",
                start.elapsed()
            );
        }
    }

    #[test]
    fn depth_never_ends_a_small_stack() {
        let deep = |open: &str, middle: &str, close: &str| -> Vec<String> {
            [20, 40, 55, 59, 60, 61, 200, 800]
                .map(|n| format!("{}{middle}{}", open.repeat(n), close.repeat(n)))
                .to_vec()
        };
        let mut sources = Vec::new();
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "", "]"),
            ("abs(", "1", ")"),
            ("-(", "1", ")"),
            ("not (", "1", ")"),
            ("1 if 1 else ", "1", ""),
            ("2 ** ", "1", ""),
            ("{1:", "1", "}"),
            ("[x for x in ", "[1]", "]"),
            ("sum(x for x in ", "[1]", ")"),
            ("list(map(lambda v: v, ", "[1]", "))"),
            ("sorted([1], key=lambda v: ", "1", ")"),
            ("f'{", "1", "}'"),
            ("x[", "0", "]"),
            ("1 or 1 and not 1 == 1 | 1 ^ 1 & 1 << 1 + 1 * (", "1", ")"),
        ] {
            sources.extend(deep(open, middle, close));
        }
        let generators: String = (0..120)
            .map(|n| format!("g{}=(sum(g{n}) for x in [1])\n", n + 1))
            .collect();
        sources.push(format!("g0=[1]\n{generators}result=sum(g120)"));
        sources.push(format!("a=[1]\n{}result=a", "a=[a]\n".repeat(500)));
        sources.push(format!(
            "g=[1]\n{}result=list(g)",
            "g=map(abs,g)\n".repeat(250)
        ));
        let arguments = to_map(&json!({"x": [0]}));
        let work = move || {
            for source in &sources {
                let _ = evaluate(source, &arguments);
            }
        };
        // Half of what a thread of the runtime has.
        let thread = thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(work)
            .unwrap();
        thread.join().unwrap();
    }
}
