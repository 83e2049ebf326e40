//! `repr()` and `str()`.

use std::fmt::Write as _;

use super::{
    dates,
    error::{Result, limit_error, type_error},
    float,
    limits::ResourceMeter,
    value::{DictMap, DictViewKind, Value},
};

/// Evaluates `repr(value)`.
pub(super) fn repr(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<String> {
    let most = meter.limits.text;
    let mut writer = ReprWriter::new(meter, most);
    writer.write_repr(value)?;
    Ok(writer.out)
}

/// Evaluates `str(value)`.
pub(super) fn to_text(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<String> {
    to_text_within(meter, value, meter.limits.text)
}

/// Evaluates `str(value)` in at most `max_bytes` bytes.
pub(super) fn to_text_within(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    most: usize,
) -> Result<String> {
    let mut writer = ReprWriter::new(meter, most);
    match value {
        Value::Text(text) => writer.push(&text.body)?,
        Value::Date(days) => writer.push(&dates::date_text(*days))?,
        Value::DateTime(micros) => writer.push(&dates::datetime_text(*micros, ' '))?,
        Value::TimeDelta(micros) => writer.push(&dates::delta_text(*micros))?,
        _ => writer.write_repr(value)?,
    }
    Ok(writer.out)
}

/// Evaluates `ascii(value)`: `repr()` with non-ASCII characters escaped.
pub(super) fn to_ascii(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<String> {
    let shown = repr(meter, value)?;
    if shown.is_ascii() {
        return Ok(shown);
    }
    meter.charge_text(shown.chars().count() * 4, shown.len() * 4)?;
    let mut out = String::new();
    for c in shown.chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            write_escape(c, &mut out);
        }
    }
    Ok(out)
}

/// Whether `repr()` writes the character without an escape.
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

struct ReprWriter<'m, 'a> {
    meter: &'m mut ResourceMeter<'a>,
    out: String,
    max_bytes: usize,
}

impl<'m, 'a> ReprWriter<'m, 'a> {
    fn new(meter: &'m mut ResourceMeter<'a>, max_bytes: usize) -> Self {
        let out = String::new();
        Self {
            meter,
            out,
            max_bytes,
        }
    }

    fn push(&mut self, part: &str) -> Result<()> {
        if self.out.len() + part.len() > self.max_bytes {
            return Err(limit_error(format!(
                "a text longer than {} bytes",
                self.max_bytes
            )));
        }
        self.meter.charge_memory(part.len())?;
        self.meter.charge_scan(part.len())?;
        self.out.push_str(part);
        Ok(())
    }

    fn write_repr(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::None => self.push("None"),
            Value::Bool(true) => self.push("True"),
            Value::Bool(false) => self.push("False"),
            Value::Int(number) => self.push(&number.to_string()),
            Value::BigInt(number) => {
                self.meter
                    .charge_steps(number.bits() * number.bits() / 65_536)?;
                self.push(&number.to_string())
            }
            Value::Float(number) => self.push(&float::repr(*number)),
            Value::Text(text) => self.write_quoted(&text.body),
            Value::List(items) => self.write_items("[", &items.items, "]"),
            Value::Tuple(items) => match items.items.len() {
                1 => self.write_items("(", &items.items, ",)"),
                _ => self.write_items("(", &items.items, ")"),
            },
            Value::Dict(dict) => self.write_dict(&dict.map),
            Value::Set(set) if set.keys.is_empty() => self.push("set()"),
            Value::Set(set) => {
                let items: Vec<Value> = set.keys.iter().map(|it| it.0.clone()).collect();
                self.write_items("{", &items, "}")
            }
            Value::Range(range) => {
                let (start, stop) = (range.start, range.stop);
                match range.step {
                    1 => self.push(&format!("range({start}, {stop})")),
                    step => self.push(&format!("range({start}, {stop}, {step})")),
                }
            }
            Value::DictView(view) => self.write_view(&view.dict.map, view.kind),
            Value::LazyIterator(lazy) => Err(type_error(format!(
                "a {} has no text; make a list of it",
                lazy.type_name
            ))),
            Value::Date(_) | Value::DateTime(_) | Value::TimeDelta(_) => {
                self.push(&dates::repr(value))
            }
        }
    }

    fn write_items(&mut self, open: &str, items: &[Value], close: &str) -> Result<()> {
        self.push(open)?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.write_repr(item)?;
        }
        self.push(close)
    }

    fn write_dict(&mut self, map: &DictMap) -> Result<()> {
        self.push("{")?;
        for (at, (key, value)) in map.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            self.write_repr(&key.0)?;
            self.push(": ")?;
            self.write_repr(value)?;
        }
        self.push("}")
    }

    fn write_view(&mut self, map: &DictMap, part: DictViewKind) -> Result<()> {
        self.meter.charge_items(map.len())?;
        match part {
            DictViewKind::Keys => {
                let keys: Vec<Value> = map.keys().map(|it| it.0.clone()).collect();
                self.write_items("dict_keys([", &keys, "])")
            }
            DictViewKind::Values => {
                let values: Vec<Value> = map.values().cloned().collect();
                self.write_items("dict_values([", &values, "])")
            }
            DictViewKind::Items => {
                self.push("dict_items([")?;
                for (at, (key, value)) in map.iter().enumerate() {
                    self.push(if at > 0 { ", (" } else { "(" })?;
                    self.write_repr(&key.0)?;
                    self.push(", ")?;
                    self.write_repr(value)?;
                    self.push(")")?;
                }
                self.push("])")
            }
        }
    }

    fn write_quoted(&mut self, body: &str) -> Result<()> {
        self.meter.charge_scan(body.len())?;
        self.meter.charge_memory(body.len() + 2)?;
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
                c => write_escape(c, &mut out),
            }
        }
        out.push(quote);
        self.push(&out)
    }
}

fn write_escape(c: char, out: &mut String) {
    let code = c as u32;
    // Writing to a `String` cannot fail.
    let _ = match code {
        0..=0xff => write!(out, "\\x{code:02x}"),
        0x100..=0xffff => write!(out, "\\u{code:04x}"),
        _ => write!(out, "\\U{code:08x}"),
    };
}
