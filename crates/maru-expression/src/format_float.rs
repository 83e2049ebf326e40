//! Formats floats by a format specification.

use super::{
    error::{Result, value_error},
    float,
    format_spec::{FormatSpec, unknown_format_code},
    limits::ResourceMeter,
};

/// A float has no more decimals than this; further digits are zeros.
const MAX_EXACT_DECIMALS: usize = 1100;

pub(super) fn format(
    meter: &mut ResourceMeter<'_>,
    number: f64,
    spec: &FormatSpec,
) -> Result<String> {
    let kind = spec.kind.unwrap_or('\0');
    if !matches!(kind, '\0' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') {
        return Err(unknown_format_code(kind, "float"));
    }
    if let (Some(mark), 'n') = (spec.grouping, kind) {
        return Err(value_error(format!("Cannot specify '{mark}' with 'n'.")));
    }
    let precision = spec.precision.unwrap_or_default();
    meter.charge_text(precision, precision.saturating_mul(2))?;
    meter.charge_steps(20)?;
    let negative = number.is_sign_negative() && !number.is_nan();
    let mut written = if number.is_finite() {
        format_finite(number.abs(), kind, spec)
    } else if kind == '%' {
        float::repr(number.abs()) + "%"
    } else {
        float::repr(number.abs())
    };
    if kind.is_ascii_uppercase() {
        written.make_ascii_uppercase();
    }
    let end = written.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = written.split_at(end.unwrap_or(written.len()));
    spec.align_number(meter, spec.sign_text(negative), digits, rest)
}

fn format_finite(number: f64, kind: char, spec: &FormatSpec) -> String {
    let precision = spec.precision.unwrap_or(6);
    match kind.to_ascii_lowercase() {
        'f' => with_decimal_point(format_fixed(number, precision), spec),
        'e' => format_exponential(number, precision, spec.alternate),
        '%' => {
            let hundred = number * 100.0;
            if !hundred.is_finite() {
                return "inf%".to_owned();
            }
            with_decimal_point(format_fixed(hundred, precision), spec) + "%"
        }
        '\0' if spec.precision.is_none() => {
            let written = float::repr(number);
            if spec.alternate && !written.contains('.') {
                written.replace('e', ".e")
            } else {
                written
            }
        }
        '\0' => format_general(
            number,
            precision.max(1),
            spec.alternate,
            GeneralFloatStyle::ReprLike,
        ),
        _ => format_general(
            number,
            precision.max(1),
            spec.alternate,
            GeneralFloatStyle::General,
        ),
    }
}

/// Appends a decimal point if the format specification has `#`.
fn with_decimal_point(written: String, spec: &FormatSpec) -> String {
    if spec.alternate && !written.contains('.') {
        written + "."
    } else {
        written
    }
}

fn format_fixed(number: f64, decimals: usize) -> String {
    let exact = decimals.min(MAX_EXACT_DECIMALS);
    let zeros = "0".repeat(decimals - exact);
    format!("{number:.exact$}{zeros}")
}

fn format_exponential(number: f64, decimals: usize, alternate: bool) -> String {
    let (digits, exponent) = scientific_digits(number, decimals);
    let dot = if alternate && !digits.contains('.') {
        "."
    } else {
        ""
    };
    format!("{digits}{dot}e{}", float::signed_exponent(exponent))
}

fn scientific_digits(number: f64, decimals: usize) -> (String, i32) {
    let exact = decimals.min(MAX_EXACT_DECIMALS);
    let written = format!("{number:.exact$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let zeros = "0".repeat(decimals - exact);
    (
        format!("{digits}{zeros}"),
        exponent.parse().unwrap_or_default(),
    )
}

/// Formats with `g`, or with a precision but no type. They differ in when an exponent is
/// written and in whether a whole number gets `.0`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GeneralFloatStyle {
    General,
    ReprLike,
}

fn format_general(
    number: f64,
    precision: usize,
    alternate: bool,
    style: GeneralFloatStyle,
) -> String {
    let (digits, exponent) = scientific_digits(number, precision - 1);
    let max_exponent = precision as i32 - i32::from(style == GeneralFloatStyle::ReprLike);
    if exponent < -4 || exponent >= max_exponent {
        let digits = if alternate {
            digits
        } else {
            trim_trailing_zeros(&digits)
        };
        let dot = if alternate && !digits.contains('.') {
            "."
        } else {
            ""
        };
        return format!("{digits}{dot}e{}", float::signed_exponent(exponent));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    let written = format_fixed(number, decimals);
    let written = if alternate {
        written
    } else {
        trim_trailing_zeros(&written)
    };
    if style == GeneralFloatStyle::ReprLike && !written.contains('.') {
        written + ".0"
    } else if alternate && !written.contains('.') {
        written + "."
    } else {
        written
    }
}

fn trim_trailing_zeros(written: &str) -> String {
    if written.contains('.') {
        written
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    } else {
        written.to_owned()
    }
}
