//! Evaluates `'…' % values`.

use num_bigint::BigInt;
use num_traits::ToPrimitive as _;

use super::{
    error::{ErrorKind, Result, UnlocatedError, type_error, value_error},
    float, format_float,
    format_spec::{FormatSpec, format_integer, format_text},
    limits::ResourceMeter,
    repr,
    value::{HashKey, TextValue, Value},
};

pub(super) fn format(
    meter: &mut ResourceMeter<'_>,
    form: &TextValue,
    values: &Value,
) -> Result<Value> {
    let mut reader = PercentFormatter {
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
        let formatted = reader.format_next(meter)?;
        chars += before.chars().count() + formatted.chars().count();
        meter.charge_text(chars, before.len() + formatted.len())?;
        out.push_str(before);
        out.push_str(&formatted);
    }
    reader.check_all_used()?;
    meter.charge_text(chars + reader.rest.chars().count(), reader.rest.len())?;
    out.push_str(reader.rest);
    Ok(Value::text(out))
}

struct PercentFormatter<'v> {
    rest: &'v str,
    values: &'v Value,
    used: usize,
    named: bool,
}

impl PercentFormatter<'_> {
    fn format_next(&mut self, meter: &mut ResourceMeter<'_>) -> Result<String> {
        let named = self.parse_key()?;
        let mut spec = self.parse_flags();
        let width = self.parse_number()?;
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = width.unsigned_abs() as usize;
        if self.accept('.') {
            spec.precision = Some(self.parse_number()?.max(0) as usize);
        }
        let Some(kind) = self.rest.chars().next() else {
            return Err(value_error("incomplete format"));
        };
        self.rest = &self.rest[kind.len_utf8()..];
        if kind == '%' {
            return Ok("%".to_owned());
        }
        let value = match named {
            Some(name) => self.value_by_key(&name)?,
            None => self.next_value()?,
        };
        spec.kind = Some(kind);
        format_conversion(meter, &value, spec)
    }

    fn parse_key(&mut self) -> Result<Option<String>> {
        if !self.accept('(') {
            return Ok(None);
        }
        let Some((name, rest)) = self.rest.split_once(')') else {
            return Err(value_error("incomplete format key"));
        };
        self.rest = rest;
        self.named = true;
        Ok(Some(name.to_owned()))
    }

    fn value_by_key(&self, name: &str) -> Result<Value> {
        let Value::Dict(dict) = self.values else {
            return Err(type_error("format requires a mapping"));
        };
        match dict.map.get(&HashKey(Value::text(name))) {
            Some(value) => Ok(value.clone()),
            None => Err(UnlocatedError::new(ErrorKind::Key, format!("'{name}'"))),
        }
    }

    fn next_value(&mut self) -> Result<Value> {
        let value = match self.values {
            Value::Tuple(items) => items.items.get(self.used).cloned(),
            other if self.used == 0 => Some(other.clone()),
            _ => None,
        };
        self.used += 1;
        value.ok_or_else(|| type_error("not enough arguments for format string"))
    }

    fn check_all_used(&self) -> Result<()> {
        let left = match self.values {
            Value::Tuple(items) => self.used < items.items.len(),
            Value::Dict(_) | Value::List(_) => false,
            _ => self.used == 0,
        };
        if left && !self.named {
            Err(type_error(
                "not all arguments converted during string formatting",
            ))
        } else {
            Ok(())
        }
    }

    fn parse_flags(&mut self) -> FormatSpec {
        let mut spec = FormatSpec::default();
        loop {
            if self.accept('-') {
                spec.align = Some('<');
            } else if self.accept('0') {
                spec.fill = Some('0');
            } else if self.accept('#') {
                spec.alternate = true;
            } else if self.accept('+') {
                spec.sign = Some('+');
            } else if self.accept(' ') {
                spec.sign = spec.sign.or(Some(' '));
            } else {
                return spec;
            }
        }
    }

    fn accept(&mut self, expected: char) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn parse_number(&mut self) -> Result<i64> {
        if self.accept('*') {
            let value = self.next_value()?;
            return value.to_i64().ok_or_else(|| type_error("* wants int"));
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

fn format_conversion(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    mut spec: FormatSpec,
) -> Result<String> {
    let kind = spec.kind.take().unwrap_or('s');
    let zeros = spec.fill.take().is_some() && spec.align.is_none();
    let text = match kind {
        's' => repr::to_text(meter, value)?,
        'r' => repr::repr(meter, value)?,
        'a' => repr::to_ascii(meter, value)?,
        'c' => format_character(value)?,
        _ => return format_number(meter, value, kind, spec, zeros),
    };
    if kind == 'c' {
        spec.precision = None;
    }
    spec.sign = None;
    spec.alternate = false;
    spec.align = spec.align.or(Some('>'));
    format_text(meter, &text, &spec)
}

fn format_number(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    kind: char,
    mut spec: FormatSpec,
    zeros: bool,
) -> Result<String> {
    if zeros {
        (spec.fill, spec.align) = (Some('0'), Some('='));
    }
    let kind = if matches!(kind, 'i' | 'u') { 'd' } else { kind };
    spec.kind = Some(kind);
    match kind {
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let number = super::operators::to_float(value)?;
            format_float::format(meter, number, &spec)
        }
        'd' | 'o' | 'x' | 'X' => {
            let number = to_integer(value, kind)?;
            // The precision of an integer is its minimum number of digits.
            if let Some(least) = spec.precision.take() {
                return format_min_digits(meter, &number, spec, least);
            }
            format_integer(meter, &number, &spec)
        }
        _ => Err(value_error(format!(
            "unsupported format character '{kind}'"
        ))),
    }
}

fn format_min_digits(
    meter: &mut ResourceMeter<'_>,
    number: &Value,
    mut spec: FormatSpec,
    least: usize,
) -> Result<String> {
    let zeros = spec.align == Some('=');
    let outer = FormatSpec {
        width: spec.width,
        align: spec.align.filter(|it| *it != '=').or(Some('>')),
        ..FormatSpec::default()
    };
    let negative = number
        .to_bigint()
        .is_some_and(|it| it.sign() == num_bigint::Sign::Minus);
    let prefix = usize::from(!spec.sign_text(negative).is_empty())
        + 2 * usize::from(spec.alternate && spec.kind != Some('d'));
    let width = if zeros { spec.width } else { 0 };
    spec.width = width.max(least.saturating_add(prefix));
    (spec.fill, spec.align) = (Some('0'), Some('='));
    let digits = format_integer(meter, number, &spec)?;
    format_text(meter, &digits, &outer)
}

fn to_integer(value: &Value, kind: char) -> Result<Value> {
    match value {
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) => Ok(value.clone()),
        Value::Float(number) if kind == 'd' => Ok(Value::from_bigint(float::integral_to_bigint(
            number.trunc(),
        )?)),
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

fn format_character(value: &Value) -> Result<String> {
    match value {
        Value::Text(text) if text.chars == 1 => Ok(text.body.to_string()),
        Value::Text(_) => Err(type_error("%c requires int or char")),
        _ => {
            let code = value.to_bigint().as_ref().and_then(BigInt::to_u32);
            match code.and_then(char::from_u32) {
                Some(c) => Ok(c.to_string()),
                None if value.to_bigint().is_some() => Err(UnlocatedError::new(
                    ErrorKind::Overflow,
                    "%c arg not in range(0x110000)",
                )),
                None => Err(type_error("%c requires int or char")),
            }
        }
    }
}
