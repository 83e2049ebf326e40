//! What a tool that people made is.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{
    Flaw,
    parameter::{Parameter, flag},
};
use crate::store::{CustomParamRow, CustomToolRow};

/// A tool, read and well formed. Whether it can run is known when it is
/// compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What it is for, told to models.
    pub description_agent: String,
    /// The same, told to people.
    pub description_user: String,
    /// What it does.
    pub logic: Logic,
    /// The statement or expression.
    pub text: String,
    /// How the result is written.
    pub format: Format,
    /// Whether it is offered.
    pub is_active: bool,
    /// What it takes.
    pub params: Vec<Parameter>,
}

/// What a tool does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logic {
    /// Runs a statement on the source of this name, or on the first.
    Sql(Option<String>),
    /// Evaluates an expression.
    Python,
}

/// How a result is written for those who read text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One row as an object, any other number as a list; text as it is.
    Auto,
    /// The first row, or null.
    Row,
    /// A list of rows.
    Rows,
    /// A table of text.
    Table,
    /// A line of text for every row.
    Lines,
}

const FORMATS: &[(&str, Format)] = &[
    ("auto", Format::Auto),
    ("row", Format::Row),
    ("rows", Format::Rows),
    ("table", Format::Table),
    ("lines", Format::Lines),
];
const MAX_DESCRIPTION: usize = 4000;
const MAX_PARAMS: usize = 50;
/// What a definition has; the rest of what the API shows is not set by people.
const KNOWN: &[&str] = &[
    "name",
    "description_agent",
    "description_user",
    "tool_type",
    "source",
    "definition",
    "result_format",
    "is_active",
    "params",
];
const SHOWN: &[&str] = &["id", "version", "reg_dt", "upd_dt", "created_by", "fault"];

impl Definition {
    /// Reads one as the API has it.
    pub fn read(json: &Value) -> Result<Self, Flaw> {
        let Some(members) = json.as_object() else {
            return Err(Flaw::of(
                "tool",
                "a tool is an object with name, tool_type and definition",
            ));
        };
        known(members)?;
        let text = |field: &str| match members.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Flaw::of(field, "this is a text")),
        };
        let definition = Self {
            name: text("name")?,
            description_agent: text("description_agent")?,
            description_user: text("description_user")?,
            logic: logic(members)?,
            text: text("definition")?,
            format: format(members)?,
            is_active: flag(members.get("is_active"), true)
                .ok_or_else(|| Flaw::of("is_active", "use true or false"))?,
            params: params(members.get("params"))?,
        };
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), Flaw> {
        check_name(&self.name)?;
        for (field, text) in [
            ("description_agent", &self.description_agent),
            ("description_user", &self.description_user),
        ] {
            check_description(field, text)?;
        }
        if self.description_agent.trim().is_empty() {
            return Err(Flaw::of(
                "description_agent",
                "say what the tool is for, so that a model knows when to call it",
            ));
        }
        match self.text.trim().is_empty() {
            true => Err(Flaw::of("definition", "there is nothing to run")),
            false => Ok(()),
        }
    }

    /// As the API shows it.
    pub fn shown(&self) -> Value {
        json!({
            "name": self.name,
            "description_agent": self.description_agent,
            "description_user": self.description_user,
            "tool_type": self.logic.name(),
            "source": self.logic.source(),
            "definition": self.text,
            "result_format": self.format.name(),
            "is_active": self.is_active,
            "params": self.params.iter().map(Parameter::shown).collect::<Vec<_>>(),
        })
    }

    /// The schema that clients see.
    pub(super) fn schema(&self) -> Value {
        let properties = self.params.iter().map(|it| (it.name.clone(), it.schema()));
        let needed = self.params.iter().filter(|it| it.is_needed());
        let needed: Vec<&str> = needed.map(|it| it.name.as_str()).collect();
        json!({
            "type": "object",
            "properties": properties.collect::<Map<_, _>>(),
            "required": needed,
            "additionalProperties": false,
        })
    }

    /// As stored, without what the store adds.
    pub(super) fn row(&self) -> CustomToolRow {
        CustomToolRow {
            name: self.name.clone(),
            description_agent: self.description_agent.clone(),
            description_user: self.description_user.clone(),
            tool_type: self.logic.name().to_owned(),
            definition: self.text.clone(),
            is_active: self.is_active,
            source: self.logic.source().map(str::to_owned),
            result_format: self.format.name().to_owned(),
            params: self.params.iter().map(param_row).collect(),
            ..CustomToolRow::default()
        }
    }

    /// From the store, where others may have written too.
    pub(super) fn of_row(row: &CustomToolRow) -> Result<Self, Flaw> {
        let json = |text: &Option<String>| -> Value {
            let read = text.as_deref().map(serde_json::from_str);
            read.and_then(Result::ok).unwrap_or_default()
        };
        let params = row.params.iter().map(|it| {
            json!({
                "param_name": it.param_name,
                "param_type": it.param_type,
                "is_required": it.is_required,
                "description": it.description,
                "default": json(&it.default_value),
                "enum": json(&it.choices),
            })
        });
        Self::read(&json!({
            "name": row.name,
            "description_agent": row.description_agent,
            "description_user": row.description_user,
            "tool_type": row.tool_type,
            "source": row.source,
            "definition": row.definition,
            "result_format": row.result_format,
            "is_active": row.is_active,
            "params": params.collect::<Vec<_>>(),
        }))
    }
}

impl Logic {
    /// Its name in the API and the store.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sql(_) => "SQL",
            Self::Python => "PYTHON",
        }
    }

    fn source(&self) -> Option<&str> {
        match self {
            Self::Sql(source) => source.as_deref(),
            Self::Python => None,
        }
    }
}

impl Format {
    fn name(self) -> &'static str {
        let found = FORMATS.iter().find(|(_, it)| *it == self);
        found.map_or("auto", |(name, _)| *name)
    }
}

fn param_row(parameter: &Parameter) -> CustomParamRow {
    let choices = &parameter.choices;
    CustomParamRow {
        param_name: parameter.name.clone(),
        param_type: parameter.kind.name().to_owned(),
        is_required: parameter.required,
        description: parameter.description.clone(),
        default_value: parameter.default.as_ref().map(Value::to_string),
        choices: (!choices.is_empty()).then(|| Value::from(choices.clone()).to_string()),
    }
}

fn known(members: &Map<String, Value>) -> Result<(), Flaw> {
    let is_known = |it: &&String| KNOWN.contains(&it.as_str()) || SHOWN.contains(&it.as_str());
    match members.keys().find(|it| !is_known(it)) {
        None => Ok(()),
        Some(other) => Err(Flaw::of(
            other,
            format!(
                "a tool has no member {other:?}; known are {}",
                KNOWN.join(", ")
            ),
        )),
    }
}

/// Names that every client takes. Two underscores or a dot stand between a
/// server and its tool.
fn check_name(name: &str) -> Result<(), Flaw> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-');
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic());
    match begins && name.len() <= 64 && name.chars().all(plain) && !name.contains("__") {
        true => Ok(()),
        false => Err(Flaw::of(
            "name",
            "a name begins with a letter and has at most 64 of a-z, A-Z, 0-9, - and _, but not __",
        )),
    }
}

fn check_description(field: &str, text: &str) -> Result<(), Flaw> {
    let strange = |it: char| it.is_control() && !matches!(it, '\n' | '\t');
    match text.chars().count() <= MAX_DESCRIPTION && !text.contains(strange) {
        true => Ok(()),
        false => Err(Flaw::of(
            field,
            format!(
                "a description has at most {MAX_DESCRIPTION} characters and no control characters"
            ),
        )),
    }
}

fn logic(members: &Map<String, Value>) -> Result<Logic, Flaw> {
    let kind = members
        .get("tool_type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let source = members
        .get("source")
        .and_then(Value::as_str)
        .filter(|it| !it.is_empty());
    match kind.to_ascii_uppercase().as_str() {
        "SQL" => Ok(Logic::Sql(source.map(str::to_owned))),
        "PYTHON" => Ok(Logic::Python),
        _ => Err(Flaw::of("tool_type", "use SQL or PYTHON")),
    }
}

fn format(members: &Map<String, Value>) -> Result<Format, Flaw> {
    let given = match members.get("result_format") {
        None | Some(Value::Null) => return Ok(Format::Auto),
        Some(given) => given.as_str().unwrap_or_default(),
    };
    let found = FORMATS.iter().find(|(name, _)| *name == given);
    found
        .map(|(_, format)| *format)
        .ok_or_else(|| Flaw::of("result_format", "use auto, row, rows, table or lines"))
}

fn params(given: Option<&Value>) -> Result<Vec<Parameter>, Flaw> {
    let list = match given {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Flaw::of("params", "params is a list")),
    };
    if list.len() > MAX_PARAMS {
        return Err(Flaw::of(
            "params",
            format!("a tool has at most {MAX_PARAMS} parameters"),
        ));
    }
    let mut names = HashSet::new();
    let mut params = Vec::with_capacity(list.len());
    for (at, json) in list.iter().enumerate() {
        let field = format!("params.{at}");
        let parameter = Parameter::read(json, &field)?;
        if !names.insert(parameter.name.clone()) {
            return Err(Flaw::of(
                &field,
                format!("there are two parameters named {}", parameter.name),
            ));
        }
        params.push(parameter);
    }
    Ok(params)
}

impl Definition {
    /// Whether a statement can bind all its parameters.
    pub(super) fn check_bindable(&self) -> Result<(), Flaw> {
        let unbound = self.params.iter().position(|it| it.kind.bound().is_none());
        match unbound {
            None => Ok(()),
            Some(at) => Err(Flaw::of(
                &format!("params.{at}.param_type"),
                format!(
                    "{} cannot be a parameter of a statement; use STRING, NUMBER, INTEGER or BOOLEAN",
                    self.params[at].kind.name()
                ),
            )),
        }
    }
}
