//! Errors in the form in which PostgreSQL's own drivers show them.

use unicode_width::UnicodeWidthChar as _;

use crate::Error;

/// Columns of the statement that are shown at most, as in libpq.
const MAX_SHOWN_WIDTH: usize = 60;
/// Columns that stay visible right of the error, as in libpq.
const MIN_RIGHT_WIDTH: usize = 10;

/// The message as libpq and its drivers write it: the database's message, the
/// line of the statement with a caret under the error, and the hint.
pub(super) fn format_error(error: &Error, statement: &str) -> String {
    match error {
        Error::AtPosition { position, error } => {
            let (message, hint) = message_and_hint(error);
            let marked = mark_position(statement, *position);
            [Some(message), marked, hint]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("\n")
        }
        error => {
            let (message, hint) = message_and_hint(error);
            match hint {
                Some(hint) => format!("{message}\n{hint}"),
                None => message,
            }
        }
    }
}

fn message_and_hint(error: &Error) -> (String, Option<String>) {
    match error {
        Error::Database(message) => (message.clone(), None),
        Error::Rejected { message, hint } => {
            let hint = hint.as_ref().map(|hint| format!("HINT:  {hint}"));
            (message.clone(), hint)
        }
        other => (other.to_string(), None),
    }
}

/// The line of the error and a caret under it: libpq's `reportErrorPosition`.
/// `position` counts the characters before the error.
fn mark_position(statement: &str, position: usize) -> Option<String> {
    let characters: Vec<char> = statement.chars().collect();
    if position > characters.len() {
        return None;
    }
    let is_line_end = |it: &char| matches!(it, '\r' | '\n');
    let start = characters[..position].iter().rposition(is_line_end);
    let mut start = start.map_or(0, |at| at + 1);
    let end = characters[position..].iter().position(is_line_end);
    let mut end = end.map_or(characters.len(), |at| position + at);
    let line_number = 1 + count_line_ends(&characters[..start]);
    let columns = screen_columns(&characters);
    let width_of = |from: usize, to: usize| columns[to] - columns[from];
    let (mut cut_left, mut cut_right) = ("", "");
    if width_of(start, end) > MAX_SHOWN_WIDTH {
        if MAX_SHOWN_WIDTH >= width_of(start, position) + MIN_RIGHT_WIDTH {
            while width_of(start, end) > MAX_SHOWN_WIDTH {
                end -= 1;
            }
            cut_right = "...";
        } else {
            while width_of(position, end) > MIN_RIGHT_WIDTH {
                end -= 1;
                cut_right = "...";
            }
            while width_of(start, end) > MAX_SHOWN_WIDTH {
                start += 1;
                cut_left = "...";
            }
        }
    }
    let line: String = characters[start..end].iter().collect();
    let line = line.replace('\t', " ");
    let prefix = format!("LINE {line_number}: {cut_left}");
    let indent = " ".repeat(prefix.len() + width_of(start, position));
    Some(format!("{prefix}{line}{cut_right}\n{indent}^"))
}

/// The screen column of each character and of the end. Wide characters take two.
fn screen_columns(characters: &[char]) -> Vec<usize> {
    let mut columns = Vec::with_capacity(characters.len() + 1);
    let mut column = 0;
    columns.push(column);
    for character in characters {
        column += character.width().unwrap_or(1).max(1);
        columns.push(column);
    }
    columns
}

/// Line ends, where `\r\n` is one.
fn count_line_ends(characters: &[char]) -> usize {
    let ends = characters.iter().enumerate();
    ends.filter(|(at, it)| match it {
        '\r' => true,
        '\n' => *at == 0 || characters[at - 1] != '\r',
        _ => false,
    })
    .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(statement: &str, wrong: &str, expected: &str) {
        let before = statement.split(wrong).next().unwrap();
        let error = Error::AtPosition {
            position: before.chars().count(),
            error: Box::new(Error::Rejected {
                message: "wrong".to_owned(),
                hint: Some("right".to_owned()),
            }),
        };
        assert_eq!(
            error.driver_message(statement),
            format!("wrong\n{expected}\nHINT:  right")
        );
    }

    /// The expected texts are what psycopg 3.3 shows.
    #[test]
    fn statement_is_shown_with_a_caret_under_the_error() {
        check(
            "SELEC user_id FROM users",
            "SELEC",
            "LINE 1: SELEC user_id FROM users\n        ^",
        );
        check(
            "SELECT 1,\n\t한글, nosuch FROM users WHERE user_id = 1 AND username = 'alice' AND email = 'a long line that is cut'",
            "한글",
            "LINE 2:  한글, nosuch FROM users WHERE user_id = 1 AND username = 'a...\n         ^",
        );
        check(
            "SELECT '한글 문자열이 길게 이어집니다', 'and more of it until the line is long', nosuch FROM users WHERE true",
            "nosuch",
            "LINE 1: ...집니다', 'and more of it until the line is long', nosuch FRO...\n                                                             ^",
        );
        check(
            "SELECT 1\r\n\r\nFROM x",
            "x",
            "LINE 3: FROM x\n             ^",
        );
    }

    #[test]
    fn error_without_a_place_is_its_message() {
        let error = Error::Database("division by zero".to_owned());
        assert_eq!(error.driver_message("SELECT 1/0"), "division by zero");
        assert_eq!(
            Error::TimedOut.driver_message("SELECT 1"),
            "the query took too long and was stopped"
        );
    }
}
