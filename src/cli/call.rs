//! `maru call`: calls a tool and prints its result.

use std::{io::Read as _, process::ExitCode};

use anyhow::{Context as _, Result, anyhow};
use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD};
use clap::Args;
use serde_json::{Map, Value};

use super::{
    EXIT_CANNOT_RUN,
    call_progress::CallProgressLine,
    catalog_client::{CatalogClient, CliCallOutcome},
    context::{CliContext, OutputFormat},
    serve::block_on,
    terminal, yaml,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru call get_all_employees
  maru call get_employee_info '{\"employee_id\":\"EMP001\"}'
  echo '{\"query\":\"deploy\"}' | maru call search_docs -
  maru call search_docs --args-b64 eyJxdWVyeSI6ImRlcGxveSJ9
  maru call search_docs '{\"query\":\"deploy\"}' --json      the whole MCP result

On a terminal, JSON is indented; elsewhere it is printed as the tool wrote it.")]
pub(super) struct CallArgs {
    /// The name of the tool, as in `maru tools`
    name: String,
    /// The arguments, a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    arguments: String,
    /// The arguments in Base64, for programs that would have to quote them
    #[arg(long, value_name = "BASE64", conflicts_with = "arguments")]
    args_b64: Option<String>,
}

/// The maximum length of a printed result, unless the settings set another.
const DEFAULT_MAX_OUTPUT_CHARS: usize = 50_000;

pub(super) fn run(context: &CliContext, options: &CallArgs) -> Result<ExitCode> {
    let arguments = match &options.args_b64 {
        Some(encoded) => decode_base64(encoded).and_then(|text| parse_arguments(&text))?,
        None => read_arguments(&options.arguments)?,
    };
    let limit = context.config().mcp.security.max_tool_output_length;
    let limit = limit.unwrap_or(DEFAULT_MAX_OUTPUT_CHARS);
    let progress = CallProgressLine::new(&options.name);
    let outcome = block_on(progress.show_during(async {
        let client = CatalogClient::open(context).await?;
        let on_notification = |it: &Value| progress.on_notification(it);
        client.call(&options.name, arguments, on_notification).await
    }))?;
    drop(progress);
    let result = match outcome {
        CliCallOutcome::Result(result) => result,
        CliCallOutcome::Refused(reason) => {
            terminal::print_error(&reason);
            return Ok(ExitCode::from(EXIT_CANNOT_RUN));
        }
    };
    let text = match context.output {
        OutputFormat::Table => result.to_text_within(limit),
        OutputFormat::Json => result.as_json().to_owned(),
        OutputFormat::Yaml => yaml::write(&serde_json::from_str(result.as_json())?)?,
    };
    terminal::print(&format!("{}\n", terminal::indent_json(text)))?;
    Ok(ExitCode::from(u8::from(result.is_error())))
}

fn read_arguments(argument: &str) -> Result<Value> {
    if argument != "-" {
        return parse_arguments(argument);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the arguments from stdin")?;
    parse_arguments(&text)
}

/// Decodes standard or URL-safe Base64, with or without padding.
fn decode_base64(encoded: &str) -> Result<String> {
    let standard: String = encoded
        .trim()
        .trim_end_matches('=')
        .replace('-', "+")
        .replace('_', "/");
    let bytes = STANDARD_NO_PAD
        .decode(standard)
        .map_err(|_| anyhow!("the arguments are not Base64"))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("the arguments are not UTF-8"))
}

fn parse_arguments(text: &str) -> Result<Value> {
    let example = "example: '{\"query\":\"연차\"}'";
    maru_protocol::validate_json(text.as_bytes())
        .map_err(|error| anyhow!("the arguments are {error}; {example}"))?;
    serde_json::from_str::<Map<String, Value>>(text)
        .map(Value::Object)
        .map_err(|_| anyhow!("the arguments are not a JSON object; {example}"))
}
