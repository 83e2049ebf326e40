//! `'…' % values`

use num_bigint::BigInt;
use num_traits::ToPrimitive as _;

use super::{
    fault::{Kind, Result, Trouble, type_error, value_error},
    float,
    format::{Spec, format_integer, format_text},
    format_float,
    limits::Meter,
    show,
    value::{Key, Text, Value},
};

pub(super) fn format(meter: &mut Meter<'_>, form: &Text, values: &Value) -> Result<Value> {
    let mut reader = Reader {
        rest: &form.body,
        values,
        used: 0,
        named: false,
    };
    let mut out = String::new();
    let mut chars = 0;
    while let Some(at) = reader.rest.find('%') {
        let (before, rest) = reader.rest.split_at(at);
        reader.rest = &rest[1..];
        let shown = reader.conversion(meter)?;
        chars += before.chars().count() + shown.chars().count();
        meter.text(chars, before.len() + shown.len())?;
        out.push_str(before);
        out.push_str(&shown);
    }
    reader.finish()?;
    meter.text(chars + reader.rest.chars().count(), reader.rest.len())?;
    out.push_str(reader.rest);
    Ok(Value::text(out))
}

struct Reader<'v> {
    rest: &'v str,
    values: &'v Value,
    used: usize,
    named: bool,
}

impl Reader<'_> {
    fn conversion(&mut self, meter: &mut Meter<'_>) -> Result<String> {
        let named = self.name()?;
        let mut spec = self.flags();
        let width = self.number()?;
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = width.unsigned_abs() as usize;
        if self.eat('.') {
            spec.precision = Some(self.number()?.max(0) as usize);
        }
        let Some(kind) = self.rest.chars().next() else {
            return Err(value_error("incomplete format"));
        };
        self.rest = &self.rest[kind.len_utf8()..];
        if kind == '%' {
            return Ok("%".to_owned());
        }
        let value = match named {
            Some(name) => self.by_name(&name)?,
            None => self.next()?,
        };
        spec.kind = Some(kind);
        shown(meter, &value, spec)
    }

    fn name(&mut self) -> Result<Option<String>> {
        if !self.eat('(') {
            return Ok(None);
        }
        let Some((name, rest)) = self.rest.split_once(')') else {
            return Err(value_error("incomplete format key"));
        };
        self.rest = rest;
        self.named = true;
        Ok(Some(name.to_owned()))
    }

    fn by_name(&self, name: &str) -> Result<Value> {
        let Value::Dict(dict) = self.values else {
            return Err(type_error("format requires a mapping"));
        };
        match dict.map.get(&Key(Value::text(name))) {
            Some(value) => Ok(value.clone()),
            None => Err(Trouble::new(Kind::Key, format!("'{name}'"))),
        }
    }

    fn next(&mut self) -> Result<Value> {
        let value = match self.values {
            Value::Tuple(items) => items.items.get(self.used).cloned(),
            other if self.used == 0 => Some(other.clone()),
            _ => None,
        };
        self.used += 1;
        value.ok_or_else(|| type_error("not enough arguments for format string"))
    }

    fn finish(&self) -> Result<()> {
        let left = match self.values {
            Value::Tuple(items) => self.used < items.items.len(),
            Value::Dict(_) | Value::List(_) => false,
            _ => self.used == 0,
        };
        match left && !self.named {
            true => Err(type_error(
                "not all arguments converted during string formatting",
            )),
            false => Ok(()),
        }
    }

    fn flags(&mut self) -> Spec {
        let mut spec = Spec::default();
        loop {
            if self.eat('-') {
                spec.align = Some('<');
            } else if self.eat('0') {
                spec.fill = Some('0');
            } else if self.eat('#') {
                spec.alternate = true;
            } else if self.eat('+') {
                spec.sign = Some('+');
            } else if self.eat(' ') {
                spec.sign = spec.sign.or(Some(' '));
            } else {
                return spec;
            }
        }
    }

    fn eat(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> Result<i64> {
        if self.eat('*') {
            let value = self.next()?;
            return value.small().ok_or_else(|| type_error("* wants int"));
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        match digits {
            "" => Ok(0),
            digits => digits.parse().map_err(|_| value_error("width too big")),
        }
    }
}

fn shown(meter: &mut Meter<'_>, value: &Value, mut spec: Spec) -> Result<String> {
    let kind = spec.kind.take().unwrap_or('s');
    let zeros = spec.fill.take().is_some() && spec.align.is_none();
    let text = match kind {
        's' => show::text(meter, value)?,
        'r' => show::repr(meter, value)?,
        'a' => show::ascii(meter, value)?,
        'c' => character(value)?,
        _ => return numeric(meter, value, kind, spec, zeros),
    };
    if kind == 'c' {
        spec.precision = None;
    }
    spec.sign = None;
    spec.alternate = false;
    spec.align = spec.align.or(Some('>'));
    format_text(meter, &text, &spec)
}

fn numeric(
    meter: &mut Meter<'_>,
    value: &Value,
    kind: char,
    mut spec: Spec,
    zeros: bool,
) -> Result<String> {
    if zeros {
        (spec.fill, spec.align) = (Some('0'), Some('='));
    }
    let kind = if matches!(kind, 'i' | 'u') { 'd' } else { kind };
    spec.kind = Some(kind);
    match kind {
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = super::operate::to_float(value)?;
            format_float::format(meter, number, &spec)
        }
        'd' | 'o' | 'x' | 'X' => {
            let number = whole(value, kind)?;
            // The precision is how many digits there are at least.
            if let Some(least) = spec.precision.take() {
                return least_digits(meter, &number, spec, least);
            }
            format_integer(meter, &number, &spec)
        }
        _ => Err(value_error(format!(
            "unsupported format character '{kind}'"
        ))),
    }
}

fn least_digits(
    meter: &mut Meter<'_>,
    number: &Value,
    mut spec: Spec,
    least: usize,
) -> Result<String> {
    let zeros = spec.align == Some('=');
    let outer = Spec {
        width: spec.width,
        align: spec.align.filter(|it| *it != '=').or(Some('>')),
        ..Spec::default()
    };
    let negative = number
        .integer()
        .is_some_and(|it| it.sign() == num_bigint::Sign::Minus);
    let prefix = usize::from(!spec.sign(negative).is_empty())
        + 2 * usize::from(spec.alternate && spec.kind != Some('d'));
    let width = if zeros { spec.width } else { 0 };
    spec.width = width.max(least.saturating_add(prefix));
    (spec.fill, spec.align) = (Some('0'), Some('='));
    let digits = format_integer(meter, number, &spec)?;
    format_text(meter, &digits, &outer)
}

fn whole(value: &Value, kind: char) -> Result<Value> {
    match value {
        Value::Bool(_) | Value::Int(_) | Value::Big(_) => Ok(value.clone()),
        Value::Float(number) if kind == 'd' => Ok(Value::big(float::whole(number.trunc())?)),
        _ => Err(type_error(match kind {
            'd' => format!(
                "%d format: a real number is required, not {}",
                value.type_name()
            ),
            _ => format!(
                "%{kind} format: an integer is required, not {}",
                value.type_name()
            ),
        })),
    }
}

fn character(value: &Value) -> Result<String> {
    match value {
        Value::Text(text) if text.chars == 1 => Ok(text.body.to_string()),
        Value::Text(_) => Err(type_error("%c requires int or char")),
        _ => {
            let code = value.integer().as_ref().and_then(BigInt::to_u32);
            match code.and_then(char::from_u32) {
                Some(c) => Ok(c.to_string()),
                None if value.integer().is_some() => Err(Trouble::new(
                    Kind::Overflow,
                    "%c arg not in range(0x110000)",
                )),
                None => Err(type_error("%c requires int or char")),
            }
        }
    }
}
