//! Limits how often held-back text is scanned again.

/// Held text up to this length is scanned again with every chunk.
const MAX_ALWAYS_RESCANNED_BYTES: usize = 512;

/// Keeps the total cost of rescanning proportional to the length of the text.
#[derive(Debug, Default)]
pub(super) struct RescanBudget {
    holds_text: bool,
    /// Bytes scanned since the position last moved.
    rescanned_bytes: usize,
}

impl RescanBudget {
    /// Whether `held` bytes, of which `text` is new, should be scanned now.
    ///
    /// The answer decides when an event comes, never which one: what is not scanned
    /// now is scanned later.
    pub(super) fn should_rescan(&self, held: usize, text: &str) -> bool {
        let ends = |b: &u8| matches!(b, b'>' | b'}' | b']' | b')' | b'`' | b'\n');
        !self.holds_text
            || held <= MAX_ALWAYS_RESCANNED_BYTES
            || (self.rescanned_bytes <= 15 * held && text.as_bytes().iter().any(ends))
    }

    /// Records a scan that left `held` bytes; `moved` says that it consumed some.
    pub(super) fn record_scan(&mut self, held: usize, moved: bool) {
        if moved {
            self.rescanned_bytes = 0;
        }
        self.holds_text = held > 0;
        self.rescanned_bytes += held;
    }
}
