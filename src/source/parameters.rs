//! Values for the `:name`s of a statement.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::Error;

/// What a parameter is declared to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
pub enum Value {
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

impl Value {
    /// Reads a JSON value as `kind`, strictly: `"1"` is not a number and `1` is
    /// not a boolean. `null` is a value of every kind.
    pub fn read(kind: Kind, json: &Json) -> Option<Self> {
        match (kind, json) {
            (_, Json::Null) => Some(Self::Null),
            (Kind::Text, Json::String(text)) => Some(Self::Text(text.clone())),
            (Kind::Boolean, Json::Bool(truth)) => Some(Self::Boolean(*truth)),
            (Kind::Number, Json::Number(number)) => number_of(number),
            (Kind::Integer, Json::Number(number)) => {
                number_of(number).filter(|it| matches!(it, Self::Integer(_)))
            }
            _ => None,
        }
    }
}

fn number_of(number: &serde_json::Number) -> Option<Value> {
    /// Up to here every whole number has a float of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(whole) = number.as_i64() {
        return Some(Value::Integer(whole));
    }
    let number = number.as_f64().filter(|it| it.is_finite())?;
    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT;
    Some(match is_whole {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
        true => Value::Integer(number as i64),
        false => Value::Number(number),
    })
}

/// The values of a statement's parameters, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters(BTreeMap<String, Value>);

impl Parameters {
    /// Sets the value of `:name`.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        self.0.insert(name.into(), value);
    }

    /// The values of `names`, in that order; each must be there, and no other.
    pub(super) fn for_names(&self, names: &[&str]) -> Result<Vec<&Value>, Error> {
        let undeclared = self.0.keys().find(|it| !names.contains(&it.as_str()));
        if let Some(name) = undeclared {
            return Err(Error::Undeclared(name.clone()));
        }
        names.iter().map(|name| self.of(name)).collect()
    }

    fn of(&self, name: &str) -> Result<&Value, Error> {
        match self.0.get(name) {
            None => Err(Error::Missing(name.to_owned())),
            Some(Value::Text(text)) if text.contains('\0') => Err(Error::Nul(name.to_owned())),
            Some(value) => Ok(value),
        }
    }
}

impl<N: Into<String>> FromIterator<(N, Value)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (N, Value)>>(values: I) -> Self {
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
            (Kind::Text, json!("1"), Some(Value::Text("1".into()))),
            (Kind::Text, json!(1), None),
            (Kind::Number, json!("1"), None),
            (Kind::Number, json!(1.5), Some(Value::Number(1.5))),
            (Kind::Number, json!(2026.0), Some(Value::Integer(2026))),
            (
                Kind::Number,
                json!(u64::MAX),
                Some(Value::Number(u64::MAX as f64)),
            ),
            (Kind::Integer, json!(1.5), None),
            (Kind::Integer, json!(u64::MAX), None),
            (Kind::Boolean, json!(1), None),
            (Kind::Boolean, json!(true), Some(Value::Boolean(true))),
            (Kind::Text, json!(["a"]), None),
            (Kind::Number, json!(null), Some(Value::Null)),
        ];
        for (kind, json, expected) in cases {
            assert_eq!(Value::read(kind, &json), expected, "{kind:?} {json}");
        }
    }
}
