//! Splits text into runs of syllables and identifiers.

/// A run of characters of one class, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextRun {
    /// Syllables or ideographs, which have no spaces between words.
    Dense(Vec<char>),
    /// Letters and digits: the parts of an identifier such as `created_at` or
    /// `createdAt`.
    Word(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Dense,
    Word,
    Other,
}

/// Splits `text` into runs.
pub(super) fn split_runs(text: &str) -> Vec<TextRun> {
    let mut runs = Vec::new();
    let mut last = CharClass::Other;
    let mut was_lower = false;
    for c in compose_hangul(text) {
        let kind = char_class(c);
        match (kind, runs.last_mut()) {
            (CharClass::Dense, Some(TextRun::Dense(syllables))) if last == kind => {
                syllables.push(c);
            }
            (CharClass::Dense, _) => runs.push(TextRun::Dense(vec![c])),
            (CharClass::Word, Some(TextRun::Word(parts))) if last == kind => {
                push_to_parts(parts, c, was_lower && c.is_uppercase());
            }
            (CharClass::Word, _) => {
                let mut parts = Vec::new();
                push_to_parts(&mut parts, c, true);
                runs.push(TextRun::Word(parts));
            }
            (CharClass::Other, _) => (),
        }
        was_lower = c.is_lowercase();
        last = kind;
    }
    for run in &mut runs {
        if let TextRun::Word(parts) = run {
            parts.retain(|part| !part.is_empty());
        }
    }
    runs
}

/// Appends a character to the last part, or to a new one.
fn push_to_parts(parts: &mut Vec<String>, c: char, starts_part: bool) {
    if starts_part || c == '_' || parts.is_empty() {
        parts.push(String::new());
    }
    if c != '_'
        && let Some(part) = parts.last_mut()
    {
        part.extend(c.to_lowercase());
    }
}

fn char_class(c: char) -> CharClass {
    match c {
        '가'..='힣' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' => CharClass::Dense,
        '_' => CharClass::Word,
        c if c.is_alphanumeric() => CharClass::Word,
        _ => CharClass::Other,
    }
}

/// Composes Hangul letters (jamo) into syllables: some systems store them decomposed.
fn compose_hangul(text: &str) -> impl Iterator<Item = char> {
    let mut rest = text.chars().peekable();
    std::iter::from_fn(move || {
        let c = rest.next()?;
        let Some(lead) = jamo_index(c, '\u{1100}'..='\u{1112}') else {
            return Some(c);
        };
        let Some(vowel) = rest
            .peek()
            .and_then(|c| jamo_index(*c, '\u{1161}'..='\u{1175}'))
        else {
            return Some(c);
        };
        rest.next();
        let tail = rest
            .peek()
            .and_then(|c| jamo_index(*c, '\u{11a8}'..='\u{11c2}'));
        if tail.is_some() {
            rest.next();
        }
        let tail = tail.map_or(0, |it| it + 1);
        char::from_u32(0xac00 + (lead * 21 + vowel) * 28 + tail)
    })
}

/// Returns the position of `c` in `letters`.
fn jamo_index(c: char, letters: std::ops::RangeInclusive<char>) -> Option<u32> {
    letters
        .contains(&c)
        .then(|| u32::from(c) - u32::from(*letters.start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let shown = split_runs(text).into_iter().map(|run| match run {
            TextRun::Dense(syllables) => syllables.into_iter().collect(),
            TextRun::Word(parts) => parts.join("+"),
        });
        shown.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn identifiers_and_syllables_are_split() {
        let check = |text: &str, expected: &str| assert_eq!(shown(text), expected, "{text}");
        check(
            "users.created_at TIMESTAMP(6)",
            "users created+at timestamp 6",
        );
        check("createdAt orderID", "created+at order+id");
        check("user의 생일", "user 의 생일");
        check("수율(yield)", "수율 yield");
        check("__a__", "a");
        check("Größe 顧客名", "größe 顧客名");
        check("", "");
        check("-- !", "");
    }

    #[test]
    fn decomposed_hangul_is_composed() {
        // 한글 as macOS stores file names.
        assert_eq!(
            shown("\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            "한글"
        );
        assert_eq!(shown("\u{1100}"), "\u{1100}");
    }
}
