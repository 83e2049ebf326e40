//! Output to stdout and stderr: text, errors, tables, progress.

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
};

use serde_json::Value;
use terminal_size::{Width, terminal_size_of};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

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
    let text = escape_control(&without_system_codes(text), "");
    let name = paint("maru:", Colour::Red, has_colours(&io::stderr()));
    // An error without stderr cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{name} {text}");
}

/// Prints what a person should know, beside the output, to stderr.
pub(super) fn print_note(text: &str) {
    let text = escape_control(text, "");
    let name = paint("note:", Colour::Dim, has_colours(&io::stderr()));
    let _ = writeln!(io::stderr().lock(), "{name} {text}");
}

/// `text` without line ends and other control characters.
pub(super) fn one_line(text: &str) -> String {
    escape_control(text, "")
}

/// Removes the numbers of system errors, whose text says the same.
fn without_system_codes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        let Some((_, tail)) = after.split_once(')') else {
            break;
        };
        out.push_str(before);
        rest = tail;
    }
    out + rest
}

/// Overwrites the current line of stderr.
pub(super) fn overwrite_line(text: &str) {
    // Progress without stderr is not shown.
    let _ = write!(io::stderr().lock(), "\r\x1b[K{text}");
}

/// Shows the progress of long work on one line of stderr, on a terminal only.
#[derive(Debug)]
pub(super) struct ProgressLine {
    is_shown: bool,
    step: usize,
}

const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

impl ProgressLine {
    pub(super) fn new() -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            step: 0,
        }
    }

    pub(super) fn show(&mut self, text: &str) {
        if self.is_shown {
            let sign = SPINNER[self.step % SPINNER.len()];
            self.step += 1;
            overwrite_line(&format!("{sign} {}", escape_control(text, "")));
        }
    }

    /// Prints a line of someone else's output above the progress.
    pub(super) fn print_above(&mut self, line: &str) {
        if self.is_shown {
            overwrite_line("");
        }
        let line = escape_control(line, "");
        let line = paint(&line, Colour::Dim, has_colours(&io::stderr()));
        let _ = writeln!(io::stderr().lock(), "{line}");
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.is_shown && self.step > 0 {
            overwrite_line("");
        }
    }
}

/// The maximum width that a column is padded to. A wider cell shifts only its own row.
const MAX_COLUMN_WIDTH: usize = 60;
/// The width below which a column is not cut.
const MIN_COLUMN_WIDTH: usize = 8;

#[derive(Clone, Copy)]
enum Colour {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

/// Formats a list of the hub as a table.
pub(super) fn table(
    header: &[&str],
    rows: &Value,
    cells: impl Fn(&Value) -> Vec<String>,
) -> String {
    format_table(&with_header(header, rows, cells))
}

/// Formats a list of the hub as a table of which nothing is cut.
pub(super) fn wrapped_table(
    header: &[&str],
    rows: &Value,
    cells: impl Fn(&Value) -> Vec<String>,
) -> String {
    format_wrapped_table(&with_header(header, rows, cells))
}

fn with_header(
    header: &[&str],
    rows: &Value,
    cells: impl Fn(&Value) -> Vec<String>,
) -> Vec<Vec<String>> {
    let header = header.iter().map(|it| (*it).to_owned()).collect();
    let rows = rows.as_array().into_iter().flatten().map(cells);
    std::iter::once(header).chain(rows).collect()
}

/// A member of an object as text.
pub(super) fn text_of(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// JSON of a tool for people: indented on a terminal, unchanged elsewhere.
pub(super) fn indent_json(text: String) -> String {
    if !io::stdout().is_terminal() || !text.starts_with(['{', '[']) {
        return text;
    }
    let value = serde_json::from_str::<Value>(&text);
    let value = value.and_then(|it| serde_json::to_string_pretty(&it));
    value.unwrap_or(text)
}

/// Formats a table with columns padded to their widest cell; wide characters count twice.
/// On a terminal, the widest columns are cut until a row fits.
///
/// Line ends inside a cell are escaped, because text of a server could otherwise look like
/// another row.
pub(super) fn format_table(rows: &[Vec<String>]) -> String {
    let stdout = io::stdout();
    let width = terminal_size_of(&stdout).map(|(Width(width), _)| usize::from(width));
    format_table_for(rows, width, Overflow::Cut, has_colours(&stdout))
}

/// Like [`format_table`], but nothing is lost: what does not fit continues on further lines.
pub(super) fn format_wrapped_table(rows: &[Vec<String>]) -> String {
    let stdout = io::stdout();
    let width = terminal_size_of(&stdout).map(|(Width(width), _)| usize::from(width));
    format_table_for(rows, width, Overflow::Wrap, has_colours(&stdout))
}

/// What happens to a cell that is wider than its column on a terminal.
#[derive(Clone, Copy)]
enum Overflow {
    Cut,
    Wrap,
}

fn format_table_for(
    rows: &[Vec<String>],
    line: Option<usize>,
    overflow: Overflow,
    coloured: bool,
) -> String {
    let escape_row = |row: &Vec<String>| row.iter().map(|it| escape_control(it, "")).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escape_row).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        cells.map(|it| it.width()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    match line {
        Some(line) => fit(&mut widths, line),
        None => widths
            .iter_mut()
            .for_each(|it| *it = (*it).min(MAX_COLUMN_WIDTH)),
    }
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let is_bold = index == 0 && is_header(row);
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| match (line, overflow) {
                (None, _) => vec![cell.clone()],
                (Some(_), Overflow::Cut) => vec![cut(cell, *width)],
                (Some(_), Overflow::Wrap) => wrap(cell, *width),
            });
        let cells: Vec<Vec<String>> = cells.collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            let pieces = cells.iter().zip(&widths).map(|(lines, width)| {
                let piece = lines.get(line).map_or("", String::as_str);
                let padding = " ".repeat(width.saturating_sub(piece.width()));
                let colour = if is_bold {
                    Some(Colour::Bold)
                } else {
                    colour_of(piece)
                };
                match colour {
                    Some(colour) => format!("{}{padding}", paint(piece, colour, coloured)),
                    None => format!("{piece}{padding}"),
                }
            });
            let pieces: Vec<String> = pieces.collect();
            text.push_str(pieces.join("  ").trim_end());
            text.push('\n');
        }
    }
    text
}

/// Breaks `cell` into lines of at most `width`, between words where that is possible.
fn wrap(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in cell.split(' ') {
        let used = lines.last().map_or(0, |it| it.width());
        if used > 0 && used + 1 + word.width() > width {
            lines.push(String::new());
        } else if used > 0 {
            lines.last_mut().expect("there is a line").push(' ');
        }
        for letter in word.chars() {
            let line = lines.last_mut().expect("there is a line");
            if line.width() + letter.width().unwrap_or(0) > width && !line.is_empty() {
                lines.push(letter.to_string());
            } else {
                line.push(letter);
            }
        }
    }
    lines
}

/// Cuts the widest columns until a row has at most `line` cells.
fn fit(widths: &mut [usize], line: usize) {
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > line {
        match widths.iter_mut().max() {
            Some(widest) if *widest > MIN_COLUMN_WIDTH => *widest -= 1,
            _ => return,
        }
    }
}

fn cut(cell: &str, width: usize) -> String {
    if cell.width() <= width {
        return cell.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for letter in cell.chars() {
        used += letter.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(letter);
    }
    out + "…"
}

fn is_header(row: &[String]) -> bool {
    row.len() > 1 && row.iter().all(|it| !it.chars().any(char::is_lowercase))
}

/// The colour of a state.
fn colour_of(cell: &str) -> Option<Colour> {
    match cell {
        "CONNECTED" | "ok" | "yes" | "on" => Some(Colour::Green),
        "FAILED" | "failed" | "error" | "refused" | "timed_out" => Some(Colour::Red),
        "CONNECTING" | "PENDING" | "warning" | "cancelled" => Some(Colour::Yellow),
        "DISABLED" | "DISCONNECTED" | "off" => Some(Colour::Dim),
        _ => None,
    }
}

fn paint(text: &str, colour: Colour, coloured: bool) -> String {
    let code = match colour {
        Colour::Bold => 1,
        Colour::Dim => 2,
        Colour::Red => 31,
        Colour::Green => 32,
        Colour::Yellow => 33,
    };
    if coloured {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Whether colours are shown: on a terminal, unless `NO_COLOR` is set (no-color.org).
fn has_colours(stream: &impl io::IsTerminal) -> bool {
    let is_set = |name: &str| env::var_os(name).is_some_and(|it| !it.is_empty());
    stream.is_terminal() && !is_set("NO_COLOR") && env::var_os("TERM").is_none_or(|it| it != "dumb")
}

/// A word of a command line that a POSIX shell reads as it is.
pub(super) fn quote_word(text: &str) -> String {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_./:@=%+,".contains(&it);
    if !text.is_empty() && text.bytes().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// Formats a count with its noun: `1 tool`, `2 tools`.
pub(super) fn count_of(count: usize, singular: &str, plural: &str) -> String {
    let noun = if count == 1 { singular } else { plural };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fits_the_terminal() {
        let rows = [
            vec!["NAME".to_owned(), "NOTE".to_owned()],
            vec![
                "files".to_owned(),
                "연차 문서를 읽고 찾는 서버입니다. ".repeat(5),
            ],
        ];
        let text = format_table_for(&rows, Some(40), Overflow::Cut, false);
        assert!(text.lines().all(|it| it.width() <= 40), "{text}");
        assert!(text.contains('…'));
        let text = format_table_for(&rows, Some(40), Overflow::Wrap, false);
        assert!(text.lines().all(|it| it.width() <= 40), "{text}");
        assert_eq!(text.matches("찾는 서버입니다.").count(), 5, "{text}");
        let text = format_table_for(&rows, None, Overflow::Cut, false);
        assert!(!text.contains('…') && !text.contains('\x1b'));
        assert!(
            format_table_for(&rows, None, Overflow::Cut, true).starts_with("\x1b[1mNAME\x1b[0m")
        );
    }

    #[test]
    fn system_errors_have_no_number() {
        let text = "cannot read x: No such file or directory (os error 2): y (os error 3)";
        let shown = "cannot read x: No such file or directory: y";
        assert_eq!(without_system_codes(text), shown);
    }
}
