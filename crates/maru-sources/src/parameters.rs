//! Values for the `:name`s of a statement.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value as Json;

use super::Error;

/// The most text in the values of one statement, in bytes.
const MAX_PARAMETER_BYTES: usize = 1024 * 1024;
/// The most values in a list.
const MAX_LIST_VALUES: usize = 900;
/// The beginning of the names of values that tell about the caller.
pub const CALLER_PREFIX: &str = "caller.";

/// What a parameter is declared to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryParameterKind {
    /// Text.
    Text,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A day: `2026-11-18`.
    Date,
    /// A moment: `2026-11-18T15:04:05Z`, or without a zone.
    Timestamp,
    /// Texts, numbers or truth values, all of one kind: `= ANY(:ids)`.
    List,
    /// The name of a column, which becomes part of the statement: `ORDER BY :column`.
    Identifier,
}

/// One value. It is sent beside the statement and never becomes part of it, but for an
/// identifier, which is quoted.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryValue {
    /// No value.
    Null,
    /// True or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A number that is not whole, or is beyond 64 bits.
    Number(f64),
    /// Text.
    Text(String),
    /// A day, as ISO 8601 has it.
    Date(String),
    /// A moment without a zone, as ISO 8601 has it.
    Timestamp(String),
    /// A moment with a zone, as ISO 8601 has it.
    TimestampWithZone(String),
    /// Values of one kind, none of them a list.
    List(Vec<Self>),
    /// The name of a column.
    Identifier(SqlIdentifier),
}

/// The name of a column, alone or behind its table, and the direction of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlIdentifier {
    names: Vec<String>,
    direction: Option<&'static str>,
}

impl QueryValue {
    /// Reads a JSON value as `kind`, strictly: `"1"` is not a number and `1` is
    /// not a boolean. `null` is a value of every kind but an identifier.
    pub fn from_json(kind: QueryParameterKind, json: &Json) -> Option<Self> {
        match (kind, json) {
            (QueryParameterKind::Identifier, Json::String(text)) => {
                SqlIdentifier::parse(text).map(Self::Identifier)
            }
            (QueryParameterKind::Identifier, _) => None,
            (_, Json::Null) => Some(Self::Null),
            (QueryParameterKind::Text, Json::String(text)) => Some(Self::Text(text.clone())),
            (QueryParameterKind::Boolean, Json::Bool(truth)) => Some(Self::Boolean(*truth)),
            (QueryParameterKind::Number, Json::Number(number)) => from_json_number(number),
            (QueryParameterKind::Integer, Json::Number(number)) => {
                from_json_number(number).filter(|it| matches!(it, Self::Integer(_)))
            }
            (QueryParameterKind::Date, Json::String(text)) => parse_date(text),
            (QueryParameterKind::Timestamp, Json::String(text)) => parse_timestamp(text),
            (QueryParameterKind::List, Json::Array(list)) => parse_list(list),
            _ => None,
        }
    }

    /// The length of its text.
    fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::List(values) => values.iter().map(Self::text_bytes).sum(),
            _ => 0,
        }
    }

    fn has_nul(&self) -> bool {
        match self {
            Self::Text(text) => text.contains('\0'),
            Self::List(values) => values.iter().any(Self::has_nul),
            _ => false,
        }
    }
}

impl SqlIdentifier {
    /// Reads `column`, `table.column` or `column DESC`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let names: Vec<String> = words.next()?.split('.').map(str::to_owned).collect();
        let direction = match words.next().map(str::to_ascii_uppercase).as_deref() {
            None => None,
            Some("ASC") => Some("ASC"),
            Some("DESC") => Some("DESC"),
            Some(_) => return None,
        };
        let is_name = |it: &String| {
            let mut characters = it.chars();
            characters
                .next()
                .is_some_and(|it| it.is_alphabetic() || it == '_')
                && characters.all(|it| it.is_alphanumeric() || it == '_')
                && it.len() <= 63
        };
        let fits = words.next().is_none() && names.len() <= 3 && names.iter().all(is_name);
        fits.then_some(Self { names, direction })
    }

    /// The identifier as a statement has it.
    pub(super) fn to_sql(&self) -> String {
        let names = self.names.iter().map(|it| format!("\"{it}\""));
        let mut sql = names.collect::<Vec<_>>().join(".");
        if let Some(direction) = self.direction {
            sql.push(' ');
            sql.push_str(direction);
        }
        sql
    }
}

fn parse_date(text: &str) -> Option<QueryValue> {
    let date: jiff::civil::Date = text.parse().ok()?;
    (date.to_string() == text).then(|| QueryValue::Date(text.to_owned()))
}

fn parse_timestamp(text: &str) -> Option<QueryValue> {
    if text.len() < "2026-11-18T00:00".len() || text.contains('[') {
        return None;
    }
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(QueryValue::TimestampWithZone(moment.to_string()));
    }
    let moment: jiff::civil::DateTime = text.parse().ok()?;
    Some(QueryValue::Timestamp(moment.to_string()))
}

fn parse_list(list: &[Json]) -> Option<QueryValue> {
    let kind = match list.first() {
        None => return Some(QueryValue::List(Vec::new())),
        Some(Json::String(_)) => QueryParameterKind::Text,
        Some(Json::Number(_)) => QueryParameterKind::Number,
        Some(Json::Bool(_)) => QueryParameterKind::Boolean,
        Some(_) => return None,
    };
    let values = list.iter().map(|it| match it {
        Json::Null => None,
        it => QueryValue::from_json(kind, it),
    });
    let values: Option<Vec<QueryValue>> = values.collect();
    values
        .filter(|it| it.len() <= MAX_LIST_VALUES)
        .map(QueryValue::List)
}

fn from_json_number(number: &serde_json::Number) -> Option<QueryValue> {
    /// 2^53: up to here a float represents every integer exactly.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    if let Some(whole) = number.as_i64() {
        return Some(QueryValue::Integer(whole));
    }
    let number = number.as_f64().filter(|it| it.is_finite())?;
    let is_whole = number.fract() == 0.0 && number.abs() <= MAX_EXACT_INTEGER;
    Some(if is_whole {
        QueryValue::Integer(number as i64)
    } else {
        QueryValue::Number(number)
    })
}

/// The values of a statement's parameters, by name, and what is known of the caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryParameters {
    values: BTreeMap<String, QueryValue>,
    caller: Option<Arc<CallerValues>>,
}

/// What is known of the caller of a query, by name: `name`, `role`, claims of a token. A
/// statement has it as `:caller.name`; no argument can set it.
pub type CallerValues = BTreeMap<String, String>;

impl QueryParameters {
    /// Sets the value of `:name`.
    pub fn set(&mut self, name: impl Into<String>, value: QueryValue) {
        self.values.insert(name.into(), value);
    }

    /// Sets what is known of the caller.
    #[must_use]
    pub fn with_caller(mut self, caller: Arc<CallerValues>) -> Self {
        self.caller = Some(caller);
        self
    }

    /// What is known of the caller under this name.
    pub(super) fn caller_value(&self, name: &str) -> Option<&str> {
        let value = self.caller.as_ref().and_then(|it| it.get(name));
        value.map(String::as_str)
    }

    /// The value of `:name`.
    pub(super) fn get(&self, name: &str) -> Option<&QueryValue> {
        self.values.get(name)
    }

    /// Whether a value becomes part of the statement.
    pub(super) fn has_identifiers(&self) -> bool {
        let mut values = self.values.values();
        values.any(|it| matches!(it, QueryValue::Identifier(_)))
    }

    /// Refuses values for parameters that the statement does not have.
    pub(super) fn check_names(&self, names: &[&str]) -> Result<(), Error> {
        match self.values.keys().find(|it| !names.contains(&it.as_str())) {
            Some(name) => Err(Error::UnknownParameter(name.clone())),
            None => Ok(()),
        }
    }

    /// The values of `names`, in that order; each must be there.
    pub(super) fn values_in_order(&self, names: &[&str]) -> Result<Vec<QueryValue>, Error> {
        let values: Result<Vec<QueryValue>, Error> =
            names.iter().map(|name| self.checked_value(name)).collect();
        let values = values?;
        if values.iter().map(QueryValue::text_bytes).sum::<usize>() > MAX_PARAMETER_BYTES {
            return Err(Error::Refused(format!(
                "the values of its parameters are larger than {MAX_PARAMETER_BYTES} bytes"
            )));
        }
        Ok(values)
    }

    fn checked_value(&self, name: &str) -> Result<QueryValue, Error> {
        if let (Some(of_caller), Some(_)) = (name.strip_prefix(CALLER_PREFIX), &self.caller) {
            let value = self.caller_value(of_caller);
            let text = |it: &str| QueryValue::Text(it.to_owned());
            return Ok(value.map_or(QueryValue::Null, text));
        }
        match self.values.get(name) {
            None => Err(Error::MissingParameter(name.to_owned())),
            Some(value) if value.has_nul() => Err(Error::NulInParameter(name.to_owned())),
            Some(value) => Ok(value.clone()),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, QueryValue)> for QueryParameters {
    fn from_iter<I: IntoIterator<Item = (N, QueryValue)>>(values: I) -> Self {
        let values = values.into_iter();
        Self {
            values: values.map(|(name, value)| (name.into(), value)).collect(),
            caller: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_read_strictly() {
        let cases = [
            (
                QueryParameterKind::Text,
                json!("1"),
                Some(QueryValue::Text("1".into())),
            ),
            (QueryParameterKind::Text, json!(1), None),
            (QueryParameterKind::Number, json!("1"), None),
            (
                QueryParameterKind::Number,
                json!(1.5),
                Some(QueryValue::Number(1.5)),
            ),
            (
                QueryParameterKind::Number,
                json!(2026.0),
                Some(QueryValue::Integer(2026)),
            ),
            (
                QueryParameterKind::Number,
                json!(u64::MAX),
                Some(QueryValue::Number(u64::MAX as f64)),
            ),
            (QueryParameterKind::Integer, json!(1.5), None),
            (QueryParameterKind::Integer, json!(u64::MAX), None),
            (QueryParameterKind::Boolean, json!(1), None),
            (
                QueryParameterKind::Boolean,
                json!(true),
                Some(QueryValue::Boolean(true)),
            ),
            (QueryParameterKind::Text, json!(["a"]), None),
            (
                QueryParameterKind::Number,
                json!(null),
                Some(QueryValue::Null),
            ),
        ];
        for (kind, json, expected) in cases {
            assert_eq!(
                QueryValue::from_json(kind, &json),
                expected,
                "{kind:?} {json}"
            );
        }
    }

    #[test]
    fn dates_lists_and_identifiers_are_checked() {
        let text = |text: &str| QueryValue::Text(text.to_owned());
        let cases = [
            (QueryParameterKind::Date, json!("2026-02-28"), true),
            (QueryParameterKind::Date, json!("2026-02-30"), false),
            (
                QueryParameterKind::Date,
                json!("2026-02-28T00:00:00"),
                false,
            ),
            (QueryParameterKind::Date, json!("today"), false),
            (
                QueryParameterKind::Timestamp,
                json!("2026-11-18T15:04:05+09:00"),
                true,
            ),
            (
                QueryParameterKind::Timestamp,
                json!("2026-11-18 15:04"),
                true,
            ),
            (QueryParameterKind::Timestamp, json!("now"), false),
            (QueryParameterKind::List, json!([]), true),
            (QueryParameterKind::List, json!([1, 2.5]), true),
            (QueryParameterKind::List, json!(["a", null]), false),
            (QueryParameterKind::List, json!(["a", 1]), false),
            (QueryParameterKind::List, json!([[1]]), false),
            (QueryParameterKind::List, json!(vec![1; 1000]), false),
            (QueryParameterKind::Identifier, json!("이름"), true),
            (QueryParameterKind::Identifier, json!("e.name desc"), true),
            (
                QueryParameterKind::Identifier,
                json!("name; DROP TABLE t"),
                false,
            ),
            (QueryParameterKind::Identifier, json!("a\"b"), false),
            (QueryParameterKind::Identifier, json!("lower(name)"), false),
            (QueryParameterKind::Identifier, json!(null), false),
        ];
        for (kind, json, is_value) in cases {
            let value = QueryValue::from_json(kind, &json);
            assert_eq!(value.is_some(), is_value, "{kind:?} {json}");
        }
        let list = QueryValue::from_json(QueryParameterKind::List, &json!(["a", "b"]));
        assert_eq!(list, Some(QueryValue::List(vec![text("a"), text("b")])));
        let column = SqlIdentifier::parse("e.name desc").unwrap();
        assert_eq!(column.to_sql(), r#""e"."name" DESC"#);
    }

    #[test]
    fn arguments_never_set_values_of_the_caller() {
        let caller = Arc::new(CallerValues::from([("name".to_owned(), "kim".to_owned())]));
        let forged = QueryValue::Text("root".to_owned());
        let mut parameters: QueryParameters = [("caller.name", forged)].into_iter().collect();
        parameters = parameters.with_caller(caller);
        let values = parameters.values_in_order(&["caller.name", "caller.team"]);
        let expected = vec![QueryValue::Text("kim".to_owned()), QueryValue::Null];
        assert_eq!(values.unwrap(), expected);
        let large = QueryValue::Text("x".repeat(MAX_PARAMETER_BYTES + 1));
        let parameters: QueryParameters = [("a", large)].into_iter().collect();
        assert!(parameters.values_in_order(&["a"]).is_err());
    }
}
