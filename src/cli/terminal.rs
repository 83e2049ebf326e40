//! Output to stdout and stderr: text, errors, tables.

use std::io::{self, Write as _};

use unicode_width::UnicodeWidthStr as _;

use super::logging::escape_control;

/// Prints to stdout; a closed pipe is not an error.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints an error to stderr as one line.
pub(super) fn print_error(text: &str) {
    // An error without stderr cannot be reported.
    let _ = writeln!(io::stderr().lock(), "maru: {}", escape_control(text, ""));
}

/// Overwrites the current line of stderr.
pub(super) fn overwrite_line(text: &str) {
    // Progress without stderr is not shown.
    let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
}

/// The maximum width that a column is padded to. A wider cell shifts only its own row.
const MAX_COLUMN_WIDTH: usize = 60;

/// Formats a table with columns padded to their widest cell; wide characters count twice.
///
/// Line ends inside a cell are escaped, because text of a server could otherwise look like
/// another row.
pub(super) fn format_table(rows: &[Vec<String>]) -> String {
    let escape_row = |row: &Vec<String>| row.iter().map(|it| escape_control(it, "")).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escape_row).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|index| {
            rows.iter()
                .filter_map(|row| row.get(index))
                .map(|it| it.width())
                .max()
                .unwrap_or(0)
                .min(MAX_COLUMN_WIDTH)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| {
                let padding = width.saturating_sub(cell.width());
                format!("{cell}{}", " ".repeat(padding))
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Formats a count with its noun: `1 tool`, `2 tools`.
pub(super) fn count_of(count: usize, singular: &str, plural: &str) -> String {
    let noun = if count == 1 { singular } else { plural };
    format!("{count} {noun}")
}

/// Quotes `word` as one word of a shell command line.
pub(super) fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
