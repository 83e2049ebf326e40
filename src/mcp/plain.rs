//! A quick look at JSON: most messages have nothing in them that readers could read
//! differently, and need no full walk.

use super::members::Raw;

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

/// The same for an object, whose members are found on the way.
pub(super) fn plain_members(text: &str) -> Option<impl Iterator<Item = (&str, Raw<'_>)>> {
    let mut look = Look::new(text);
    look.next().filter(|it| *it == b'{')?;
    let mut found = Vec::with_capacity(MEMBERS / 2);
    look.object(DEPTH, |name, value| found.push((name, value)))?;
    look.next().is_none().then(|| found.into_iter())
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

    fn object(&mut self, left: usize, mut found: impl FnMut(&'a str, Raw<'a>)) -> Option<()> {
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
        let name = self.string().filter(|it| !it.contains('\\'))?;
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

    /// What stands between quotes.
    fn string(&mut self) -> Option<&'a str> {
        let bytes = self.bytes();
        let from = self.at + 1;
        let mut at = from;
        loop {
            let byte = *bytes.get(at)?;
            if !MEANS[usize::from(byte)] {
                at += 1;
            } else if byte == b'"' {
                self.at = at + 1;
                return self.text.get(from..at);
            } else if byte == b'\\' && b"\"\\/bfnrt".contains(bytes.get(at + 1)?) {
                at += 2;
            } else {
                return None;
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
