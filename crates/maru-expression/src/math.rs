//! The `math` module; its functions also work without the prefix.

#![expect(
    clippy::needless_pass_by_value,
    reason = "everything in the catalog has one shape"
)]

use std::f64::consts;

use num_bigint::BigInt;
use num_integer::Integer as _;
use num_traits::{One as _, Signed as _, ToPrimitive as _, Zero as _};

use super::{
    ast::BinaryOperator,
    builtins::{BuiltinCall, BuiltinFn},
    error::{Result, limit_error, overflow_error, type_error, value_error},
    evaluator::Evaluator,
    float, integer,
    iteration::{self, IterationFlow},
    operators,
    scalars::{expect_float, not_an_integer_error},
    value::Value,
};

pub(super) const MATH_FUNCTIONS: &[(&str, BuiltinFn)] = &[
    ("acos", |_, it| unary_function(it, f64::acos)),
    ("acosh", |_, it| unary_function(it, f64::acosh)),
    ("asin", |_, it| unary_function(it, f64::asin)),
    ("asinh", |_, it| unary_function(it, f64::asinh)),
    ("atan", |_, it| unary_function(it, f64::atan)),
    ("atan2", |_, it| binary_function(it, f64::atan2)),
    ("atanh", atanh),
    ("cbrt", |_, it| unary_function(it, f64::cbrt)),
    ("ceil", |evaluator, it| round_with(evaluator, it, f64::ceil)),
    ("comb", comb),
    ("copysign", |_, it| binary_function(it, f64::copysign)),
    ("cos", |_, it| unary_function(it, f64::cos)),
    ("cosh", |_, it| unary_function(it, f64::cosh)),
    ("degrees", |_, it| {
        unary_function(it, |x| x * (180.0 / consts::PI))
    }),
    ("dist", dist),
    ("exp", |_, it| unary_function(it, f64::exp)),
    ("exp2", |_, it| unary_function(it, f64::exp2)),
    ("expm1", |_, it| unary_function(it, f64::exp_m1)),
    ("fabs", |_, it| unary_function(it, f64::abs)),
    ("factorial", factorial),
    ("floor", |evaluator, it| {
        round_with(evaluator, it, f64::floor)
    }),
    ("fmod", |_, it| binary_function(it, |a, b| a % b)),
    ("frexp", frexp),
    ("fsum", fsum),
    ("gcd", gcd),
    ("hypot", hypot),
    ("isclose", isclose),
    ("isfinite", |_, it| float_predicate(it, f64::is_finite)),
    ("isinf", |_, it| float_predicate(it, f64::is_infinite)),
    ("isnan", |_, it| float_predicate(it, f64::is_nan)),
    ("isqrt", isqrt),
    ("lcm", lcm),
    ("ldexp", ldexp),
    ("log", log),
    ("log10", |_, it| log_function(it, f64::log10)),
    ("log1p", log1p),
    ("log2", |_, it| log_function(it, f64::log2)),
    ("modf", modf),
    ("perm", perm),
    ("pow", pow),
    ("prod", prod),
    ("radians", |_, it| {
        unary_function(it, |x| x * (consts::PI / 180.0))
    }),
    ("remainder", |_, it| binary_function(it, remainder)),
    ("sin", |_, it| unary_function(it, f64::sin)),
    ("sinh", |_, it| unary_function(it, f64::sinh)),
    ("sqrt", |_, it| unary_function(it, f64::sqrt)),
    ("tan", |_, it| unary_function(it, f64::tan)),
    ("tanh", |_, it| unary_function(it, f64::tanh)),
    ("trunc", |evaluator, it| {
        round_with(evaluator, it, f64::trunc)
    }),
];

/// Returns a constant such as `math.pi`.
pub(super) fn dotted_constant(path: &str) -> Option<f64> {
    match path.strip_prefix("math.")? {
        "inf" => Some(f64::INFINITY),
        "nan" => Some(f64::NAN),
        name => bare_constant(name),
    }
}

pub(super) fn bare_constant(name: &str) -> Option<f64> {
    Some(match name {
        "pi" => consts::PI,
        "e" => consts::E,
        "tau" => consts::TAU,
        _ => return None,
    })
}

fn unary_function(call: BuiltinCall<'_>, function: fn(f64) -> f64) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = expect_float(&value)?;
    check_result(function(number), &[number])
}

fn binary_function(call: BuiltinCall<'_>, function: fn(f64, f64) -> f64) -> Result<Value> {
    let [first, second] = call.take_exactly()?;
    let (first, second) = (expect_float(&first)?, expect_float(&second)?);
    check_result(function(first, second), &[first, second])
}

/// Fails if finite inputs gave NaN or infinity.
fn check_result(result: f64, inputs: &[f64]) -> Result<Value> {
    if result.is_nan() && !inputs.iter().any(|it| it.is_nan()) {
        return Err(value_error("math domain error"));
    }
    if result.is_infinite() && inputs.iter().all(|it| it.is_finite()) {
        return Err(overflow_error("math range error"));
    }
    Ok(Value::Float(result))
}

fn float_predicate(call: BuiltinCall<'_>, holds: fn(f64) -> bool) -> Result<Value> {
    let [value] = call.take_exactly()?;
    Ok(Value::Bool(holds(expect_float(&value)?)))
}

fn round_with(
    evaluator: &mut Evaluator<'_>,
    call: BuiltinCall<'_>,
    round: fn(f64) -> f64,
) -> Result<Value> {
    let [value] = call.take_exactly()?;
    match value.to_bigint() {
        Some(number) => integer::into_value(&mut evaluator.meter, number),
        None => integer::into_value(
            &mut evaluator.meter,
            float::integral_to_bigint(round(expect_float(&value)?))?,
        ),
    }
}

fn atanh(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = expect_float(&value)?;
    if number.abs() >= 1.0 {
        Err(value_error("math domain error"))
    } else {
        Ok(Value::Float(number.atanh()))
    }
}

fn pow(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [base, exponent] = call.take_exactly()?;
    let (base, exponent) = (expect_float(&base)?, expect_float(&exponent)?);
    if base == 0.0 && exponent < 0.0 && exponent.is_finite() {
        return Err(value_error("math domain error"));
    }
    check_result(base.powf(exponent), &[base, exponent])
}

fn log1p(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = expect_float(&value)?;
    if number <= -1.0 {
        Err(value_error("math domain error"))
    } else {
        Ok(Value::Float(number.ln_1p()))
    }
}

fn log(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value, base] = call.bind(1, ["", ""])?;
    let number = log_value(&value.unwrap_or(Value::None), f64::ln)?;
    let Some(base) = base else {
        return Ok(Value::Float(number));
    };
    match log_value(&base, f64::ln)? {
        0.0 => Err(super::error::zero_division_error("float division by zero")),
        base => Ok(Value::Float(number / base)),
    }
}

fn log_function(call: BuiltinCall<'_>, function: fn(f64) -> f64) -> Result<Value> {
    let [value] = call.take_exactly()?;
    log_value(&value, function).map(Value::Float)
}

/// Evaluates a logarithm, also of integers that no float can represent.
fn log_value(value: &Value, function: fn(f64) -> f64) -> Result<f64> {
    if let Value::BigInt(number) = value
        && number.is_positive()
        && number.bits() > 1023
    {
        let shift = number.bits().saturating_sub(64);
        let top = (&**number >> shift).to_f64().unwrap_or_default();
        return Ok(function(top) + shift as f64 * function(2.0));
    }
    let number = expect_float(value)?;
    if number <= 0.0 {
        Err(value_error("math domain error"))
    } else {
        Ok(function(number))
    }
}

fn remainder(left: f64, right: f64) -> f64 {
    if right.is_infinite() && left.is_finite() {
        return left;
    }
    let (a, b) = (left.abs(), right.abs());
    let rest = a % b;
    let other = b - rest;
    let near = match rest.partial_cmp(&other) {
        Some(std::cmp::Ordering::Less) => rest,
        Some(std::cmp::Ordering::Greater) => -other,
        Some(std::cmp::Ordering::Equal) => rest - 2.0 * ((0.5 * (a - rest)) % b),
        None => f64::NAN,
    };
    near * 1.0_f64.copysign(left)
}

fn modf(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = expect_float(&value)?;
    let fraction = if number.is_infinite() {
        0.0
    } else {
        number.fract()
    };
    let fraction = Value::Float(fraction.copysign(number));
    iteration::pair_tuple(&mut evaluator.meter, fraction, Value::Float(number.trunc()))
}

fn frexp(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = expect_float(&value)?;
    let mut exponent = 0;
    let mut mantissa = number;
    if number != 0.0 && number.is_finite() {
        while mantissa.abs() >= 1.0 {
            mantissa /= 2.0;
            exponent += 1;
        }
        while mantissa.abs() < 0.5 {
            mantissa *= 2.0;
            exponent -= 1;
        }
    }
    iteration::pair_tuple(
        &mut evaluator.meter,
        Value::Float(mantissa),
        Value::Int(exponent),
    )
}

fn ldexp(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value, exponent] = call.take_exactly()?;
    let number = expect_float(&value)?;
    let exponent = exponent
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(&exponent))?;
    let exponent = exponent
        .to_i64()
        .unwrap_or(if exponent.is_negative() { -4000 } else { 4000 });
    check_result(float::scale(number, exponent), &[number])
}

fn integer_arguments(call: BuiltinCall<'_>) -> Result<Vec<BigInt>> {
    call.expect_no_named()?;
    let numbers = call.values.iter();
    numbers
        .map(|it| it.to_bigint().ok_or_else(|| not_an_integer_error(it)))
        .collect()
}

fn gcd(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let mut found = BigInt::zero();
    for number in integer_arguments(call)? {
        evaluator
            .meter
            .charge_steps(1 + number.bits() * number.bits() / 4096)?;
        found = found.gcd(&number);
    }
    integer::into_value(&mut evaluator.meter, found)
}

fn lcm(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let mut found = BigInt::one();
    for number in integer_arguments(call)? {
        evaluator
            .meter
            .charge_integer(number.bits().max(found.bits()))?;
        evaluator
            .meter
            .charge_steps(1 + number.bits() * found.bits() / 4096)?;
        found = found.lcm(&number);
    }
    integer::into_value(&mut evaluator.meter, found.abs())
}

/// Returns an argument that is not negative and small enough to count up to.
fn expect_natural(value: &Value, what: &str) -> Result<u64> {
    let number = value
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(value))?;
    if number.is_negative() {
        return Err(value_error(what));
    }
    number
        .to_u64()
        .ok_or_else(|| limit_error("a number that is too large to count to"))
}

fn factorial(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let limit = expect_natural(&value, "factorial() not defined for negative values")?;
    product(evaluator, (1..=limit).map(BigInt::from))
}

fn comb(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [all, picked] = call.take_exactly()?;
    let all = expect_natural(&all, "n must be a non-negative integer")?;
    let picked = expect_natural(&picked, "k must be a non-negative integer")?;
    if picked > all {
        return Ok(Value::Int(0));
    }
    let mut found = BigInt::one();
    for at in 0..picked.min(all - picked) {
        evaluator.meter.charge_integer(found.bits())?;
        found = found * (all - at) / (at + 1);
    }
    integer::into_value(&mut evaluator.meter, found)
}

fn perm(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [all, picked] = call.bind(1, ["", ""])?;
    let all = expect_natural(
        &all.unwrap_or(Value::None),
        "n must be a non-negative integer",
    )?;
    let picked = match picked.filter(|it| !matches!(it, Value::None)) {
        Some(picked) => expect_natural(&picked, "k must be a non-negative integer")?,
        None => all,
    };
    if picked > all {
        return Ok(Value::Int(0));
    }
    product(evaluator, (all - picked + 1..=all).map(BigInt::from))
}

fn product(evaluator: &mut Evaluator<'_>, numbers: impl Iterator<Item = BigInt>) -> Result<Value> {
    let mut found = BigInt::one();
    for number in numbers {
        evaluator.meter.charge_integer(found.bits())?;
        found *= number;
    }
    integer::into_value(&mut evaluator.meter, found)
}

fn isqrt(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [value] = call.take_exactly()?;
    let number = value
        .to_bigint()
        .ok_or_else(|| not_an_integer_error(&value))?;
    if number.is_negative() {
        return Err(value_error("isqrt() argument must be nonnegative"));
    }
    evaluator
        .meter
        .charge_steps(1 + number.bits() * number.bits() / 2048)?;
    integer::into_value(&mut evaluator.meter, number.sqrt())
}

fn prod(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source, start] = call.bind(1, ["", "start"])?;
    let mut total = start.unwrap_or(Value::Int(1));
    iteration::for_each_item(
        evaluator,
        source.unwrap_or(Value::None),
        &mut |evaluator, item| {
            total = operators::apply_binary(
                &mut evaluator.meter,
                BinaryOperator::Multiply,
                &total,
                &item,
            )?;
            Ok(IterationFlow::Continue)
        },
    )?;
    Ok(total)
}

fn hypot(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    call.expect_no_named()?;
    let numbers: Result<Vec<f64>> = call.values.iter().map(expect_float).collect();
    Ok(Value::Float(euclidean_norm(&numbers?)))
}

fn dist(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [first, second] = call.take_exactly()?;
    let (first, second) = (
        iteration::collect_items(evaluator, first)?,
        iteration::collect_items(evaluator, second)?,
    );
    if first.len() != second.len() {
        return Err(value_error(
            "both points must have the same number of dimensions",
        ));
    }
    let mut numbers = Vec::with_capacity(first.len());
    for (a, b) in first.iter().zip(&second) {
        numbers.push(expect_float(a)? - expect_float(b)?);
    }
    Ok(Value::Float(euclidean_norm(&numbers)))
}

fn euclidean_norm(numbers: &[f64]) -> f64 {
    match numbers {
        [first, second] => first.hypot(*second),
        _ => numbers.iter().fold(0.0, |sum: f64, it| sum.hypot(*it)),
    }
}

fn isclose(_: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let mut call = call;
    let mut named = |name, default| {
        call.take_named(name)
            .map_or(Ok(default), |it| expect_float(&it))
    };
    let (relative, absolute) = (named("rel_tol", 1e-9)?, named("abs_tol", 0.0)?);
    let [first, second] = call.take_exactly()?;
    let (a, b) = (expect_float(&first)?, expect_float(&second)?);
    if relative < 0.0 || absolute < 0.0 {
        return Err(value_error("tolerances must be non-negative"));
    }
    if a == b {
        return Ok(Value::Bool(true));
    }
    let near = (a - b).abs() <= (relative * a.abs().max(b.abs())).max(absolute);
    Ok(Value::Bool(near && a.is_finite() && b.is_finite()))
}

/// Evaluates `fsum`: the exact sum, rounded once.
fn fsum(evaluator: &mut Evaluator<'_>, call: BuiltinCall<'_>) -> Result<Value> {
    let [source] = call.take_exactly()?;
    let mut parts: Vec<f64> = Vec::new();
    let mut special = 0.0;
    iteration::for_each_item(evaluator, source, &mut |evaluator, item| {
        if !item.is_number() {
            let name = item.type_name();
            return Err(type_error(format!("must be real number, not {name}")));
        }
        let mut number = expect_float(&item)?;
        if !number.is_finite() {
            special += number;
            return Ok(IterationFlow::Continue);
        }
        evaluator.meter.charge_steps(1 + parts.len() as u64)?;
        let mut kept = 0;
        for at in 0..parts.len() {
            let (large, small) = if number.abs() < parts[at].abs() {
                (parts[at], number)
            } else {
                (number, parts[at])
            };
            let sum = large + small;
            let rest = small - (sum - large);
            if rest != 0.0 {
                parts[kept] = rest;
                kept += 1;
            }
            number = sum;
        }
        if !number.is_finite() {
            return Err(overflow_error("intermediate overflow in fsum"));
        }
        parts.truncate(kept);
        parts.push(number);
        Ok(IterationFlow::Continue)
    })?;
    if special != 0.0 || f64::is_nan(special) {
        return Ok(Value::Float(special));
    }
    check_result(sum_partials(&parts), &[0.0])
}

/// Adds partial sums that do not overlap, smallest first.
fn sum_partials(parts: &[f64]) -> f64 {
    let mut rest = parts.iter().rev().copied();
    let mut sum = rest.next().unwrap_or_default();
    while let Some(part) = rest.next() {
        let before = sum;
        sum = before + part;
        let lost = part - (sum - before);
        if lost == 0.0 {
            continue;
        }
        // Halfway between two floats, the next partial sum decides.
        if let Some(next) = rest.next()
            && ((lost < 0.0 && next < 0.0) || (lost > 0.0 && next > 0.0))
        {
            let double = lost * 2.0;
            let up = sum + double;
            if double == up - sum {
                sum = up;
            }
        }
        break;
    }
    sum
}
