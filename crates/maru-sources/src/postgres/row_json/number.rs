//! Numbers.

use std::io::Write;

pub(super) fn write_int2(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_integer(i16::from_be_bytes(bytes.try_into().ok()?), out)
}

pub(super) fn write_int4(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_integer(i32::from_be_bytes(bytes.try_into().ok()?), out)
}

pub(super) fn write_int8(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_integer(i64::from_be_bytes(bytes.try_into().ok()?), out)
}

fn write_integer(number: impl itoa::Integer, out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Some(())
}

pub(super) fn write_float4(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_float(f32::from_be_bytes(bytes.try_into().ok()?), 6, 22, out)
}

pub(super) fn write_float8(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    write_float(f64::from_be_bytes(bytes.try_into().ok()?), 15, 52, out)
}

/// The shortest digits that mean the number; with an exponent if they would be more
/// than `wide` before the point, or far behind it. From two to the `exact` on, digits
/// can lie between two numbers, and the server chooses in its own way.
fn write_float<T: Copy + Into<f64> + ryu::Float>(
    number: T,
    wide: i32,
    exact: i32,
    out: &mut Vec<u8>,
) -> Option<()> {
    let value: f64 = number.into();
    if value.is_nan() {
        return write!(out, "\"NaN\"").ok();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return write!(out, "\"{sign}Infinity\"").ok();
    }
    if value.abs() >= 2_f64.powi(exact) {
        return None;
    }
    let (digits, exponent) = significant_digits(ryu::Buffer::new().format_finite(number))?;
    let (first, rest) = digits.split_at_checked(1).unwrap_or(("0", ""));
    let point = if rest.is_empty() { "" } else { "." };
    match usize::try_from(exponent) {
        Ok(places) if exponent < wide && places >= rest.len() => {
            write!(out, "{sign}{first}{rest:0<places$}").ok()
        }
        Ok(places) if exponent < wide => {
            let (whole, fraction) = rest.split_at_checked(places)?;
            write!(out, "{sign}{first}{whole}.{fraction}").ok()
        }
        Err(_) if exponent >= -4 => {
            let zeros = usize::try_from(-1 - exponent).ok()?;
            write!(out, "{sign}0.{:0<zeros$}{digits}", "").ok()
        }
        _ => write!(out, "{sign}{first}{point}{rest}e{exponent:+03}").ok(),
    }
}

/// The digits of a written number, and the power of ten of the first one.
fn significant_digits(written: &str) -> Option<(String, i32)> {
    let (digits, power) = written.split_once('e').unwrap_or((written, "0"));
    let digits = digits.trim_start_matches('-');
    let whole = digits.split('.').next()?.len();
    let digits = digits.replace('.', "");
    let power = power.parse::<i32>().ok()? + i32::try_from(whole).ok()? - 1;
    let significant = digits.trim_start_matches('0');
    let zeros = i32::try_from(digits.len() - significant.len()).ok()?;
    match significant.trim_end_matches('0') {
        "" => Some((String::new(), 0)),
        digits => Some((digits.to_owned(), power - zeros)),
    }
}

/// Groups of four digits, the place of the first one, a sign, and how many digits
/// are shown behind the point.
pub(super) fn write_numeric(bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (head, groups) = bytes.split_at_checked(8)?;
    let word = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let (weight, sign, shown) = (word(2)?.cast_signed(), word(4)?, usize::from(word(6)?));
    match sign {
        0 => (),
        0x4000 => out.push(b'-'),
        0xC000 => return write!(out, "\"NaN\"").ok(),
        0xD000 => return write!(out, "\"Infinity\"").ok(),
        0xF000 => return write!(out, "\"-Infinity\"").ok(),
        _ => return None,
    }
    let (groups, _) = groups.as_chunks();
    let group = |at: i32| {
        let found = usize::try_from(at).ok().and_then(|it| groups.get(it));
        found.map_or(0, |it| u16::from_be_bytes(*it))
    };
    let last = i32::from(weight);
    write_integer(if last < 0 { 0 } else { group(0) }, out)?;
    for at in 1..=last {
        write!(out, "{:04}", group(at)).ok()?;
    }
    if shown == 0 {
        return Some(());
    }
    out.push(b'.');
    let end = out.len() + shown;
    let mut at = last + 1;
    while out.len() < end {
        write!(out, "{:04}", group(at)).ok()?;
        at += 1;
    }
    out.truncate(end);
    Some(())
}
