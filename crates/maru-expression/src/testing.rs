//! What the unit tests of several modules use.

use serde_json::{Map, Value};

use crate::{Error, EvaluationLimits, EvaluationOutput, compile};

/// Compiles and runs `source` with the usual limits.
pub(crate) fn evaluate(
    source: &str,
    arguments: &Map<String, Value>,
) -> Result<EvaluationOutput, Error> {
    evaluate_within(source, arguments, &EvaluationLimits::default())
}

pub(crate) fn evaluate_within(
    source: &str,
    arguments: &Map<String, Value>,
    limits: &EvaluationLimits,
) -> Result<EvaluationOutput, Error> {
    let names: Vec<&str> = arguments.keys().map(String::as_str).collect();
    compile(source, &names)?.run(arguments, limits)
}

pub(crate) fn to_map(json: &Value) -> Map<String, Value> {
    json.as_object().cloned().unwrap_or_default()
}

/// Checks the text that each source without arguments gives.
#[track_caller]
pub(crate) fn check_texts(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        let done = evaluate(source, &Map::new());
        let text = done.map_or_else(|error| error.to_string(), |it| it.text);
        assert_eq!(text, *expected, "{source}");
    }
}
