//! When to look again at what is held back.

/// Up to here, every piece of text is reason to look again.
const SHORT: usize = 512;

/// Keeps the cost of looking again in proportion to the text.
#[derive(Debug, Default)]
pub(super) struct Hold {
    waiting: bool,
    /// Bytes looked at since something was settled.
    work: usize,
}

impl Hold {
    /// Whether `held` bytes, of which `text` is new, are worth a look.
    ///
    /// The answer changes when an event comes, never which: what is not looked
    /// at now is looked at later.
    pub(super) fn is_due(&self, held: usize, text: &str) -> bool {
        let ends = |b: &u8| matches!(b, b'>' | b'}' | b']' | b')' | b'`' | b'\n');
        !self.waiting
            || held <= SHORT
            || (self.work <= 15 * held && text.as_bytes().iter().any(ends))
    }

    /// Notes that a look left `held` bytes; `moved` says that some were settled.
    pub(super) fn waited(&mut self, held: usize, moved: bool) {
        if moved {
            self.work = 0;
        }
        self.waiting = held > 0;
        self.work += held;
    }
}
