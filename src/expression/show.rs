//! `repr()` and `str()`.

use std::fmt::Write as _;

use super::{
    dates,
    fault::{Result, limit, type_error},
    float,
    limits::Meter,
    value::{Map, Part, Value},
};

/// What `repr(value)` says, as a text of the language.
pub(super) fn repr(meter: &mut Meter<'_>, value: &Value) -> Result<String> {
    let most = meter.limits.text;
    let mut writer = Writer::new(meter, most);
    writer.repr(value)?;
    Ok(writer.out)
}

/// What `str(value)` says, as a text of the language.
pub(super) fn text(meter: &mut Meter<'_>, value: &Value) -> Result<String> {
    bounded(meter, value, meter.limits.text)
}

/// What `str(value)` says, in at most `most` bytes.
pub(super) fn bounded(meter: &mut Meter<'_>, value: &Value, most: usize) -> Result<String> {
    let mut writer = Writer::new(meter, most);
    match value {
        Value::Text(text) => writer.push(&text.body)?,
        Value::Date(days) => writer.push(&dates::date_text(*days))?,
        Value::DateTime(micros) => writer.push(&dates::datetime_text(*micros, ' '))?,
        Value::Delta(micros) => writer.push(&dates::delta_text(*micros))?,
        _ => writer.repr(value)?,
    }
    Ok(writer.out)
}

/// `repr()` with everything beyond ASCII escaped.
pub(super) fn ascii(meter: &mut Meter<'_>, value: &Value) -> Result<String> {
    let shown = repr(meter, value)?;
    if shown.is_ascii() {
        return Ok(shown);
    }
    meter.text(shown.chars().count() * 4, shown.len() * 4)?;
    let mut out = String::new();
    for c in shown.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => escape(c, &mut out),
        }
    }
    Ok(out)
}

/// Whether `repr()` writes it as it is.
pub(super) fn is_printable(c: char) -> bool {
    use unicode_general_category::{GeneralCategory as G, get_general_category};
    c.is_ascii_graphic()
        || c == ' '
        || !matches!(
            get_general_category(c),
            G::Control
                | G::Format
                | G::Surrogate
                | G::PrivateUse
                | G::Unassigned
                | G::LineSeparator
                | G::ParagraphSeparator
                | G::SpaceSeparator
        )
}

struct Writer<'m, 'a> {
    meter: &'m mut Meter<'a>,
    out: String,
    most: usize,
}

impl<'m, 'a> Writer<'m, 'a> {
    fn new(meter: &'m mut Meter<'a>, most: usize) -> Self {
        let out = String::new();
        Self { meter, out, most }
    }

    fn push(&mut self, part: &str) -> Result<()> {
        if self.out.len() + part.len() > self.most {
            return Err(limit(format!("a text longer than {} bytes", self.most)));
        }
        self.meter.memory(part.len())?;
        self.meter.scan(part.len())?;
        self.out.push_str(part);
        Ok(())
    }

    fn repr(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::None => self.push("None"),
            Value::Bool(true) => self.push("True"),
            Value::Bool(false) => self.push("False"),
            Value::Int(number) => self.push(&number.to_string()),
            Value::Big(number) => {
                self.meter.step(number.bits() * number.bits() / 65_536)?;
                self.push(&number.to_string())
            }
            Value::Float(number) => self.push(&float::repr(*number)),
            Value::Text(text) => self.quoted(&text.body),
            Value::List(items) => self.items("[", &items.items, "]"),
            Value::Tuple(items) => match items.items.len() {
                1 => self.items("(", &items.items, ",)"),
                _ => self.items("(", &items.items, ")"),
            },
            Value::Dict(dict) => self.dict(&dict.map),
            Value::Set(set) if set.keys.is_empty() => self.push("set()"),
            Value::Set(set) => {
                let items: Vec<Value> = set.keys.iter().map(|it| it.0.clone()).collect();
                self.items("{", &items, "}")
            }
            Value::Range(range) => {
                let (start, stop) = (range.start, range.stop);
                match range.step {
                    1 => self.push(&format!("range({start}, {stop})")),
                    step => self.push(&format!("range({start}, {stop}, {step})")),
                }
            }
            Value::View(view) => self.view(&view.dict.map, view.part),
            Value::Lazy(lazy) => Err(type_error(format!(
                "a {} has no text; make a list of it",
                lazy.type_name
            ))),
            Value::Date(_) | Value::DateTime(_) | Value::Delta(_) => self.push(&dates::repr(value)),
        }
    }

    fn items(&mut self, open: &str, items: &[Value], close: &str) -> Result<()> {
        self.push(open)?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.repr(item)?;
        }
        self.push(close)
    }

    fn dict(&mut self, map: &Map) -> Result<()> {
        self.push("{")?;
        for (at, (key, value)) in map.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.repr(&key.0)?;
            self.push(": ")?;
            self.repr(value)?;
        }
        self.push("}")
    }

    fn view(&mut self, map: &Map, part: Part) -> Result<()> {
        self.meter.items(map.len())?;
        match part {
            Part::Keys => {
                let keys: Vec<Value> = map.keys().map(|it| it.0.clone()).collect();
                self.items("dict_keys([", &keys, "])")
            }
            Part::Values => {
                let values: Vec<Value> = map.values().cloned().collect();
                self.items("dict_values([", &values, "])")
            }
            Part::Items => {
                self.push("dict_items([")?;
                for (at, (key, value)) in map.iter().enumerate() {
                    self.push(if at > 0 { ", (" } else { "(" })?;
                    self.repr(&key.0)?;
                    self.push(", ")?;
                    self.repr(value)?;
                    self.push(")")?;
                }
                self.push("])")
            }
        }
    }

    fn quoted(&mut self, body: &str) -> Result<()> {
        self.meter.scan(body.len())?;
        self.meter.memory(body.len() + 2)?;
        let double = body.contains('\'') && !body.contains('"');
        let quote = if double { '"' } else { '\'' };
        let mut out = String::with_capacity(body.len() + 2);
        out.push(quote);
        for c in body.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c == quote => out.extend(['\\', c]),
                c if is_printable(c) => out.push(c),
                c => escape(c, &mut out),
            }
        }
        out.push(quote);
        self.push(&out)
    }
}

fn escape(c: char, out: &mut String) {
    let code = c as u32;
    // Writing to a `String` does not fail.
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}
