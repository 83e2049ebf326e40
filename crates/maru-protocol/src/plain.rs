//! A quick look at JSON: most messages have nothing in them that readers could read
//! differently, and need no full walk.

use super::members::RawJson;

/// How deep what is plain may nest, and how many members an object may have, which
/// are compared with each other.
const DEPTH: usize = 16;
const MEMBERS: usize = 16;
/// Whole numbers of so many digits are the same for every reader.
const DIGITS: usize = 15;

/// Whether `text` is certainly one JSON value that every reader would read
/// alike. `false` says that it takes a longer look.
pub(super) fn is_plain(text: &str) -> bool {
    let mut look = Look::new(text);
    look.value(DEPTH).is_some() && look.next().is_none()
}

/// The same for an object, whose members are told on the way; they mean nothing if
/// it turns out not to be plain.
pub(super) fn is_plain_object<'a>(text: &'a str, member: impl FnMut(&'a str, RawJson<'a>)) -> bool {
    let mut look = Look::new(text);
    let is_object = look.next() == Some(b'{');
    is_object && look.object(DEPTH, member).is_some() && look.next().is_none()
}

struct Look<'a> {
    text: &'a str,
    at: usize,
    /// The names of the objects that are open, the outer ones first.
    names: Vec<&'a str>,
}

impl<'a> Look<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            names: Vec::with_capacity(MEMBERS),
        }
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.bytes().get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn value(&mut self, left: usize) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' => self.object(left.checked_sub(1)?, |_, _| ()),
            b'[' => self.list(left.checked_sub(1)?),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, left: usize, mut found: impl FnMut(&'a str, RawJson<'a>)) -> Option<()> {
        let outer = self.names.len();
        self.at += 1;
        if self.next()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let name = self.name()?;
            let before = self.names.get(outer..)?;
            if before.len() == MEMBERS || before.contains(&name) {
                return None;
            }
            self.names.push(name);
            let from = self.at;
            self.value(left)?;
            found(name, self.text.get(from..self.at)?);
            if self.ends(b'}')? {
                self.names.truncate(outer);
                return Some(());
            }
        }
    }

    /// A name, up to the value behind it.
    fn name(&mut self) -> Option<&'a str> {
        self.next().filter(|it| *it == b'"')?;
        let (name, _) = self.string().filter(|(_, escapes)| !escapes)?;
        self.next().filter(|it| *it == b':')?;
        self.at += 1;
        self.next()?;
        Some(name)
    }

    fn list(&mut self, left: usize) -> Option<()> {
        self.at += 1;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(left)?;
            if self.ends(b']')? {
                return Some(());
            }
        }
    }

    /// Whether what stands here ends with `end`; otherwise it must go on.
    fn ends(&mut self, end: u8) -> Option<bool> {
        let next = self.next()?;
        self.at += 1;
        match next {
            b',' => Some(false),
            next => (next == end).then_some(true),
        }
    }

    /// What stands between quotes, and whether it has escapes.
    fn string(&mut self) -> Option<(&'a str, bool)> {
        let bytes = self.bytes();
        let from = self.at + 1;
        let mut at = from;
        let mut escapes = false;
        loop {
            at += quiet(bytes.get(at..)?);
            match bytes.get(at)? {
                b'"' => {
                    self.at = at + 1;
                    return Some((self.text.get(from..at)?, escapes));
                }
                b'\\' if b"\"\\/bfnrt".contains(bytes.get(at + 1)?) => {
                    at += 2;
                    escapes = true;
                }
                _ => return None,
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let rest = self.bytes().get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let rest = self.bytes().get(self.at..)?;
        let sign = usize::from(rest.first() == Some(&b'-'));
        let rest = rest.get(sign..)?;
        let digits = rest.iter().take_while(|it| it.is_ascii_digit()).count();
        let leads_with_zero = digits > 1 && rest.first() == Some(&b'0');
        let goes_on = matches!(rest.get(digits), Some(b'.' | b'e' | b'E'));
        self.at += sign + digits;
        ((1..=DIGITS).contains(&digits) && !leads_with_zero && !goes_on).then_some(())
    }
}

/// How many bytes at the start mean nothing in a text, found eight at a time.
pub(super) fn quiet(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        match first_meaning(u64::from_le_bytes(*eight)) {
            None => at += 8,
            Some(first) => return at + first,
        }
    }
    let means_nothing = |it: &&u8| !MEANS[usize::from(**it)];
    at + bytes.iter().skip(at).take_while(means_nothing).count()
}

/// The first of eight bytes that means something: a quote, a backslash, or one below
/// a space. A borrow may mark bytes behind it, never before it.
fn first_meaning(eight: u64) -> Option<usize> {
    const EACH: u64 = u64::MAX / 255;
    let zero = |it: u64| it.wrapping_sub(EACH) & !it;
    let quote = zero(eight ^ (EACH * b'"' as u64));
    let backslash = zero(eight ^ (EACH * b'\\' as u64));
    let control = eight.wrapping_sub(EACH * b' ' as u64) & !eight;
    match (quote | backslash | control) & (EACH * 128) {
        0 => None,
        found => Some(found.trailing_zeros() as usize / 8),
    }
}

/// Whether a byte means something in a text.
static MEANS: [bool; 256] = {
    let mut all = [false; 256];
    let mut at = 0;
    while at < 32 {
        all[at] = true;
        at += 1;
    }
    all[b'"' as usize] = true;
    all[b'\\' as usize] = true;
    all
};
