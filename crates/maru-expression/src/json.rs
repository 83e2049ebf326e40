//! Conversion of values from and to JSON.

use num_bigint::BigInt;
use serde_json::Value as Json;

use super::{
    dates,
    error::{Result, limit_error, type_error, value_error},
    float,
    limits::ResourceMeter,
    value::{DictMap, HashKey, Value},
};

/// Converts a JSON argument to a value, within the limits.
pub(super) fn from_json(meter: &mut ResourceMeter<'_>, json: &Json) -> Result<Value> {
    meter.charge_steps(1)?;
    match json {
        Json::Null => Ok(Value::None),
        Json::Bool(it) => Ok(Value::Bool(*it)),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(small), _) => Ok(Value::Int(small)),
            (None, Some(large)) => Ok(Value::from_bigint(large.into())),
            (None, None) => Ok(Value::Float(number.as_f64().unwrap_or(f64::NAN))),
        },
        Json::String(text) => {
            meter.charge_text(text.len() / 4, text.len())?;
            let value = super::value::TextValue::new(text.as_str());
            meter.charge_text(value.chars, 0)?;
            Ok(Value::Text(value.into()))
        }
        Json::Array(items) => {
            meter.charge_items(items.len())?;
            let items: Result<Vec<Value>> = items.iter().map(|it| from_json(meter, it)).collect();
            Value::list(meter, items?)
        }
        Json::Object(members) => {
            meter.charge_table(members.len())?;
            let mut map = DictMap::default();
            for (name, member) in members {
                meter.charge_text(name.len() / 4, name.len())?;
                map.insert(
                    HashKey(Value::text(name.as_str())),
                    from_json(meter, member)?,
                );
            }
            Value::dict(meter, map)
        }
    }
}

/// Parses the digits of an integer that a JSON number cannot represent.
pub(super) fn integer_from_digits(meter: &mut ResourceMeter<'_>, written: &str) -> Result<Value> {
    // Charged before parsing: three digits need about ten bits.
    meter.charge_integer(written.len() as u64 / 3 * 10)?;
    let number = BigInt::parse_bytes(written.as_bytes(), 10);
    let number = number.ok_or_else(|| value_error("an argument is no integer"))?;
    Ok(Value::from_bigint(number))
}

/// Writes a value as JSON; fails if JSON cannot represent it.
pub(super) fn to_json(meter: &mut ResourceMeter<'_>, value: &Value) -> Result<String> {
    let mut out = String::new();
    write_value(meter, value, &mut out)?;
    Ok(out)
}

fn write_value(meter: &mut ResourceMeter<'_>, value: &Value, out: &mut String) -> Result<()> {
    match value {
        Value::None => push_bounded(meter, out, "null"),
        Value::Bool(true) => push_bounded(meter, out, "true"),
        Value::Bool(false) => push_bounded(meter, out, "false"),
        Value::Int(number) => push_bounded(meter, out, &number.to_string()),
        Value::BigInt(number) => {
            meter.charge_steps(number.bits() * number.bits() / 65_536)?;
            push_bounded(meter, out, &number.to_string())
        }
        Value::Float(number) if number.is_finite() => {
            push_bounded(meter, out, &float::repr(*number))
        }
        Value::Float(number) => Err(value_error(format!(
            "Out of range float values are not JSON compliant: {}",
            float::repr(*number)
        ))),
        Value::Text(text) => write_string(meter, out, &text.body),
        Value::List(items) | Value::Tuple(items) => write_array(meter, &items.items, out),
        Value::Dict(dict) => write_object(meter, &dict.map, out),
        Value::Date(days) => write_string(meter, out, &dates::date_text(*days)),
        Value::DateTime(micros) => write_string(meter, out, &dates::datetime_text(*micros, 'T')),
        Value::TimeDelta(micros) => write_string(meter, out, &dates::delta_text(*micros)),
        Value::Set(_) => Err(type_error(
            "Object of type set is not JSON serializable; use sorted(…) or list(…)",
        )),
        Value::Range(_) | Value::DictView(_) | Value::LazyIterator(_) => Err(type_error(format!(
            "Object of type {} is not JSON serializable; use list(…)",
            value.type_name()
        ))),
    }
}

fn write_array(meter: &mut ResourceMeter<'_>, items: &[Value], out: &mut String) -> Result<()> {
    push_bounded(meter, out, "[")?;
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            push_bounded(meter, out, ",")?;
        }
        write_value(meter, item, out)?;
    }
    push_bounded(meter, out, "]")
}

fn write_object(meter: &mut ResourceMeter<'_>, map: &DictMap, out: &mut String) -> Result<()> {
    push_bounded(meter, out, "{")?;
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            push_bounded(meter, out, ",")?;
        }
        write_key(meter, map, &key.0, out)?;
        push_bounded(meter, out, ":")?;
        write_value(meter, value, out)?;
    }
    push_bounded(meter, out, "}")
}

/// Writes a dict key like `json.dumps`; fails if two keys are written alike.
fn write_key(
    meter: &mut ResourceMeter<'_>,
    map: &DictMap,
    key: &Value,
    out: &mut String,
) -> Result<()> {
    let written = match key {
        Value::Text(text) => return write_string(meter, out, &text.body),
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
    if map.contains_key(&HashKey(Value::text(written.as_str()))) {
        return Err(type_error(format!(
            "two keys are both written \"{written}\""
        )));
    }
    write_string(meter, out, &written)
}

fn write_string(meter: &mut ResourceMeter<'_>, out: &mut String, text: &str) -> Result<()> {
    meter.charge_scan(text.len() * 4)?;
    meter.charge_memory(text.len())?;
    let written = serde_json::to_string(text);
    push_bounded(meter, out, &written.unwrap_or_default())
}

fn push_bounded(meter: &mut ResourceMeter<'_>, out: &mut String, part: &str) -> Result<()> {
    let max_bytes = meter.limits.output;
    if out.len() + part.len() > max_bytes {
        return Err(limit_error(format!(
            "a result of more than {max_bytes} bytes"
        )));
    }
    meter.charge_memory(part.len())?;
    meter.charge_scan(part.len())?;
    out.push_str(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use crate::testing::{evaluate, to_map};

    #[test]
    fn a_result_is_json_with_every_digit() {
        for (source, json) in [
            ("10**30", "1000000000000000000000000000000"),
            ("-2**64", "-18446744073709551616"),
            ("(1, 'a', None, True)", r#"[1,"a",null,true]"#),
            (
                "{1: 1.0, None: 1e20, 'k': \"\\n\"}",
                r#"{"1":1.0,"null":1e+20,"k":"\n"}"#,
            ),
            ("date(2024, 5, 6)", r#""2024-05-06""#),
        ] {
            let done = evaluate(source, &Map::new()).unwrap();
            assert_eq!(done.json.get(), json, "{source}");
        }
    }

    #[test]
    fn values_without_a_json_form_are_refused() {
        for source in [
            "{1, 2}",
            "[{1}]",
            "range(3)",
            "(x for x in [1])",
            "{'a': 1}.keys()",
            "zip([1])",
            "1e308 * 10",
            "float('nan')",
            "{(1, 2): 3}",
            "{1: 2, '1': 3}",
        ] {
            assert!(evaluate(source, &Map::new()).is_err(), "{source}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn floats_read_back_as_they_were_written(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let arguments = to_map(&json!({"a": number}));
            let done = evaluate("[a, float(repr(a)) == a]", &arguments).unwrap();
            let back: Value = serde_json::from_str(done.json.get()).unwrap();
            prop_assert_eq!(back, json!([number, true]));
        }
    }
}
