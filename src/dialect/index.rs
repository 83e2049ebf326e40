//! Which marker stands at a place, found by its first bytes.

use std::sync::LazyLock;

use super::{
    cursor::Cursor,
    lines, marker,
    table::{FRAMES, HEADERS, Place, Role, STRUCTURE, THOUGHTS, TOKENS},
};

/// A marker that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) role: Role,
    pub(super) length: usize,
}

struct Entry {
    pattern: &'static str,
    role: Role,
    place: Place,
}

/// All markers, by their first byte; those in angle brackets by their second.
struct Index {
    first: Vec<Vec<Entry>>,
    angle: Vec<Vec<Entry>>,
    /// Beginnings of what only a line begins with, by their first byte.
    lines: Vec<Vec<&'static str>>,
}

static INDEX: LazyLock<Index> = LazyLock::new(Index::new);

/// How much space before a line's first word is looked over.
const MAX_SPACE: usize = 16;

/// The first bytes of bars.
const BARS: [u8; 3] = [b'|', 0xef, 0xe2];

/// Whether a marker may begin with this byte in the middle of text, or
/// something else happens there that a reader minds.
pub(super) const SPECIAL: [bool; 256] = table(&[b'<', b'[', b']', b'`', b'\n', 0xe2]);

/// Whether something that only a line begins with may begin with this byte:
/// markers, labels, fences, values, and space before them.
pub(super) const LINE: [bool; 256] = table(&[
    b'<', b'[', b']', b'`', b'{', b'>', b'*', b'A', b'F', b'T', b'a', b'c', b'f', b't', b' ',
    b'\t', b'\n', b'\r', 0x0b, 0x0c, 0xc2, 0xe1, 0xe2, 0xe3, 0xe6, 0xec,
]);

/// Whether a line that begins with these bytes, or the next one that is not empty, may
/// begin with something that only a line begins with.
pub(super) fn may_open_line(bytes: &[u8]) -> bool {
    let space = |b: &&u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r');
    // Not far: who asks may ask again at every one of them.
    let near = bytes.iter().take(MAX_SPACE);
    let rest = &bytes[near.take_while(space).count()..];
    match rest {
        [] => true,
        [first, ..] if !LINE[*first as usize] => false,
        [first, ..] if first.is_ascii_alphabetic() || matches!(first, b'*' | b'>') => {
            let begins = |it: &&str| it.bytes().zip(rest).all(|(a, b)| a == *b);
            INDEX.lines[*first as usize].iter().any(begins)
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
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    match bytes {
        [b'<', second, ..] => !INDEX.angle[*second as usize].is_empty(),
        [b'[', second, ..] => matches!(second, b'T' | b'E' | b'/' | b'A' | b'C'),
        [b']', second, ..] => *second == b'<',
        [0xe2, second, ..] => matches!(second, 0x9c | 0x97),
        _ => true,
    }
}

/// The marker that is next, if one is.
pub(super) fn find(cursor: Cursor<'_>, place: Place) -> Option<Hit> {
    let bytes = cursor.rest().as_bytes();
    let entries = match bytes {
        [b'<', second, ..] => &INDEX.angle[*second as usize],
        [b'<'] => {
            cursor.moved(1).peek();
            return None;
        }
        [first, ..] => &INDEX.first[*first as usize],
        [] => return None,
    };
    entries.iter().filter(|it| it.allows(place)).find_map(|it| {
        let length = marker::length(it.pattern, cursor)?;
        Some(Hit {
            role: it.role,
            length,
        })
    })
}

impl Entry {
    fn allows(&self, place: Place) -> bool {
        match self.place {
            Place::Anywhere => true,
            Place::Line => place != Place::Anywhere,
            Place::Message => place == Place::Message,
        }
    }
}

impl Index {
    fn new() -> Self {
        let mut index = Self {
            first: (0..256).map(|_| Vec::new()).collect(),
            angle: (0..256).map(|_| Vec::new()).collect(),
            lines: (0..256).map(|_| Vec::new()).collect(),
        };
        for (at, frame) in FRAMES.iter().enumerate() {
            index.add(frame.opener, Role::Frame(at), frame.place);
        }
        for (at, (open, close)) in THOUGHTS.iter().enumerate() {
            index.add(open, Role::Think(at), Place::Anywhere);
            if !TOKENS.contains(close) {
                index.add(close, Role::ThinkEnd(at), Place::Anywhere);
            }
        }
        for (pattern, place) in HEADERS {
            index.add(pattern, Role::Header, *place);
        }
        for pattern in STRUCTURE {
            index.add(pattern, Role::Structure, Place::Anywhere);
        }
        let closers = FRAMES.iter().flat_map(|frame| frame.closers);
        for pattern in TOKENS.iter().chain(closers) {
            index.add(pattern, Role::Token, Place::Anywhere);
        }
        let labels = lines::THOUGHTS.iter().chain(&lines::ANSWERS);
        for label in labels.chain(&lines::TO_ALL) {
            index.add_line(label);
        }
        index
    }

    /// Notes how something begins that stands at the beginning of a line.
    fn add_line(&mut self, pattern: &'static str) {
        let certain = pattern.split(['|', '_', '+', '~']).next();
        let certain = certain.unwrap_or_default();
        if let Some(first) = pattern.bytes().next() {
            self.lines[first as usize].push(certain);
        }
    }

    /// Adds a marker, unless it is known in a role that says more.
    fn add(&mut self, pattern: &'static str, role: Role, place: Place) {
        self.add_line(pattern);
        let mut bytes = pattern.bytes();
        let first = bytes.next().unwrap_or_default();
        let second = bytes.next().unwrap_or_default();
        let lists = match (first, second) {
            (b'<', b'|') => BARS.iter().map(|bar| (true, *bar)).collect(),
            (b'<', second) => vec![(true, second)],
            (first, _) => vec![(false, first)],
        };
        for (angle, byte) in lists {
            let list = match angle {
                true => &mut self.angle[byte as usize],
                false => &mut self.first[byte as usize],
            };
            if !list.iter().any(|it| it.pattern == pattern) {
                list.push(Entry {
                    pattern,
                    role,
                    place,
                });
            }
        }
    }
}
