//! Which marker stands at a place, found by its first bytes.

use std::sync::LazyLock;

use super::{
    cursor::Cursor,
    marker,
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
}

static INDEX: LazyLock<Index> = LazyLock::new(Index::new);

/// The first bytes of bars.
const BARS: [u8; 3] = [b'|', 0xef, 0xe2];

/// Whether a marker or a line may begin with this byte in the middle of text.
pub(super) const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    special[b'<' as usize] = true;
    special[b'[' as usize] = true;
    special[b']' as usize] = true;
    special[b'`' as usize] = true;
    special[b'\n' as usize] = true;
    special[0xe2] = true;
    special
};

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
        index
    }

    /// Adds a marker, unless it is known in a role that says more.
    fn add(&mut self, pattern: &'static str, role: Role, place: Place) {
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
