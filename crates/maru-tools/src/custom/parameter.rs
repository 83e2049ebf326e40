//! Parameters of custom tools: their types, their JSON, their schema.

use maru_sources::{QueryParameterKind, QueryValue};
use serde_json::{Map, Value, json};

use super::ValidationError;

/// A parameter of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolParameter {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ParameterType,
    /// Whether a call must pass it, unless it has a default.
    pub required: bool,
    /// What it is for.
    pub description: String,
    /// The value if a call does not pass it.
    pub default: Option<Value>,
    /// The allowed values; empty if every value of the type is allowed.
    pub choices: Vec<Value>,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    /// Text.
    String,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A date: `2026-11-18`.
    Date,
    /// A date and time: `2026-11-18T15:04:05Z`, or without a time zone.
    Timestamp,
    /// A list; in a statement all of one type, for `= ANY(:ids)`.
    List,
    /// Values by name; expressions only.
    Object,
    /// A column out of `enum`, for `ORDER BY :column`; statements only.
    Identifier,
    /// Text that is bound as its vector, for `ORDER BY v <=> :question`; statements only.
    Embedding,
}

const TYPE_NAMES: &[(&str, ParameterType)] = &[
    ("STRING", ParameterType::String),
    ("NUMBER", ParameterType::Number),
    ("INTEGER", ParameterType::Integer),
    ("BOOLEAN", ParameterType::Boolean),
    ("DATE", ParameterType::Date),
    ("TIMESTAMP", ParameterType::Timestamp),
    ("LIST", ParameterType::List),
    ("OBJECT", ParameterType::Object),
    ("IDENTIFIER", ParameterType::Identifier),
    ("EMBEDDING", ParameterType::Embedding),
    // Aliases.
    ("ARRAY", ParameterType::List),
    ("DICT", ParameterType::Object),
    ("ENUM", ParameterType::String),
];
const MAX_NAME_BYTES: usize = 64;
/// Keeps the schema of a tool with the most parameters below the limit of nodes up to
/// which schemas are compiled.
const MAX_ENUM_VALUES: usize = 80;

impl ParameterType {
    /// The type of this name, in upper or lower case.
    pub fn parse(name: &str) -> Option<Self> {
        let mut known = TYPE_NAMES.iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, kind)| *kind)
    }

    /// Its name in the API and the store.
    pub fn parse_name(self) -> &'static str {
        let found = TYPE_NAMES.iter().find(|(_, kind)| *kind == self);
        found.map_or("STRING", |(name, _)| *name)
    }

    /// The kind that a statement binds it as; `None` for objects, which cannot be bound.
    pub(super) fn sql_kind(self) -> Option<QueryParameterKind> {
        Some(match self {
            Self::String | Self::Embedding => QueryParameterKind::Text,
            Self::Number => QueryParameterKind::Number,
            Self::Integer => QueryParameterKind::Integer,
            Self::Boolean => QueryParameterKind::Boolean,
            Self::Date => QueryParameterKind::Date,
            Self::Timestamp => QueryParameterKind::Timestamp,
            Self::List => QueryParameterKind::List,
            Self::Identifier => QueryParameterKind::Identifier,
            Self::Object => return None,
        })
    }

    /// Whether only a statement can use it.
    pub(super) fn is_sql_only(self) -> bool {
        matches!(self, Self::Identifier | Self::Embedding)
    }

    fn schema_type(self) -> &'static str {
        match self {
            Self::String | Self::Date | Self::Timestamp | Self::Identifier | Self::Embedding => {
                "string"
            }
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "array",
            Self::Object => "object",
        }
    }

    fn accepts(self, value: &Value) -> bool {
        match self {
            Self::String | Self::Embedding => value.is_string(),
            Self::Date => QueryValue::from_json(QueryParameterKind::Date, value).is_some(),
            Self::Timestamp => {
                QueryValue::from_json(QueryParameterKind::Timestamp, value).is_some()
            }
            Self::Identifier => {
                QueryValue::from_json(QueryParameterKind::Identifier, value).is_some()
            }
            Self::Number => value.is_number(),
            Self::Integer => value.as_f64().is_some_and(|it| it.fract() == 0.0),
            Self::Boolean => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

impl ToolParameter {
    /// Parses and validates a parameter; `field` is its path in the definition.
    pub fn from_json(json: &Value, field: &str) -> Result<Self, ValidationError> {
        let Some(members) = json.as_object() else {
            return Err(ValidationError::for_field(
                field,
                "a parameter is an object with param_name and param_type",
            ));
        };
        check_known_fields(members, field)?;
        let kind = parse_type(members, field)?;
        let parameter = Self {
            name: name(members, field)?,
            kind,
            required: parse_flag(members.get("is_required"), true).ok_or_else(|| {
                ValidationError::for_field(&format!("{field}.is_required"), "use true or false")
            })?,
            description: members
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            default: members.get("default").filter(|it| !it.is_null()).cloned(),
            choices: parse_choices(members, kind, field)?,
        };
        parameter.check_default(field)?;
        Ok(parameter)
    }

    fn check_default(&self, field: &str) -> Result<(), ValidationError> {
        let Some(value) = &self.default else {
            return Ok(());
        };
        let field = format!("{field}.default");
        if !self.kind.accepts(value) {
            let kind = self.kind.parse_name();
            return Err(ValidationError::for_field(
                &field,
                format!("the default of {} is not a {kind}", self.name),
            ));
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            return Err(ValidationError::for_field(
                &field,
                format!("the default of {} is not in its enum", self.name),
            ));
        }
        Ok(())
    }

    /// The parameter as the API shows it.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "param_name": self.name,
            "param_type": self.kind.parse_name(),
            "is_required": self.required,
            "description": self.description,
        });
        if let Some(default) = &self.default {
            shown["default"] = default.clone();
        }
        if !self.choices.is_empty() {
            shown["enum"] = self.choices.clone().into();
        }
        shown
    }

    /// Its property in the input schema that clients see.
    pub(super) fn schema(&self) -> Value {
        let mut schema = json!({"type": self.kind.schema_type()});
        match self.kind {
            ParameterType::Date => schema["format"] = "date".into(),
            ParameterType::Timestamp => schema["format"] = "date-time".into(),
            _ => (),
        }
        if !self.description.is_empty() {
            schema["description"] = self.description.as_str().into();
        }
        if !self.choices.is_empty() {
            schema["enum"] = self.choices.clone().into();
        }
        if let Some(default) = &self.default {
            schema["default"] = default.clone();
        }
        schema
    }

    /// Whether a call without it is refused.
    pub(super) fn is_required_in_call(&self) -> bool {
        self.required && self.default.is_none()
    }
}

fn check_known_fields(members: &Map<String, Value>, field: &str) -> Result<(), ValidationError> {
    const PARAMETER_FIELDS: &[&str] = &[
        "param_name",
        "param_type",
        "is_required",
        "description",
        "default",
        "enum",
    ];
    match members
        .keys()
        .find(|it| !PARAMETER_FIELDS.contains(&it.as_str()))
    {
        None => Ok(()),
        Some(other) => Err(ValidationError::for_field(
            &format!("{field}.{other}"),
            format!(
                "a parameter has no member {other:?}; known are {}",
                PARAMETER_FIELDS.join(", ")
            ),
        )),
    }
}

fn name(members: &Map<String, Value>, field: &str) -> Result<String, ValidationError> {
    let name = members
        .get("param_name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(char::is_alphabetic);
    let goes_on = characters.all(|it| it.is_alphanumeric() || it == '_');
    if begins && goes_on && name.len() <= MAX_NAME_BYTES {
        Ok(name.to_owned())
    } else {
        Err(ValidationError::for_field(
            &format!("{field}.param_name"),
            format!("{name:?} is no name of a parameter; use a letter, then letters, digits and _"),
        ))
    }
}

fn parse_type(members: &Map<String, Value>, field: &str) -> Result<ParameterType, ValidationError> {
    let given = members
        .get("param_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ParameterType::parse(given).ok_or_else(|| {
        ValidationError::for_field(
            &format!("{field}.param_type"),
            format!(
                "{given:?} is no type; use STRING, NUMBER, INTEGER, BOOLEAN, DATE, TIMESTAMP, ENUM, IDENTIFIER, LIST, OBJECT or EMBEDDING"
            ),
        )
    })
}

fn parse_choices(
    members: &Map<String, Value>,
    kind: ParameterType,
    field: &str,
) -> Result<Vec<Value>, ValidationError> {
    let field = format!("{field}.enum");
    let given = members.get("param_type").and_then(Value::as_str);
    let is_enum = given.is_some_and(|it| it.eq_ignore_ascii_case("ENUM"))
        || kind == ParameterType::Identifier;
    let choices = match members.get("enum") {
        None | Some(Value::Null) if is_enum => {
            return Err(ValidationError::for_field(
                &field,
                "an ENUM or IDENTIFIER needs its values: \"enum\": [\"a\", \"b\"]",
            ));
        }
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(given) => given.as_array().cloned().unwrap_or_default(),
    };
    let fits =
        (1..=MAX_ENUM_VALUES).contains(&choices.len()) && choices.iter().all(|it| kind.accepts(it));
    if fits {
        Ok(choices)
    } else {
        Err(ValidationError::for_field(
            &field,
            format!("an enum is a list of 1 to {MAX_ENUM_VALUES} values of its type"),
        ))
    }
}

/// A boolean, also written `Y` or `N` as in the columns of the store.
pub(super) fn parse_flag(given: Option<&Value>, missing: bool) -> Option<bool> {
    match given {
        None | Some(Value::Null) => Some(missing),
        Some(Value::Bool(truth)) => Some(*truth),
        Some(Value::String(text)) if text == "Y" => Some(true),
        Some(Value::String(text)) if text == "N" => Some(false),
        Some(_) => None,
    }
}
