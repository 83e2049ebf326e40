//! Values from JSON, and results to JSON.

use num_bigint::BigInt;
use serde_json::Value as Json;

use super::{
    dates,
    fault::{Result, limit, type_error, value_error},
    float,
    limits::Meter,
    value::{Key, Map, Value},
};

/// An argument as a value; charged, and as bounded as everything else.
pub(super) fn read(meter: &mut Meter<'_>, json: &Json) -> Result<Value> {
    meter.step(1)?;
    match json {
        Json::Null => Ok(Value::None),
        Json::Bool(it) => Ok(Value::Bool(*it)),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(small), _) => Ok(Value::Int(small)),
            (None, Some(large)) => Ok(Value::big(large.into())),
            (None, None) => Ok(Value::Float(number.as_f64().unwrap_or(f64::NAN))),
        },
        Json::String(text) => {
            meter.text(text.len() / 4, text.len())?;
            let value = super::value::Text::new(text.as_str());
            meter.text(value.chars, 0)?;
            Ok(Value::Text(value.into()))
        }
        Json::Array(items) => {
            meter.items(items.len())?;
            let items: Result<Vec<Value>> = items.iter().map(|it| read(meter, it)).collect();
            Value::list(meter, items?)
        }
        Json::Object(members) => {
            meter.table(members.len())?;
            let mut map = Map::default();
            for (name, member) in members {
                meter.text(name.len() / 4, name.len())?;
                map.insert(Key(Value::text(name.as_str())), read(meter, member)?);
            }
            Value::dict(meter, map)
        }
    }
}

/// An integer as it was written: as large as integers may be, not as JSON numbers.
pub(super) fn whole(meter: &mut Meter<'_>, written: &str) -> Result<Value> {
    // Before it is read: ten bits are three digits and more.
    meter.bits(written.len() as u64 / 3 * 10)?;
    let number = BigInt::parse_bytes(written.as_bytes(), 10);
    let number = number.ok_or_else(|| value_error("an argument is no integer"))?;
    Ok(Value::big(number))
}

/// The result as JSON text. What JSON cannot carry is refused.
pub(super) fn write(meter: &mut Meter<'_>, value: &Value) -> Result<String> {
    let mut out = String::new();
    put(meter, value, &mut out)?;
    Ok(out)
}

fn put(meter: &mut Meter<'_>, value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::None => push(meter, out, "null"),
        Value::Bool(true) => push(meter, out, "true"),
        Value::Bool(false) => push(meter, out, "false"),
        Value::Int(number) => push(meter, out, &number.to_string()),
        Value::Big(number) => {
            meter.step(number.bits() * number.bits() / 65_536)?;
            push(meter, out, &number.to_string())
        }
        Value::Float(number) if number.is_finite() => push(meter, out, &float::repr(*number)),
        Value::Float(number) => Err(value_error(format!(
            "Out of range float values are not JSON compliant: {}",
            float::repr(*number)
        ))),
        Value::Text(text) => quoted(meter, out, &text.body),
        Value::List(items) | Value::Tuple(items) => array(meter, &items.items, out),
        Value::Dict(dict) => object(meter, &dict.map, out),
        Value::Date(days) => quoted(meter, out, &dates::date_text(*days)),
        Value::DateTime(micros) => quoted(meter, out, &dates::datetime_text(*micros, 'T')),
        Value::Delta(micros) => quoted(meter, out, &dates::delta_text(*micros)),
        Value::Set(_) => Err(type_error(
            "Object of type set is not JSON serializable; use sorted(…) or list(…)",
        )),
        Value::Range(_) | Value::View(_) | Value::Lazy(_) => Err(type_error(format!(
            "Object of type {} is not JSON serializable; use list(…)",
            value.type_name()
        ))),
    }
}

fn array(meter: &mut Meter<'_>, items: &[Value], out: &mut String) -> Result<()> {
    push(meter, out, "[")?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            push(meter, out, ",")?;
        }
        put(meter, item, out)?;
    }
    push(meter, out, "]")
}

fn object(meter: &mut Meter<'_>, map: &Map, out: &mut String) -> Result<()> {
    push(meter, out, "{")?;
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            push(meter, out, ",")?;
        }
        name(meter, map, &key.0, out)?;
        push(meter, out, ":")?;
        put(meter, value, out)?;
    }
    push(meter, out, "}")
}

/// A key as `json.dumps` writes it, unless another key is written so too.
fn name(meter: &mut Meter<'_>, map: &Map, key: &Value, out: &mut String) -> Result<()> {
    let written = match key {
        Value::Text(text) => return quoted(meter, out, &text.body),
        Value::None => "null".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Int(it) => it.to_string(),
        Value::Float(it) => float::repr(*it),
        _ => {
            let name = key.type_name();
            let message = format!("keys must be str, int, float, bool or None, not {name}");
            return Err(type_error(message));
        }
    };
    if map.contains_key(&Key(Value::text(written.as_str()))) {
        return Err(type_error(format!(
            "two keys are both written \"{written}\""
        )));
    }
    quoted(meter, out, &written)
}

fn quoted(meter: &mut Meter<'_>, out: &mut String, text: &str) -> Result<()> {
    meter.scan(text.len() * 4)?;
    meter.memory(text.len())?;
    let written = serde_json::to_string(text);
    push(meter, out, &written.unwrap_or_default())
}

fn push(meter: &mut Meter<'_>, out: &mut String, part: &str) -> Result<()> {
    let most = meter.limits.output;
    if out.len() + part.len() > most {
        return Err(limit(format!("a result of more than {most} bytes")));
    }
    meter.memory(part.len())?;
    meter.scan(part.len())?;
    out.push_str(part);
    Ok(())
}
