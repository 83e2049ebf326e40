//! A quick look at JSON: most messages have nothing in them that readers could read
//! differently, and need no full walk.

/// How deep what is plain may nest, and how many members an object may have, which
/// are compared with each other.
const DEPTH: usize = 16;
const MEMBERS: usize = 16;
/// Whole numbers of so many digits are the same for every reader.
const DIGITS: usize = 15;

/// Whether `bytes`, which are UTF-8, are certainly one JSON value that every reader
/// would read alike. `false` says that it takes a longer look.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let mut look = Look { bytes, at: 0 };
    look.value(DEPTH).is_some() && look.next().is_none()
}

struct Look<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Look<'a> {
    /// The next byte that is no space.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.bytes.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn value(&mut self, left: usize) -> Option<()> {
        match self.next()? {
            b'"' => self.text().map(drop),
            b'{' => self.object(left.checked_sub(1)?),
            b'[' => self.list(left.checked_sub(1)?),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn object(&mut self, left: usize) -> Option<()> {
        let mut names: [&[u8]; MEMBERS] = [&[]; MEMBERS];
        self.at += 1;
        if self.next()? == b'}' {
            self.at += 1;
            return Some(());
        }
        for count in 0..MEMBERS {
            self.next().filter(|it| *it == b'"')?;
            let name = self.text()?;
            let before = names.get(..count)?;
            if name.contains(&b'\\') || before.contains(&name) {
                return None;
            }
            *names.get_mut(count)? = name;
            self.next().filter(|it| *it == b':')?;
            self.at += 1;
            self.value(left)?;
            if self.goes_on(b'}')? {
                return Some(());
            }
        }
        None
    }

    fn list(&mut self, left: usize) -> Option<()> {
        self.at += 1;
        if self.next()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(left)?;
            if self.goes_on(b']')? {
                return Some(());
            }
        }
    }

    /// Whether what stands here ends with `end`; otherwise it must go on.
    fn goes_on(&mut self, end: u8) -> Option<bool> {
        let next = self.next()?;
        self.at += 1;
        match next {
            b',' => Some(false),
            next => (next == end).then_some(true),
        }
    }

    /// What stands between quotes.
    fn text(&mut self) -> Option<&'a [u8]> {
        let from = self.at + 1;
        let mut at = from;
        loop {
            match run(self.bytes.get(at..)?) {
                (length, b'"') => {
                    self.at = at + length + 1;
                    return self.bytes.get(from..at + length);
                }
                (length, b'\\') => {
                    let escape = self.bytes.get(at + length + 1)?;
                    b"\"\\/bfnrt".contains(escape).then_some(())?;
                    at += length + 2;
                }
                _ => return None,
            }
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
        self.at += word.len();
        rest.starts_with(word).then_some(())
    }

    fn number(&mut self) -> Option<()> {
        let rest = self.bytes.get(self.at..)?;
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

/// How many bytes stand before one that means something in a text, and that one.
fn run(bytes: &[u8]) -> (usize, u8) {
    let found = bytes.iter().enumerate();
    let mut found = found.filter(|(_, it)| MEANS[usize::from(**it)]);
    found.next().map_or((bytes.len(), 0), |(at, it)| (at, *it))
}
