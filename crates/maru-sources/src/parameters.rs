//! Values for the `:name`s of a statement.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Error;

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
}

/// One value. It is sent beside the statement and never becomes part of it.
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
}

impl QueryValue {
    /// Reads a JSON value as `kind`, strictly: `"1"` is not a number and `1` is
    /// not a boolean. `null` is a value of every kind.
    pub fn from_json(kind: QueryParameterKind, json: &Json) -> Option<Self> {
        match (kind, json) {
            (_, Json::Null) => Some(Self::Null),
            (QueryParameterKind::Text, Json::String(text)) => Some(Self::Text(text.clone())),
            (QueryParameterKind::Boolean, Json::Bool(truth)) => Some(Self::Boolean(*truth)),
            (QueryParameterKind::Number, Json::Number(number)) => from_json_number(number),
            (QueryParameterKind::Integer, Json::Number(number)) => {
                from_json_number(number).filter(|it| matches!(it, Self::Integer(_)))
            }
            _ => None,
        }
    }
}

fn from_json_number(number: &serde_json::Number) -> Option<QueryValue> {
    /// Up to here every whole number has a float of its own.
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

/// The values of a statement's parameters, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryParameters(BTreeMap<String, QueryValue>);

impl QueryParameters {
    /// Sets the value of `:name`.
    pub fn set(&mut self, name: impl Into<String>, value: QueryValue) {
        self.0.insert(name.into(), value);
    }

    /// The values of `names`, in that order; each must be there, and no other.
    pub(super) fn values_in_order(&self, names: &[&str]) -> Result<Vec<&QueryValue>, Error> {
        let undeclared = self.0.keys().find(|it| !names.contains(&it.as_str()));
        if let Some(name) = undeclared {
            return Err(Error::UnknownParameter(name.clone()));
        }
        names.iter().map(|name| self.checked_value(name)).collect()
    }

    fn checked_value(&self, name: &str) -> Result<&QueryValue, Error> {
        match self.0.get(name) {
            None => Err(Error::MissingParameter(name.to_owned())),
            Some(QueryValue::Text(text)) if text.contains('\0') => {
                Err(Error::NulInParameter(name.to_owned()))
            }
            Some(value) => Ok(value),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, QueryValue)> for QueryParameters {
    fn from_iter<I: IntoIterator<Item = (N, QueryValue)>>(values: I) -> Self {
        Self(
            values
                .into_iter()
                .map(|(name, value)| (name.into(), value))
                .collect(),
        )
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
}
