//! What a tool that people made takes.

use serde_json::{Map, Value, json};

use super::Flaw;
use crate::source;

/// A parameter of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub kind: Kind,
    /// Whether it must be given.
    pub required: bool,
    /// What it is for.
    pub description: String,
    /// The value where none is given.
    pub default: Option<Value>,
    /// What may be given, if not everything of its kind.
    pub choices: Vec<Value>,
}

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    String,
    /// Any number.
    Number,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A list of anything; expressions only.
    List,
    /// Values by name; expressions only.
    Object,
}

const NAMES: &[(&str, Kind)] = &[
    ("STRING", Kind::String),
    ("NUMBER", Kind::Number),
    ("INTEGER", Kind::Integer),
    ("BOOLEAN", Kind::Boolean),
    ("LIST", Kind::List),
    ("OBJECT", Kind::Object),
    // The same under other names.
    ("ARRAY", Kind::List),
    ("DICT", Kind::Object),
    ("ENUM", Kind::String),
];
const MAX_NAME: usize = 64;
/// With the most parameters this is a schema that is still checked.
const MAX_CHOICES: usize = 80;

impl Kind {
    /// The kind of this name, in any case.
    pub fn read(name: &str) -> Option<Self> {
        let mut known = NAMES.iter();
        let found = known.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, kind)| *kind)
    }

    /// Its name in the API and the store.
    pub fn name(self) -> &'static str {
        let found = NAMES.iter().find(|(_, kind)| *kind == self);
        found.map_or("STRING", |(name, _)| *name)
    }

    /// What a statement binds it as; lists and objects are not bound.
    pub(super) fn bound(self) -> Option<source::Kind> {
        Some(match self {
            Self::String => source::Kind::Text,
            Self::Number => source::Kind::Number,
            Self::Integer => source::Kind::Integer,
            Self::Boolean => source::Kind::Boolean,
            Self::List | Self::Object => return None,
        })
    }

    fn in_schema(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::List => "array",
            Self::Object => "object",
        }
    }

    fn takes(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.as_f64().is_some_and(|it| it.fract() == 0.0),
            Self::Boolean => value.is_boolean(),
            Self::List => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

impl Parameter {
    /// Reads one as the API has it. `field` is where it stands.
    pub fn read(json: &Value, field: &str) -> Result<Self, Flaw> {
        let Some(members) = json.as_object() else {
            return Err(Flaw::of(
                field,
                "a parameter is an object with param_name and param_type",
            ));
        };
        known(members, field)?;
        let kind = kind(members, field)?;
        let parameter = Self {
            name: name(members, field)?,
            kind,
            required: flag(members.get("is_required"), true)
                .ok_or_else(|| Flaw::of(&format!("{field}.is_required"), "use true or false"))?,
            description: members
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            default: members.get("default").filter(|it| !it.is_null()).cloned(),
            choices: choices(members, kind, field)?,
        };
        parameter.check_default(field)?;
        Ok(parameter)
    }

    fn check_default(&self, field: &str) -> Result<(), Flaw> {
        let Some(value) = &self.default else {
            return Ok(());
        };
        let field = format!("{field}.default");
        if !self.kind.takes(value) {
            let kind = self.kind.name();
            return Err(Flaw::of(
                &field,
                format!("the default of {} is not a {kind}", self.name),
            ));
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            return Err(Flaw::of(
                &field,
                format!("the default of {} is not in its enum", self.name),
            ));
        }
        Ok(())
    }

    /// As the API shows it.
    pub fn shown(&self) -> Value {
        let mut shown = json!({
            "param_name": self.name,
            "param_type": self.kind.name(),
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

    /// Its part of the schema that clients see.
    pub(super) fn schema(&self) -> Value {
        let mut schema = json!({"type": self.kind.in_schema()});
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

    /// Whether a call without it is wrong.
    pub(super) fn is_needed(&self) -> bool {
        self.required && self.default.is_none()
    }
}

fn known(members: &Map<String, Value>, field: &str) -> Result<(), Flaw> {
    const KNOWN: &[&str] = &[
        "param_name",
        "param_type",
        "is_required",
        "description",
        "default",
        "enum",
    ];
    match members.keys().find(|it| !KNOWN.contains(&it.as_str())) {
        None => Ok(()),
        Some(other) => Err(Flaw::of(
            &format!("{field}.{other}"),
            format!(
                "a parameter has no member {other:?}; known are {}",
                KNOWN.join(", ")
            ),
        )),
    }
}

fn name(members: &Map<String, Value>, field: &str) -> Result<String, Flaw> {
    let name = members
        .get("param_name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut characters = name.chars();
    let begins = characters.next().is_some_and(char::is_alphabetic);
    let goes_on = characters.all(|it| it.is_alphanumeric() || it == '_');
    match begins && goes_on && name.len() <= MAX_NAME {
        true => Ok(name.to_owned()),
        false => Err(Flaw::of(
            &format!("{field}.param_name"),
            format!("{name:?} is no name of a parameter; use a letter, then letters, digits and _"),
        )),
    }
}

fn kind(members: &Map<String, Value>, field: &str) -> Result<Kind, Flaw> {
    let given = members
        .get("param_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    Kind::read(given).ok_or_else(|| {
        Flaw::of(
            &format!("{field}.param_type"),
            format!(
                "{given:?} is no type; use STRING, NUMBER, INTEGER, BOOLEAN, ENUM, LIST or OBJECT"
            ),
        )
    })
}

fn choices(members: &Map<String, Value>, kind: Kind, field: &str) -> Result<Vec<Value>, Flaw> {
    let field = format!("{field}.enum");
    let given = members.get("param_type").and_then(Value::as_str);
    let is_enum = given.is_some_and(|it| it.eq_ignore_ascii_case("ENUM"));
    let choices = match members.get("enum") {
        None | Some(Value::Null) if is_enum => {
            return Err(Flaw::of(
                &field,
                "an ENUM needs its values: \"enum\": [\"a\", \"b\"]",
            ));
        }
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(given) => given.as_array().cloned().unwrap_or_default(),
    };
    let fits =
        (1..=MAX_CHOICES).contains(&choices.len()) && choices.iter().all(|it| kind.takes(it));
    match fits {
        true => Ok(choices),
        false => Err(Flaw::of(
            &field,
            format!("an enum is a list of 1 to {MAX_CHOICES} values of its type"),
        )),
    }
}

/// True and false, also as the columns have them.
pub(super) fn flag(given: Option<&Value>, missing: bool) -> Option<bool> {
    match given {
        None | Some(Value::Null) => Some(missing),
        Some(Value::Bool(truth)) => Some(*truth),
        Some(Value::String(text)) if text == "Y" => Some(true),
        Some(Value::String(text)) if text == "N" => Some(false),
        Some(_) => None,
    }
}
