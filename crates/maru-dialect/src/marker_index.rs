//! Finds the marker at a position by its first bytes.

use std::sync::LazyLock;

use super::{
    cursor::TextCursor,
    grammar::{
        CONTROL_TOKENS, FRAMES, MESSAGE_HEADERS, MarkerPlacement, MarkerRole, REASONING_TAGS,
        STRUCTURAL_TOKENS,
    },
    line_calls, marker, markerless_calls, stripped_harmony,
};

/// A marker that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkerMatch {
    pub(super) role: MarkerRole,
    pub(super) length: usize,
}

struct MarkerEntry {
    pattern: &'static str,
    role: MarkerRole,
    placement: MarkerPlacement,
}

/// All markers, by their first byte; those in angle brackets by their second.
struct MarkerIndex {
    by_first_byte: Vec<Vec<MarkerEntry>>,
    by_second_byte: Vec<Vec<MarkerEntry>>,
    /// Beginnings of what only a line begins with, by their first byte.
    line_starts: Vec<Vec<&'static str>>,
}

static MARKER_INDEX: LazyLock<MarkerIndex> = LazyLock::new(MarkerIndex::new);

/// How many bytes of indentation are skipped before a line's first word.
const MAX_INDENT_BYTES: usize = 16;

/// The first bytes of bars.
const BAR_FIRST_BYTES: [u8; 3] = [b'|', 0xef, 0xe2];

/// Whether a marker may begin with this byte in the middle of text, or
/// it ends plain text for another reason (code, line break).
pub(super) const MARKER_FIRST_BYTES: [bool; 256] = table(&[b'<', b'[', b']', b'`', b'\n', 0xe2]);

/// [`MARKER_FIRST_BYTES`] for prompted models, whose JSON calls may begin anywhere.
pub(super) const PROMPTED_FIRST_BYTES: [bool; 256] =
    table(&[b'<', b'[', b']', b'`', b'\n', b'{', 0xe2]);

/// Whether something that only a line begins with may begin with this byte:
/// markers, labels, fences, values, and space before them.
pub(super) const LINE_FIRST_BYTES: [bool; 256] = table(&[
    b'<', b'[', b']', b'`', b'{', b'>', b'*', b'-', b'/', b'~', b'"', b'\'', b'A', b'F', b'T',
    b'a', b'c', b'd', b'f', b'p', b't', b' ', b'\t', b'\n', b'\r', 0x0b, 0x0c, 0xc2, 0xe1, 0xe2,
    0xe3, 0xe6, 0xec,
]);

/// Whether a line that begins with these bytes, or the next one that is not empty, may
/// begin with something that only a line begins with.
pub(super) fn may_start_line_marker(bytes: &[u8]) -> bool {
    let space = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r');
    // Bounded, because the caller may search again from each of them.
    let near = bytes.iter().take(MAX_INDENT_BYTES);
    let rest = &bytes[near.take_while(space).count()..];
    match rest {
        [] => true,
        // A byte order mark, which may stand before a marker.
        [0xef, second, ..] => *second == 0xbb,
        [0xef] => true,
        [first, ..] if !LINE_FIRST_BYTES[*first as usize] => false,
        [first, ..]
            if first.is_ascii_alphabetic()
                || matches!(first, b'*' | b'>' | b'-' | b'/' | b'~' | b'"' | b'\'') =>
        {
            let begins = |it: &&str| it.bytes().zip(rest).all(|(a, b)| a == *b);
            MARKER_INDEX.line_starts[*first as usize].iter().any(begins)
        }
        _ => true,
    }
}

const fn table(bytes: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
}

/// Whether a marker may begin at a special byte, by the byte after it.
pub(super) fn may_start_marker(bytes: &[u8]) -> bool {
    match bytes {
        [b'<', second, ..] => !MARKER_INDEX.by_second_byte[*second as usize].is_empty(),
        [b'[', second, ..] => matches!(second, b'T' | b'E' | b'/' | b'A' | b'C' | b'|'),
        [b']', second, ..] => *second == b'<',
        [0xe2, second, ..] => matches!(second, 0x9c | 0x97),
        _ => true,
    }
}

/// The marker that is next, if one is.
pub(super) fn find_marker(cursor: TextCursor<'_>, place: MarkerPlacement) -> Option<MarkerMatch> {
    let bytes = cursor.rest().as_bytes();
    let entries = match bytes {
        [b'<', second, ..] => &MARKER_INDEX.by_second_byte[*second as usize],
        [b'<'] => {
            cursor.advanced_by(1).peek();
            return None;
        }
        [first, ..] => &MARKER_INDEX.by_first_byte[*first as usize],
        [] => return None,
    };
    entries.iter().filter(|it| it.allows(place)).find_map(|it| {
        let length = marker::match_length(it.pattern, cursor)?;
        Some(MarkerMatch {
            role: it.role,
            length,
        })
    })
}

impl MarkerEntry {
    fn allows(&self, place: MarkerPlacement) -> bool {
        match self.placement {
            MarkerPlacement::Anywhere => true,
            MarkerPlacement::LineStart => place != MarkerPlacement::Anywhere,
            MarkerPlacement::MessageStart => place == MarkerPlacement::MessageStart,
        }
    }
}

impl MarkerIndex {
    fn new() -> Self {
        let mut index = Self {
            by_first_byte: (0..256).map(|_| Vec::new()).collect(),
            by_second_byte: (0..256).map(|_| Vec::new()).collect(),
            line_starts: (0..256).map(|_| Vec::new()).collect(),
        };
        // First: a header with a recipient is also the beginning of a frame.
        for pattern in STRUCTURAL_TOKENS {
            index.add(
                pattern,
                MarkerRole::StructuralToken,
                MarkerPlacement::Anywhere,
            );
        }
        for (at, frame) in FRAMES.iter().enumerate() {
            index.add(frame.opener, MarkerRole::FrameOpener(at), frame.placement);
        }
        for (at, (open, close)) in REASONING_TAGS.iter().enumerate() {
            let placement = if open.starts_with('/') {
                MarkerPlacement::MessageStart
            } else {
                MarkerPlacement::Anywhere
            };
            index.add(open, MarkerRole::ReasoningOpener(at), placement);
            if !CONTROL_TOKENS.contains(close) {
                index.add(
                    close,
                    MarkerRole::ReasoningCloser(at),
                    MarkerPlacement::Anywhere,
                );
            }
        }
        for (pattern, place) in MESSAGE_HEADERS {
            index.add(pattern, MarkerRole::MessageHeader, *place);
        }
        let closers = FRAMES.iter().flat_map(|frame| frame.closers);
        for pattern in CONTROL_TOKENS.iter().chain(closers) {
            index.add(pattern, MarkerRole::ControlToken, MarkerPlacement::Anywhere);
        }
        let labels = line_calls::THOUGHT_LABELS
            .iter()
            .chain(&line_calls::FINAL_ANSWER_LABELS);
        let labels = labels
            .chain(&line_calls::RECIPIENT_ALL_LINES)
            .chain(&markerless_calls::QUOTED_JSON_STARTS)
            .chain(&markerless_calls::SCRIPT_STARTS)
            .chain(&stripped_harmony::REPLY_STARTS);
        for label in labels {
            index.add_exact_line(label);
        }
        index.add_exact_line("~~~");
        index
    }

    /// Notes how a marker begins that stands at the beginning of a line: up to what
    /// its pattern leaves open.
    fn add_line(&mut self, pattern: &'static str) {
        let certain = pattern.split(['|', '_', '+', '~']).next();
        self.add_exact_line(certain.unwrap_or_default());
    }

    fn add_exact_line(&mut self, start: &'static str) {
        if let Some(first) = start.bytes().next() {
            self.line_starts[first as usize].push(start);
        }
    }

    /// Adds a marker, unless it is known in a role that says more.
    fn add(&mut self, pattern: &'static str, role: MarkerRole, place: MarkerPlacement) {
        self.add_line(pattern);
        let mut bytes = pattern.bytes();
        let first = bytes.next().unwrap_or_default();
        let second = bytes.next().unwrap_or_default();
        let lists = match (first, second) {
            (b'<', b'|') => BAR_FIRST_BYTES.iter().map(|bar| (true, *bar)).collect(),
            (b'<', second) => vec![(true, second)],
            (first, _) => vec![(false, first)],
        };
        for (angle, byte) in lists {
            let list = if angle {
                &mut self.by_second_byte[byte as usize]
            } else {
                &mut self.by_first_byte[byte as usize]
            };
            if !list.iter().any(|it| it.pattern == pattern) {
                list.push(MarkerEntry {
                    pattern,
                    role,
                    placement: place,
                });
            }
        }
    }
}
