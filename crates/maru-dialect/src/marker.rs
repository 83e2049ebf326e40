//! Matches marker patterns against text, whatever the width of bars.

use super::cursor::TextCursor;

/// Longest suffix and space a pattern leaves open.
const MAX_SUFFIX_BYTES: usize = 24;

/// How many bytes of the text `pattern` covers, if it is next.
///
/// In a pattern, `|` stands for one or two bars of any width, `_` beside bars
/// also for `▁` and a space, `+` for a suffix such as `:opensource`, and `~`
/// for optional white space. Everything else stands for itself.
pub(super) fn match_length(pattern: &str, cursor: TextCursor<'_>) -> Option<usize> {
    // Most patterns fail here, and callers try many.
    if let (Some(wanted), Some(next)) = (pattern.bytes().next(), cursor.rest().bytes().next())
        && wanted != next
        && !matches!(wanted, b'|' | b'_' | b'+' | b'~')
    {
        return None;
    }
    let folded = pattern.contains('|');
    let mut ahead = cursor;
    for wanted in pattern.chars() {
        match wanted {
            '|' => bars(&mut ahead)?,
            '_' if folded => drop(ahead.bump().filter(|c| matches!(c, '_' | '▁' | ' '))?),
            '+' => suffix(&mut ahead)?,
            '~' => drop(ahead.take_while(char::is_whitespace)),
            _ => drop(ahead.bump().filter(|c| *c == wanted)?),
        }
    }
    Some(ahead.position() - cursor.position())
}

fn is_bar(c: char) -> bool {
    matches!(c, '|' | '｜' | '‖')
}

fn bars(ahead: &mut TextCursor<'_>) -> Option<()> {
    ahead.bump().filter(|c| is_bar(*c))?;
    if ahead.peek().is_some_and(is_bar) {
        ahead.bump();
    }
    Some(())
}

fn suffix(ahead: &mut TextCursor<'_>) -> Option<()> {
    if ahead.peek()? == ':' {
        ahead.bump();
        let name = ahead.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        return (1..=MAX_SUFFIX_BYTES).contains(&name.len()).then_some(());
    }
    Some(())
}
