//! Subscripts: `value[index]`, `value[from:to:step]` and `item in value`.

use std::rc::Rc;

use num_bigint::Sign;
use num_traits::ToPrimitive as _;

use super::{
    compare,
    error::{ErrorKind, Result, UnlocatedError, type_error, value_error},
    evaluator::Evaluator,
    iterables::is_iterable,
    iteration::{self, IterationFlow},
    limits::ResourceMeter,
    repr,
    value::{DictViewKind, RangeValue, TextValue, Value, hash_key},
};

pub(super) fn get_item(meter: &mut ResourceMeter<'_>, value: &Value, at: Value) -> Result<Value> {
    match value {
        Value::Dict(dict) => {
            let name = hash_key(meter, at)?;
            match dict.map.get(&name) {
                Some(found) => Ok(found.clone()),
                None => Err(UnlocatedError::new(
                    ErrorKind::Key,
                    repr::repr(meter, &name.0)?,
                )),
            }
        }
        Value::List(items) => {
            let at = normalize_index(items.items.len(), &at, "list")?;
            Ok(items.items[at].clone())
        }
        Value::Tuple(items) => {
            let at = normalize_index(items.items.len(), &at, "tuple")?;
            Ok(items.items[at].clone())
        }
        Value::Text(text) => {
            let at = normalize_index(text.chars, &at, "string")?;
            let found = char_slice(meter, text, at, at + 1)?;
            Ok(Value::text(found))
        }
        Value::Range(range) => {
            let at = normalize_index(range.len, &at, "range object")?;
            Ok(range.get(at))
        }
        _ => Err(not_subscriptable(value)),
    }
}

pub(super) fn get_slice(
    meter: &mut ResourceMeter<'_>,
    value: &Value,
    bounds: &[Option<Value>; 3],
) -> Result<Value> {
    let length = match value {
        Value::Text(text) => text.chars,
        Value::List(items) | Value::Tuple(items) => items.items.len(),
        Value::Range(range) => range.len,
        Value::Dict(_) => return Err(type_error("unhashable type: 'slice'")),
        _ => return Err(not_subscriptable(value)),
    };
    let cut = SliceIndices::new(length, bounds)?;
    match value {
        Value::Text(text) => cut.text(meter, text),
        Value::List(items) => {
            let items = cut.items(meter, &items.items)?;
            Value::list(meter, items)
        }
        Value::Tuple(items) => {
            let items = cut.items(meter, &items.items)?;
            Value::tuple(meter, items)
        }
        Value::Range(range) => Ok(cut.range(range)),
        _ => Err(not_subscriptable(value)),
    }
}

/// Evaluates `item in value`.
pub(super) fn contains(evaluator: &mut Evaluator<'_>, value: Value, item: &Value) -> Result<bool> {
    let meter = &mut evaluator.meter;
    match &value {
        Value::Text(text) => {
            let Value::Text(part) = item else {
                return Err(type_error(format!(
                    "'in <string>' requires string as left operand, not {}",
                    item.type_name()
                )));
            };
            meter.charge_scan(text.body.len() + part.body.len())?;
            return Ok(text.body.contains(&*part.body));
        }
        Value::Dict(dict) => return Ok(dict.map.contains_key(&hash_key(meter, item.clone())?)),
        Value::Set(set) => return Ok(set.keys.contains(&hash_key(meter, item.clone())?)),
        Value::DictView(view) if view.kind == DictViewKind::Keys => {
            return Ok(view.dict.map.contains_key(&hash_key(meter, item.clone())?));
        }
        _ if !is_iterable(&value) => {
            let name = value.type_name();
            return Err(type_error(format!(
                "argument of type '{name}' is not iterable"
            )));
        }
        _ => (),
    }
    let mut found = false;
    iteration::for_each_item(evaluator, value, &mut |evaluator, other| {
        found =
            other.is_identical(item) || compare::values_equal(&mut evaluator.meter, &other, item)?;
        Ok(if found {
            IterationFlow::Break
        } else {
            IterationFlow::Continue
        })
    })?;
    Ok(found)
}

/// Converts an index to a position below `length`; a negative index counts from the end.
fn normalize_index(length: usize, at: &Value, what: &str) -> Result<usize> {
    let Some(number) = at.to_bigint() else {
        let found = at.type_name();
        return Err(type_error(match what {
            "string" => format!("string indices must be integers, not '{found}'"),
            "range object" => format!("range indices must be integers or slices, not {found}"),
            _ => format!("{what} indices must be integers or slices, not {found}"),
        }));
    };
    let number = number.to_i64().unwrap_or(i64::MAX);
    let from_end = if number < 0 { length as i64 } else { 0 };
    match usize::try_from(number.saturating_add(from_end)) {
        Ok(at) if at < length => Ok(at),
        _ => Err(UnlocatedError::new(
            ErrorKind::Index,
            format!("{what} index out of range"),
        )),
    }
}

/// Returns the characters from `from` up to `to`, charged for finding them.
fn char_slice<'t>(
    meter: &mut ResourceMeter<'_>,
    text: &'t TextValue,
    from: usize,
    to: usize,
) -> Result<&'t str> {
    if text.is_ascii() {
        meter.charge_text(to - from, to - from)?;
        return Ok(&text.body[from..to]);
    }
    meter.charge_steps(1 + to as u64 / 8)?;
    let mut places = text.body.char_indices().map(|it| it.0);
    let start = places.nth(from).unwrap_or(text.body.len());
    let end = match to - from {
        0 => start,
        count => places.nth(count - 1).unwrap_or(text.body.len()),
    };
    meter.charge_text(to - from, end - start)?;
    Ok(&text.body[start..end])
}

fn not_subscriptable(value: &Value) -> UnlocatedError {
    let name = value.type_name();
    type_error(format!("'{name}' object is not subscriptable"))
}

/// A bound beyond the end of any sequence.
const MAX_SLICE_BOUND: i64 = i64::MAX / 4;

/// The positions of a slice in a sequence of known length.
struct SliceIndices {
    start: i64,
    step: i64,
    count: usize,
}

impl SliceIndices {
    fn new(length: usize, bounds: &[Option<Value>; 3]) -> Result<Self> {
        let [from, to, step] = bounds;
        let step = clamp_bound(step.as_ref())?.unwrap_or(1);
        if step == 0 {
            return Err(value_error("slice step cannot be zero"));
        }
        let length = length as i64;
        let (low, high) = if step > 0 {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let clamp = |at: i64| {
            let at = if at < 0 {
                at.saturating_add(length)
            } else {
                at
            };
            at.clamp(low, high)
        };
        let (first, last) = if step > 0 { (low, high) } else { (high, low) };
        let start = clamp_bound(from.as_ref())?.map_or(first, clamp);
        let stop = clamp_bound(to.as_ref())?.map_or(last, clamp);
        let span = if step > 0 { stop - start } else { start - stop };
        let step_size = step.unsigned_abs();
        let count = match u64::try_from(span) {
            Ok(span) => span.div_ceil(step_size) as usize,
            Err(_) => 0,
        };
        Ok(Self { start, step, count })
    }

    fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.count as i64).map(|at| (self.start + self.step.wrapping_mul(at)) as usize)
    }

    fn items(&self, meter: &mut ResourceMeter<'_>, items: &[Value]) -> Result<Vec<Value>> {
        meter.charge_items(self.count)?;
        Ok(self.indices().map(|at| items[at].clone()).collect())
    }

    fn text(&self, meter: &mut ResourceMeter<'_>, text: &TextValue) -> Result<Value> {
        if self.step == 1 {
            let from = self.start as usize;
            return Ok(Value::text(char_slice(
                meter,
                text,
                from,
                from + self.count,
            )?));
        }
        meter.charge_text(text.chars, text.body.len() * 5)?;
        let all: Vec<char> = text.body.chars().collect();
        let picked: String = self.indices().map(|at| all[at]).collect();
        Ok(Value::text(picked))
    }

    fn range(&self, range: &RangeValue) -> Value {
        let start = range
            .start
            .wrapping_add(range.step.wrapping_mul(self.start));
        let step = range.step.wrapping_mul(self.step);
        let stop = start.wrapping_add(step.wrapping_mul(self.count as i64));
        Value::Range(Rc::new(RangeValue {
            start,
            stop,
            step,
            len: self.count,
        }))
    }
}

/// Converts a slice bound to an integer, clamped.
fn clamp_bound(value: Option<&Value>) -> Result<Option<i64>> {
    match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => match value.to_bigint() {
            Some(number) => {
                let far = if number.sign() == Sign::Minus {
                    -MAX_SLICE_BOUND
                } else {
                    MAX_SLICE_BOUND
                };
                let number = number.to_i64().unwrap_or(far);
                Ok(Some(number.clamp(-MAX_SLICE_BOUND, MAX_SLICE_BOUND)))
            }
            None => Err(type_error(
                "slice indices must be integers or None or have an __index__ method",
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check_texts, evaluate, to_map};

    #[test]
    fn negative_and_stepped_positions_count_from_the_end() {
        check_texts(&[
            ("'maru'[-1]", "u"),
            ("'maru'[::-1]", "uram"),
            ("[1, 2, 3, 4][-3:-1]", "[2, 3]"),
            ("(1, 2, 3)[5:]", "()"),
            ("range(10)[2:9:3][-1]", "8"),
        ]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn slices_and_joins_keep_characters(text in "\\PC{0,30}", at in 0_usize..40) {
            let arguments = to_map(&json!({"s": text, "n": at}));
            let law = "s[:n] + s[n:] == s and ''.join(list(s)) == s and s[::-1][::-1] == s and len(s) == len([c for c in s])";
            let done = evaluate(law, &arguments).unwrap();
            prop_assert_eq!(done.json.get(), "true");
        }
    }
}
