//! What a tool that people made gives back.

use serde_json::Value;

use super::definition::Format;
use crate::source::Rows;

/// A result: a value as JSON, and what those get who read text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The value.
    pub json: String,
    /// The text.
    pub text: String,
}

const MORE: &str =
    "more rows were found than may be returned; ask for fewer, or count and group them";

impl Done {
    /// The rows of a query.
    pub(super) fn of_rows(rows: &Rows, format: Format) -> Self {
        let inside = rows.json.trim_start_matches('[').trim_end_matches(']');
        let json = match (format, rows.count) {
            (Format::Row, 0) => "null".to_owned(),
            (Format::Row, _) => return Self::same(inside.to_owned()),
            (Format::Auto, 1) if !rows.truncated => inside.to_owned(),
            _ if rows.truncated && matches!(format, Format::Auto | Format::Rows) => {
                format!(
                    "{{\"rows\":{},\"truncated\":true,\"note\":\"{MORE}\"}}",
                    rows.json
                )
            }
            _ => rows.json.clone(),
        };
        let mut done = Self::of_value(json, format);
        if rows.truncated && matches!(format, Format::Table | Format::Lines) {
            done.text.push_str(&format!("\n[{MORE}]"));
        }
        done
    }

    /// Any value, written as `format` says as far as that applies.
    pub(super) fn of_value(json: String, format: Format) -> Self {
        let text = match format {
            Format::Table => records(&json).map(|it| table(&it)),
            Format::Lines => records(&json).map(|it| lines(&it)),
            Format::Auto | Format::Row | Format::Rows => None,
        };
        match text {
            Some(text) => Self { json, text },
            None => Self::same(json),
        }
    }

    fn same(json: String) -> Self {
        let text = match json.starts_with('"') {
            true => serde_json::from_str(&json).unwrap_or_else(|_| json.clone()),
            false => json.clone(),
        };
        Self { json, text }
    }
}

/// Columns and rows of a list of objects; `None` if it is something else.
struct Records {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn records(json: &str) -> Option<Records> {
    let Ok(Value::Array(list)) = serde_json::from_str(json) else {
        return None;
    };
    let mut columns: Vec<String> = Vec::new();
    for row in &list {
        let new = row.as_object()?.keys().filter(|it| !columns.contains(it));
        let new: Vec<String> = new.cloned().collect();
        columns.extend(new);
    }
    let cells = |row: &Value| columns.iter().map(|it| cell(&row[it])).collect();
    let rows = list.iter().map(cells).collect();
    Some(Records { columns, rows })
}

/// A value on one line.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.replace(['\n', '\r', '\t'], " "),
        other => other.to_string(),
    }
}

/// As Markdown, which models and people read alike.
fn table(records: &Records) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|it| it.replace('|', "\\|")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule: Vec<String> = records.columns.iter().map(|_| "---".to_owned()).collect();
    let mut lines = vec![line(&records.columns), line(&rule)];
    lines.extend(records.rows.iter().map(|it| line(it)));
    lines.join("\n")
}

/// `name: value, name: value`, for each row.
fn lines(records: &Records) -> String {
    let line = |cells: &Vec<String>| {
        let named = records.columns.iter().zip(cells);
        let named: Vec<String> = named
            .map(|(name, cell)| format!("{name}: {cell}"))
            .collect();
        named.join(", ")
    };
    let lines: Vec<String> = records.rows.iter().map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(json: &str, count: usize, truncated: bool) -> Rows {
        Rows {
            columns: Vec::new(),
            json: json.to_owned(),
            count,
            truncated,
        }
    }

    #[test]
    fn rows_are_written_as_the_definition_says() {
        let none = rows("[]", 0, false);
        let one = rows(r#"[{"a":1,"b":"x|y"}]"#, 1, false);
        let two = rows(r#"[{"a":1,"b":null},{"a":[2],"b":"z\nz"}]"#, 2, false);
        let cases = [
            (&none, Format::Auto, "[]"),
            (&one, Format::Auto, r#"{"a":1,"b":"x|y"}"#),
            (
                &two,
                Format::Auto,
                r#"[{"a":1,"b":null},{"a":[2],"b":"z\nz"}]"#,
            ),
            (&none, Format::Row, "null"),
            (&one, Format::Row, r#"{"a":1,"b":"x|y"}"#),
            (&one, Format::Rows, r#"[{"a":1,"b":"x|y"}]"#),
            (
                &one,
                Format::Table,
                "| a | b |\n| --- | --- |\n| 1 | x\\|y |",
            ),
            (&two, Format::Lines, "a: 1, b: \na: [2], b: z z"),
            (&none, Format::Lines, ""),
        ];
        for (rows, format, expected) in cases {
            assert_eq!(Done::of_rows(rows, format).text, expected, "{format:?}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let cut = rows(r#"[{"a":1}]"#, 1, true);
        let told: Value = serde_json::from_str(&Done::of_rows(&cut, Format::Auto).json).unwrap();
        assert_eq!(told["truncated"], true);
        let text = Done::of_rows(&cut, Format::Lines).text;
        assert!(text.starts_with("a: 1\n[more rows"), "{text}");
        // Only the first row was asked for.
        assert_eq!(Done::of_rows(&cut, Format::Row).text, r#"{"a":1}"#);
    }

    #[test]
    fn text_is_not_quoted_for_readers_of_text() {
        let done = Done::of_value(r#""가\n""#.to_owned(), Format::Auto);
        assert_eq!(done.text, "가\n");
        assert_eq!(done.json, r#""가\n""#);
    }
}
