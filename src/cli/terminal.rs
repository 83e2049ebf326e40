//! Printing for people and programs.

use std::io::{self, Write as _};

use unicode_width::UnicodeWidthStr as _;

use super::logging::escape_control;

/// Prints to stdout; a reader who has seen enough is no error.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

/// Prints one line of complaint to stderr.
pub(super) fn print_error(text: &str) {
    // Without stderr there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "maru: {}", escape_control(text, ""));
}

/// Writes over the current line of stderr.
pub(super) fn overwrite_line(text: &str) {
    // Without stderr there is nobody to tell.
    let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
}

/// A cell that is wider moves the rest of its own row alone.
const MAX_COLUMN_WIDTH: usize = 60;

/// Columns padded to their widest entry; wide letters count twice.
///
/// A cell is one line: what a server said of itself could look like a row of its own.
pub(super) fn format_table(rows: &[Vec<String>]) -> String {
    let one_line = |row: &Vec<String>| row.iter().map(|it| escape_control(it, "")).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(one_line).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            rows.iter()
                .filter_map(|row| row.get(at))
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
            .map(|(cell, widest)| {
                let padding = widest.saturating_sub(cell.width());
                format!("{cell}{}", " ".repeat(padding))
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// `1 tool`, `2 tools`.
pub(super) fn count_of(count: usize, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

/// `word` as one word of a shell's command line.
pub(super) fn quote_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
