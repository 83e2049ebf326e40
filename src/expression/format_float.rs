//! Floats under a format.

use super::{
    fault::{Result, value_error},
    float,
    format::{Spec, unknown},
    limits::Meter,
};

/// A float has no more decimals than this; what follows is zeros.
const DECIMALS: usize = 1100;

pub(super) fn format(meter: &mut Meter<'_>, number: f64, spec: &Spec) -> Result<String> {
    let kind = spec.kind.unwrap_or('\0');
    if !matches!(kind, '\0' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') {
        return Err(unknown(kind, "float"));
    }
    if let (Some(mark), 'n') = (spec.grouping, kind) {
        return Err(value_error(format!("Cannot specify '{mark}' with 'n'.")));
    }
    let precision = spec.precision.unwrap_or_default();
    meter.text(precision, precision.saturating_mul(2))?;
    meter.step(20)?;
    let negative = number.is_sign_negative() && !number.is_nan();
    let mut written = match number.is_finite() {
        true => finite(number.abs(), kind, spec),
        false if kind == '%' => float::repr(number.abs()) + "%",
        false => float::repr(number.abs()),
    };
    if kind.is_ascii_uppercase() {
        written.make_ascii_uppercase();
    }
    let end = written.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = written.split_at(end.unwrap_or(written.len()));
    spec.place(meter, spec.sign(negative), digits, rest)
}

fn finite(number: f64, kind: char, spec: &Spec) -> String {
    let precision = spec.precision.unwrap_or(6);
    match kind.to_ascii_lowercase() {
        'f' => point(fixed(number, precision), spec),
        'e' => exponential(number, precision, spec.alternate),
        '%' => {
            let hundred = number * 100.0;
            if !hundred.is_finite() {
                return "inf%".to_owned();
            }
            point(fixed(hundred, precision), spec) + "%"
        }
        '\0' if spec.precision.is_none() => {
            let written = float::repr(number);
            match spec.alternate && !written.contains('.') {
                true => written.replace('e', ".e"),
                false => written,
            }
        }
        '\0' => general(number, precision.max(1), spec.alternate, Style::Plain),
        _ => general(number, precision.max(1), spec.alternate, Style::General),
    }
}

/// With a point even if nothing follows, if the format asks for it.
fn point(written: String, spec: &Spec) -> String {
    match spec.alternate && !written.contains('.') {
        true => written + ".",
        false => written,
    }
}

fn fixed(number: f64, decimals: usize) -> String {
    let exact = decimals.min(DECIMALS);
    let zeros = "0".repeat(decimals - exact);
    format!("{number:.exact$}{zeros}")
}

fn exponential(number: f64, decimals: usize, alternate: bool) -> String {
    let (digits, exponent) = scientific(number, decimals);
    let dot = if alternate && !digits.contains('.') {
        "."
    } else {
        ""
    };
    format!("{digits}{dot}e{}", float::sign_exponent(exponent))
}

fn scientific(number: f64, decimals: usize) -> (String, i32) {
    let exact = decimals.min(DECIMALS);
    let written = format!("{number:.exact$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let zeros = "0".repeat(decimals - exact);
    (
        format!("{digits}{zeros}"),
        exponent.parse().unwrap_or_default(),
    )
}

/// `g`, or no type with a precision, which differ in when an exponent is
/// written and in whether a whole number gets `.0`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    General,
    Plain,
}

fn general(number: f64, precision: usize, alternate: bool, style: Style) -> String {
    let (digits, exponent) = scientific(number, precision - 1);
    let most = precision as i32 - i32::from(style == Style::Plain);
    if exponent < -4 || exponent >= most {
        let digits = if alternate { digits } else { trimmed(&digits) };
        let dot = if alternate && !digits.contains('.') {
            "."
        } else {
            ""
        };
        return format!("{digits}{dot}e{}", float::sign_exponent(exponent));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    let written = fixed(number, decimals);
    let written = if alternate {
        written
    } else {
        trimmed(&written)
    };
    match style == Style::Plain && !written.contains('.') {
        true => written + ".0",
        false if alternate && !written.contains('.') => written + ".",
        false => written,
    }
}

fn trimmed(written: &str) -> String {
    match written.contains('.') {
        true => written
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
        false => written.to_owned(),
    }
}
