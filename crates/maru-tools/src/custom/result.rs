//! The result of a custom tool: a value as JSON and the text that a model gets.

use maru_sources::QueryRows;
use serde_json::Value;

use super::definition::ResultFormat;

/// A value as JSON and the text that a model gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomToolResult {
    /// The value.
    pub json: String,
    /// The text.
    pub text: String,
}

impl CustomToolResult {
    /// The rows of a query.
    pub(super) fn from_rows(
        rows: &QueryRows,
        format: ResultFormat,
        next_cursor: Option<&str>,
    ) -> Self {
        let note = rows.truncation_note().unwrap_or_default();
        let inside = rows.json.trim_start_matches('[').trim_end_matches(']');
        let json = match (format, rows.count) {
            (ResultFormat::Row, 0) if !rows.truncated => "null".to_owned(),
            // That there are more rows is no news to who asks for the first.
            (ResultFormat::Row, 1..) => return Self::with_plain_text(inside.to_owned()),
            (ResultFormat::Auto, 1) if !rows.truncated => inside.to_owned(),
            _ if rows.truncated
                && matches!(
                    format,
                    ResultFormat::Auto | ResultFormat::Row | ResultFormat::Rows
                ) =>
            {
                let cursor =
                    next_cursor.map_or_else(String::new, |it| format!(",\"next_cursor\":\"{it}\""));
                format!(
                    "{{\"rows\":{},\"truncated\":true,\"note\":\"{note}\"{cursor}}}",
                    rows.json
                )
            }
            _ => rows.json.clone(),
        };
        let mut done = Self::from_value(json, format);
        if rows.truncated
            && matches!(
                format,
                ResultFormat::Table | ResultFormat::Csv | ResultFormat::Lines
            )
        {
            let cursor = next_cursor.map_or_else(String::new, |it| format!("; next_cursor: {it}"));
            done.text.push_str(&format!("\n[{note}{cursor}]"));
        }
        done
    }

    /// The rows as a table in `format`, with the names of the columns even if there are none.
    pub(crate) fn from_table(rows: &QueryRows, format: ResultFormat) -> Self {
        let mut records = parse_records(&rows.json).unwrap_or_default();
        records.columns.clone_from(&rows.columns);
        let text = match format {
            ResultFormat::Csv => format_csv(&records),
            _ => format_table(&records),
        };
        Self {
            json: rows.json.clone(),
            text,
        }
    }

    /// Any value, written as `format` says as far as that applies.
    pub(super) fn from_value(json: String, format: ResultFormat) -> Self {
        let text = match format {
            ResultFormat::Table => parse_records(&json).map(|it| format_table(&it)),
            ResultFormat::Csv => parse_records(&json).map(|it| format_csv(&it)),
            ResultFormat::Lines => parse_records(&json).map(|it| format_lines(&it)),
            ResultFormat::Auto | ResultFormat::Row | ResultFormat::Rows => None,
        };
        match text {
            Some(text) => Self { json, text },
            None => Self::with_plain_text(json),
        }
    }

    fn with_plain_text(json: String) -> Self {
        let text = if json.starts_with('"') {
            serde_json::from_str(&json).unwrap_or_else(|_| json.clone())
        } else {
            json.clone()
        };
        Self { json, text }
    }
}

/// Columns and rows of a list of objects; `None` if it is something else.
#[derive(Default)]
struct TableRecords {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn parse_records(json: &str) -> Option<TableRecords> {
    let Ok(Value::Array(list)) = serde_json::from_str(json) else {
        return None;
    };
    let mut columns: Vec<String> = Vec::new();
    for row in &list {
        let new = row.as_object()?.keys().filter(|it| !columns.contains(it));
        let new: Vec<String> = new.cloned().collect();
        columns.extend(new);
    }
    let cells = |row: &Value| columns.iter().map(|it| cell_text(&row[it])).collect();
    let rows = list.iter().map(cells).collect();
    Some(TableRecords { columns, rows })
}

fn cell_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A text without line breaks.
fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
}

/// CSV by RFC 4180, with quotes where they are needed.
fn format_csv(records: &TableRecords) -> String {
    let field = |text: &String| {
        if text.contains(['"', ',', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.clone()
        }
    };
    let line = |cells: &Vec<String>| {
        let fields: Vec<String> = cells.iter().map(field).collect();
        fields.join(",")
    };
    let lines = std::iter::once(&records.columns).chain(&records.rows);
    let lines: Vec<String> = lines.map(line).collect();
    lines.join("\r\n")
}

/// A Markdown table, which both models and people can read.
fn format_table(records: &TableRecords) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .map(|it| on_one_line(it).replace('|', "\\|"))
            .collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule: Vec<String> = records.columns.iter().map(|_| "---".to_owned()).collect();
    let mut lines = vec![line(&records.columns), line(&rule)];
    lines.extend(records.rows.iter().map(|it| line(it)));
    lines.join("\n")
}

/// `name: value, name: value`, for each row.
fn format_lines(records: &TableRecords) -> String {
    let line = |cells: &Vec<String>| {
        let named = records.columns.iter().zip(cells);
        let named: Vec<String> = named
            .map(|(name, cell)| format!("{name}: {}", on_one_line(cell)))
            .collect();
        named.join(", ")
    };
    let lines: Vec<String> = records.rows.iter().map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(json: &str, count: usize, truncated: bool) -> QueryRows {
        QueryRows {
            columns: Vec::new(),
            json: json.to_owned(),
            count,
            truncated,
            has_oversized_row: false,
        }
    }

    #[test]
    fn rows_are_written_as_the_definition_says() {
        let none = rows("[]", 0, false);
        let one = rows(r#"[{"a":1,"b":"x|y"}]"#, 1, false);
        let two = rows(r#"[{"a":1,"b":null},{"a":[2],"b":"z\nz"}]"#, 2, false);
        let cases = [
            (&none, ResultFormat::Auto, "[]"),
            (&one, ResultFormat::Auto, r#"{"a":1,"b":"x|y"}"#),
            (
                &two,
                ResultFormat::Auto,
                r#"[{"a":1,"b":null},{"a":[2],"b":"z\nz"}]"#,
            ),
            (&none, ResultFormat::Row, "null"),
            (&one, ResultFormat::Row, r#"{"a":1,"b":"x|y"}"#),
            (&one, ResultFormat::Rows, r#"[{"a":1,"b":"x|y"}]"#),
            (
                &one,
                ResultFormat::Table,
                "| a | b |\n| --- | --- |\n| 1 | x\\|y |",
            ),
            (&two, ResultFormat::Csv, "a,b\r\n1,\r\n[2],\"z\nz\""),
            (&two, ResultFormat::Lines, "a: 1, b: \na: [2], b: z z"),
            (&none, ResultFormat::Lines, ""),
        ];
        for (rows, format, expected) in cases {
            assert_eq!(
                CustomToolResult::from_rows(rows, format, None).text,
                expected,
                "{format:?}"
            );
        }
    }

    #[test]
    fn truncated_result_says_so() {
        let cut = rows(r#"[{"a":1}]"#, 1, true);
        let shown: Value =
            serde_json::from_str(&CustomToolResult::from_rows(&cut, ResultFormat::Auto, None).json)
                .unwrap();
        assert_eq!(shown["truncated"], true);
        let oversized = QueryRows {
            has_oversized_row: true,
            ..rows("[]", 0, true)
        };
        let none = CustomToolResult::from_rows(&oversized, ResultFormat::Row, None);
        assert!(none.text.contains("a row is larger"), "{}", none.text);
        let text = CustomToolResult::from_rows(&cut, ResultFormat::Lines, None).text;
        assert!(text.starts_with("a: 1\n[more rows"), "{text}");
        // Only the first row was asked for.
        assert_eq!(
            CustomToolResult::from_rows(&cut, ResultFormat::Row, None).text,
            r#"{"a":1}"#
        );
    }

    #[test]
    fn string_result_is_plain_text() {
        let done = CustomToolResult::from_value(r#""가\n""#.to_owned(), ResultFormat::Auto);
        assert_eq!(done.text, "가\n");
        assert_eq!(done.json, r#""가\n""#);
    }
}
