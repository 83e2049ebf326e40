//! The arguments of a call.

use std::{ops::Deref, sync::Arc};

use maru_protocol::{RequestParams, RpcError};
use maru_runtime::tasks::run_parser;
use serde_json::Value;

use super::input_schema::parse_integer;

/// The arguments of a call, an object: parsed, and as the caller wrote it.
#[derive(Debug)]
pub struct CallArguments {
    value: Value,
    text: Arc<str>,
}

/// The largest arguments of the data tools and of custom tools, in bytes.
const MAX_DATA_ARGUMENT_BYTES: usize = 1 << 20;

impl CallArguments {
    /// Parses arguments from validated JSON; without any they are an empty object. Large
    /// ones are parsed on a blocking thread.
    pub async fn parse(raw: Option<&str>) -> Result<Self, RpcError> {
        let text: Arc<str> = raw.unwrap_or("{}").into();
        run_parser(text.len(), move || {
            let value = RequestParams::object_or_empty(Some(&text), "arguments")?;
            Ok(Self {
                value: Value::Object(value),
                text,
            })
        })
        .await
    }

    /// Arguments that were parsed from validated JSON.
    pub(super) fn from_parts(value: Value, text: Arc<str>) -> Self {
        Self { value, text }
    }

    /// The arguments as the caller wrote them, so that numbers keep their digits.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An integer argument: `2026`, `2026.0` or `"2026"`.
    pub fn integer(&self, name: &str) -> Option<i64> {
        parse_integer(&self.value[name])
    }

    /// Refuses arguments that no data tool and no custom tool needs.
    pub(super) fn check_size(&self) -> Result<(), String> {
        if self.text.len() > MAX_DATA_ARGUMENT_BYTES {
            Err(format!(
                "the arguments are larger than {MAX_DATA_ARGUMENT_BYTES} bytes"
            ))
        } else {
            Ok(())
        }
    }

    /// The shared text of the arguments.
    pub(super) fn shared_text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }
}

impl From<Value> for CallArguments {
    fn from(value: Value) -> Self {
        let text = value.to_string().into();
        Self { value, text }
    }
}

impl Deref for CallArguments {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}
