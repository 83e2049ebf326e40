//! When to look again at what is held back.

/// Up to here, every piece of text is reason to look again.
const MAX_ALWAYS_RESCANNED_BYTES: usize = 512;

/// Keeps the cost of looking again in proportion to the text.
#[derive(Debug, Default)]
pub(super) struct RescanBudget {
    holds_text: bool,
    /// Bytes looked at since something was settled.
    rescanned_bytes: usize,
}

impl RescanBudget {
    /// Whether `held` bytes, of which `text` is new, are worth a look.
    ///
    /// The answer changes when an event comes, never which: what is not looked
    /// at now is looked at later.
    pub(super) fn should_rescan(&self, held: usize, text: &str) -> bool {
        let ends = |b: &u8| matches!(b, b'>' | b'}' | b']' | b')' | b'`' | b'\n');
        !self.holds_text
            || held <= MAX_ALWAYS_RESCANNED_BYTES
            || (self.rescanned_bytes <= 15 * held && text.as_bytes().iter().any(ends))
    }

    /// Notes that a look left `held` bytes; `moved` says that some were settled.
    pub(super) fn record_scan(&mut self, held: usize, moved: bool) {
        if moved {
            self.rescanned_bytes = 0;
        }
        self.holds_text = held > 0;
        self.rescanned_bytes += held;
    }
}
