//! `maru call`: the runner.

use std::{io::Read as _, process::ExitCode};

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use serde_json::{Map, Value};

use super::{
    CANNOT,
    client::{Client, Outcome},
    out,
    serve::block_on,
};
use crate::{config::Loaded, mcp, tool::output};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru call get_all_employees
  maru call get_employee_info '{\"employee_id\":\"EMP001\"}'
  echo '{\"query\":\"deploy\"}' | maru call search_docs -")]
pub(super) struct Options {
    /// The tool, as `maru tools` names it
    name: String,
    /// Its arguments, a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    arguments: String,
    /// Print the whole MCP result as JSON instead of its text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: Loaded, options: &Options) -> Result<ExitCode> {
    let arguments = read_arguments(&options.arguments)?;
    let limit = loaded.config.mcp.security.max_tool_output_length;
    let outcome = block_on(async {
        Client::open(loaded)
            .await?
            .call(&options.name, arguments)
            .await
    })?;
    let result = match outcome {
        Outcome::Result(result) => result,
        Outcome::Refused(why) => {
            out::complain(&why);
            return Ok(ExitCode::from(CANNOT));
        }
    };
    let (text, is_error) = output::read_short(&result, limit);
    let shown = if options.json { result } else { text };
    out::print(&format!("{shown}\n"))?;
    Ok(ExitCode::from(u8::from(is_error)))
}

fn read_arguments(given: &str) -> Result<Value> {
    let mut text = given.to_owned();
    if given == "-" {
        text.clear();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the arguments from stdin")?;
    }
    let example = "example: '{\"query\":\"연차\"}'";
    mcp::check(text.as_bytes()).map_err(|bad| anyhow!("the arguments are {bad}; {example}"))?;
    serde_json::from_str::<Map<String, Value>>(&text)
        .map(Value::Object)
        .map_err(|_| anyhow!("the arguments are not a JSON object; {example}"))
}
